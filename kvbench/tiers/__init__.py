"""What a tier is: probing it, working in it safely, and leaving nothing behind."""
