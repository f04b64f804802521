"""How fast the GPUs recompute a prompt: measured TTFT samples (samples) and the curve through them (curve)."""
