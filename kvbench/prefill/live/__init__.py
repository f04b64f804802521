"""Uncached TTFT measured against a running OpenAI-compatible server, one request after the other or under load."""
