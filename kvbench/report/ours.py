"""Whether a file that is about to be written over was made by kvbench: what is somebody else's stays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kvbench.border import bounded
from kvbench.errors import UsageError

# Where a file says who made it: near its beginning, or at the foot of a page.
PAGE_MARK = "Made by kvbench "
JUNIT_MARK = 'name="kvbench gate"'
PNG_MARK = "Software\0kvbench"
MARKDOWN_HEADING = "Restore or recompute"
_MADE_BY = '"made_by": "kvbench '
_LOOKED_AT = 64 << 20


def require_ours(path: Path, mark: str, why: str = "was not made by kvbench") -> None:
    """UsageError when ``path`` exists and is not a plain file that carries ``mark``."""
    if (path.exists() or path.is_symlink()) and not _carries(path, mark):
        raise UsageError(f"{path} exists and {why}; name another place, or move it away.")


def require_own_page(page: Path, data: Path, others: Iterable[Path]) -> None:
    """UsageError when the page, its data file or one of its other companions exists and kvbench did not make it.

    The data file says who made it; what lies beside it under a name of ours was written together with it.
    """
    require_ours(page, PAGE_MARK)
    require_ours(data, _MADE_BY)
    tables = _tables_of(data)
    for path in others:
        if path.parent.is_symlink():
            raise UsageError(f"{path.parent} is a link; name another place, or move it away.")
        known = path.parent == data.parent or path.stem in tables
        if (path.exists() or path.is_symlink()) and not (data.is_file() and known and _is_plain(path)):
            raise UsageError(f"{path} exists and was not made by kvbench; name another place, or move it away.")


def _carries(path: Path, mark: str) -> bool:
    if not _is_plain(path):
        return False
    with path.open("rb") as file:
        return mark.encode() in file.read(_LOOKED_AT)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _tables_of(data: Path) -> frozenset[str]:
    """The tables that were written beside a data file of ours."""
    try:
        found = bounded.json_of(bounded.read_bytes(data, regular=True))
    except (OSError, ValueError):
        return frozenset()
    tables = found.get("tables") if isinstance(found, dict) else None
    return frozenset(tables) if isinstance(tables, dict) else frozenset()
