"""One measurement to make, and the names that it goes by in files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvbench.record.results import Mix


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement to make. It knows a tier and an I/O, and no model."""

    id: str
    tier: str
    driver: str
    io_bytes: int
    mix: Mix
    numjobs: int


def point_id(tier: str, io_bytes: int, mix: Mix, numjobs: int, driver: str = "fio") -> str:
    """The id of a point; it is also fio's job name and a file name, so it is plain ASCII."""
    return f"{slug(tier)}-{io_bytes}-{mix}-j{numjobs}{_suffix(driver)}"


def lane_name(tier: str, driver: str) -> str:
    """A tier with one driver, as a file name."""
    return slug(tier) + _suffix(driver)


def is_point_id(text: str, io_bytes: int, mix: Mix, numjobs: int, driver: str) -> bool:
    """Whether ``text`` is what ``point_id`` makes for some tier: a file name and a job name that mean nothing else."""
    end = point_id("", io_bytes, mix, numjobs, driver).removeprefix(slug(""))
    return text.endswith(end) and slug(text.removesuffix(end)) == text.removesuffix(end)


def jobs_in(text: str) -> int | None:
    """The number of jobs in a name that ``point_id`` made for a fio of ours; None in any other name."""
    found = re.fullmatch(r".+-\d+-(?:read|write|mixed)-j(\d{1,9})", text)
    return None if found is None else int(found[1])


def _suffix(driver: str) -> str:
    return "" if driver == "fio" else f"-{driver}"


def slug(text: str) -> str:
    """``text`` with everything but letters, digits, dot and underscore turned into dashes, 80 characters at most."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:80] or "tier"
