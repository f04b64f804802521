"""What makes the I/O; every driver writes the same histogram file."""
