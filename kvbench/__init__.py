"""kvbench: does restoring a KV cache from a storage tier beat recomputing it, and from which context length on."""

__version__ = "0.1.0"
