"""What people read: tables as data, then as text, Markdown or HTML."""
