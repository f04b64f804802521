"""Block references -> reuse: exact LRU curves, working sets, sampling and synthetic traces (pure)."""
