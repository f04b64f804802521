"""The replay driver: vLLM's own calls for its file system tier (calls), on many block files (blocks), by flow."""
