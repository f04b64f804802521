"""Where foreign text, files and names come in: bounded, escaped, without secrets."""
