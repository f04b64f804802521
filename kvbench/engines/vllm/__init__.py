"""vLLM's KV cache, by release: which blocks it allocates, of how many tokens, in which groups."""
