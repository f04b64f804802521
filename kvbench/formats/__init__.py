"""Foreign results, each read once into a neutral record."""
