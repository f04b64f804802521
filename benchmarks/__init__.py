"""Programs that hold what kvbench says against what really happens."""
