"""Tables of commands that judge no run: sizes, plans and findings. They load nothing that measures or decides."""
