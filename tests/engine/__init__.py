"""Tests against the real vLLM on its CPU platform; they need minutes and its environment (make test-engine)."""
