"""``python -m tests.lab up|down|status``: start, stop or show the storage lab."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tests.lab import ceph, llm, loops, nanio
from tests.lab.processes import mounted_below
from tests.lab.state import Lab, LabError, claim, lab_root, load, save

T = TypeVar("T")


def main() -> int:
    """0 when everything asked for runs (or is gone), 1 when a part could not be started; the reasons are printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("what", choices=("up", "down", "status"))
    parser.add_argument("--osds", type=int, choices=(1, 2), default=2, help="object storage daemons")
    parser.add_argument("--install", action="store_true", help="install missing Debian packages first (root)")
    asked = parser.parse_args()
    root = lab_root()
    try:
        if asked.what == "down":
            down(root)
            return 0
        if asked.what == "up":
            if asked.install:
                install()
            up(root, asked.osds)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return show(root)


def up(root: Path, osds: int) -> None:
    """Start what does not run yet; a part that cannot run is recorded with the reason, the others go on."""
    claim(root)
    for folder in ("run", "log"):
        (root / folder).mkdir(exist_ok=True)
    lab = load(root) or Lab(str(root))
    lab = replace(lab, missing={})
    if not lab.loops or not all(map(loops.is_attached, lab.loops)):
        found = _attempt(lab, "loops", lambda: loops.up(root))
        lab = replace(lab, loops=found or [])
        save(lab)
    if lab.nanio is None or not nanio.is_up(root):
        lab = replace(lab, nanio=_attempt(lab, "nanio", lambda: nanio.up(root)))
        save(lab)
    if lab.llm is None or not llm.is_up(root):
        lab = replace(lab, llm=_attempt(lab, "llm", lambda: llm.up(root)))
        save(lab)
    if lab.ceph is None or not ceph.is_up(root, lab.ceph):
        lab = replace(lab, ceph=_attempt(lab, "ceph", lambda: ceph.up(root, osds)))
    save(lab)


def down(root: Path) -> None:
    """Stop exactly what ``up`` started below ``root`` and remove the directory; nothing to do is fine."""
    if not root.exists():
        return
    claim(root)
    lab = load(root)
    ceph.down(root)
    nanio.down(root)
    llm.down(root)
    for loop in lab.loops if lab else []:
        loops.detach(loop)
    if still := mounted_below(root):
        raise LabError(f"{', '.join(map(str, still))} cannot be unmounted, so {root} is left as it is")
    shutil.rmtree(root)


def install() -> None:
    """apt-get the lab's Debian packages when some are missing and this user may; otherwise do nothing."""
    try:
        ceph.require()
        loops.require()
    except LabError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["install", "-y", "--no-install-recommends", *ceph.PACKAGES, "xfsprogs"]
        for words in (["update"], install):
            # What still is missing afterwards is reported by the part that needs it.
            subprocess.run(["apt-get", "-q", *words], env=environment, check=False)


def show(root: Path) -> int:
    """Print what runs and what does not; 0 when nothing is missing."""
    lab = load(root)
    if lab is None:
        print(f"lab: nothing runs below {root}; start it with 'make lab-up'")
        return 1
    if lab.ceph:
        print(f"CephFS at {lab.ceph.mount} ({len(lab.ceph.osds)} OSDs), RGW at {lab.ceph.rgw.endpoint}")
    if lab.nanio:
        print(f"nanio at {lab.nanio.endpoint}")
    if lab.llm:
        print(f"llama.cpp at {lab.llm.url}, model {lab.llm.model}")
    for loop in lab.loops:
        print(f"{loop.device}: {loop.sector_bytes}-byte sectors, {loop.mount or 'raw'}")
    for part, reason in lab.missing.items():
        print(f"{part} does not run: {reason}", file=sys.stderr)
    return 1 if lab.missing else 0


def _attempt(lab: Lab, part: str, start: Callable[[], T]) -> T | None:
    began = time.monotonic()
    try:
        started = start()
    except LabError as error:
        lab.missing[part] = str(error)
        return None
    print(f"{part} up after {time.monotonic() - began:.1f} s")
    return started


if __name__ == "__main__":
    sys.exit(main())
