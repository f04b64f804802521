"""Loop devices over sparse files: 512 and 4096-byte sectors, each once raw and once with XFS."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.lab.processes import run, unmount
from tests.lab.state import LabError, Loop

SECTORS = (512, 4096)
# XFS wants 300 MiB (xfsprogs 5.19 and later).
_IMAGE_BYTES = 640 << 20


def up(root: Path) -> list[Loop]:
    """Attach and mount the lab's loop devices; LabError where this host cannot."""
    require()
    made: list[Loop] = []
    try:
        for sector in SECTORS:
            for kind in ("raw", "xfs"):
                made.append(attach(root / "loops", f"{kind}-{sector}", sector, xfs=kind == "xfs"))
    except LabError:
        for loop in made:
            detach(loop)
        raise
    return made


def require() -> None:
    """LabError with the reason where loop devices cannot be had."""
    missing = [program for program in ("losetup", "mkfs.xfs", "mount") if shutil.which(program) is None]
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        raise LabError("loop devices need root and /dev/loop-control")
    if missing:
        raise LabError(f"loop devices need {', '.join(missing)} (apt-get install util-linux mount xfsprogs)")


def attach(folder: Path, name: str, sector_bytes: int, *, xfs: bool = False, size: int = _IMAGE_BYTES) -> Loop:
    """A new loop device over ``folder/name.img``, with a mounted XFS if wanted."""
    folder.mkdir(parents=True, exist_ok=True)
    image = (folder / f"{name}.img").resolve()
    with image.open("wb") as file:
        file.truncate(size)
    device = run(["losetup", "--show", "-f", "-b", str(sector_bytes), "--direct-io=on", image]).strip()
    loop = Loop(device, str(image), sector_bytes, None)
    if not xfs:
        return loop
    try:
        target = folder / name
        target.mkdir(exist_ok=True)
        run(["mkfs.xfs", "-q", "-f", loop.device])
        run(["mount", loop.device, target])
    except LabError:
        detach(loop)
        raise
    return Loop(loop.device, loop.backing_file, sector_bytes, str(target))


def is_attached(loop: Loop) -> bool:
    """Whether the device still is over the lab's own file: its number may have been given to another since."""
    source = Path("/sys/class/block") / Path(loop.device).name / "loop" / "backing_file"
    return source.exists() and source.read_text().strip() == loop.backing_file


def detach(loop: Loop) -> None:
    """Unmount and detach the device, if it is still the lab's."""
    if loop.mount is not None and Path(loop.mount).is_mount():
        unmount(Path(loop.mount))
    if is_attached(loop):
        run(["losetup", "-d", loop.device])
