"""This host: its environment, interruptions, and which addresses are near."""
