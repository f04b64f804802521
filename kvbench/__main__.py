"""``python -m kvbench`` is the same program as ``kvbench``."""

from kvbench.cli import entrypoint

if __name__ == "__main__":
    entrypoint()
