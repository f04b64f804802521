"""What runs inside the engine's own environment: the tests import nothing of it, and it imports nothing of them."""
