"""Block devices: what one is, and every reason not to touch it.

fio's own check compares path names with the mount table: a symbolic link to a mounted device passes it, ``rw=trim`` is
not checked at all (it destroyed a mounted XFS), and neither are partitions, LVM, MD or swap (fio 3.33 and 3.42). So the
rules are here, by device number and through /sys, and they see what the kernel says only through ``Kernel``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import TierError

# Enough of the start of a device for every signature below: btrfs keeps its own at 64 KiB.
HEAD_BYTES = 68 << 10
# Enough of its end for the superblocks of MD's versions 0.90 and 1.0.
TAIL_BYTES = 128 << 10

_SECTOR = 512


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel says about mounts, swap and block devices."""

    mountinfo: str
    swaps: str
    sys_class_block: Path

    @classmethod
    def here(cls) -> Kernel:
        """The running kernel."""
        swaps = Path("/proc/swaps")
        return cls(
            Path("/proc/self/mountinfo").read_text(errors="replace"),
            swaps.read_text(errors="replace") if swaps.exists() else "",
            Path("/sys/class/block"),
        )


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device: the resolved path, the kernel's name for it, and its sizes in bytes.

    ``sequence`` is the kernel's count of disks since boot: a name or number that is given to another has another one.
    """

    path: Path
    name: str
    size_bytes: int
    logical_sector_bytes: int
    physical_sector_bytes: int
    model: str | None
    read_only: bool
    serial: str | None = None
    sequence: str | None = None


def is_block_device(target: str) -> bool:
    """Whether the path, or what it links to, is a block device."""
    try:
        return stat.S_ISBLK(Path(target).stat().st_mode)
    except OSError:
        return False


def identify(target: str, kernel: Kernel) -> BlockDevice:
    """The block device at ``target``, symbolic links followed; TierError when it is none."""
    path = Path(target).expanduser()
    try:
        found = path.stat()
    except FileNotFoundError:
        raise TierError(f"the device {path} does not exist; 'lsblk' lists the block devices of this host.") from None
    except OSError as error:
        raise TierError(
            f"the device {path} cannot be used ({error.strerror}); check the name and your rights."
        ) from None
    if not stat.S_ISBLK(found.st_mode):
        raise TierError(f"{path} is no block device; 'lsblk' lists the block devices of this host.")
    return device_of(path.resolve(), f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}", kernel)


def device_of(path: Path, numbers: str, kernel: Kernel) -> BlockDevice:
    """The device with these numbers, which the kernel may call something else than its path; TierError if unknown."""
    name = _name_of(numbers, kernel)
    if name is None:
        raise TierError(f"the kernel knows no block device {numbers} for {path}; is /sys mounted here?")
    folder = kernel.sys_class_block / name
    queue = _disk_folder(folder) / "queue"
    return BlockDevice(
        path=path,
        name=name,
        size_bytes=_number(folder / "size", 0) * _SECTOR,
        logical_sector_bytes=_number(queue / "logical_block_size", _SECTOR),
        physical_sector_bytes=_number(queue / "physical_block_size", _SECTOR),
        model=_text(_disk_folder(folder) / "device" / "model"),
        read_only=_number(folder / "ro", 0) == 1,
        serial=_text(_disk_folder(folder) / "device" / "serial") or _text(_disk_folder(folder) / "wwid"),
        # Since Linux 5.15.
        sequence=_text(_disk_folder(folder) / "diskseq"),
    )


def uses(name: str, kernel: Kernel) -> list[str]:
    """What uses the device now, as sentences without a full stop: mounts, swap, partitions, LVM, MD, dm, loops.

    Everything built on the device counts, everything that its bytes are part of too: a partition of a mounted disk, a
    loop device over a used one.
    """
    found = list(_direct_uses(name, kernel))
    for above in _built_on(name, kernel):
        found += _direct_uses(above, kernel)
    for partition in _partitions(name, kernel):
        found.append(f"it holds the partition {partition}")
    for holder in _holders(name, kernel):
        found.append(f"it is part of {holder} ({_holder_kind(holder, kernel)})")
    for below in _made_of(name, kernel):
        found += _direct_uses(below, kernel)
    found += _shared_uses(name, kernel)
    disk = _parent(name, kernel)
    if disk is not None:
        found += [f"its disk {disk} is part of {holder}" for holder in _holders(disk, kernel)]
    return list(dict.fromkeys(found))


def mount_point_of(name: str, kernel: Kernel) -> str | None:
    """Where the device itself is mounted, or None."""
    numbers = _text(kernel.sys_class_block / name / "dev")
    return next(_mount_points(name, numbers, kernel), None)


def member_signature(head: bytes, tail: bytes = b"", size_bytes: int = 0) -> str | None:
    """What the ends of a device say it is a member of, though nothing has assembled it now; None for nothing known.

    ``tail`` are the last bytes of the ``size_bytes`` of the device. Offsets: lvm2 lib/format_text (label in the first
    four sectors), linux md.4 (1.1 at 0, 1.2 at 4096, 1.0 at least 8 KiB and 0.90 at least 64 KiB before the end),
    cryptsetup LUKS header, Ceph BlueStore's label.
    """
    for sector in range(4):
        if head[sector * _SECTOR :].startswith(b"LABELONE"):
            return "LVM"
    near_end = ((size_bytes - (8 << 10)) & ~0xFFF, (size_bytes & ~0xFFFF) - (64 << 10))
    in_tail = [len(tail) - size_bytes + offset for offset in near_end]
    places = [(head, 0), (head, 4096), *((tail, offset) for offset in in_tail if offset >= 0)]
    if any(data[offset : offset + 4] == b"\xfc\x4e\x2b\xa9" for data, offset in places):
        return "MD RAID"
    if head.startswith(b"LUKS\xba\xbe"):
        return "LUKS"
    return "Ceph BlueStore" if head.startswith(b"bluestore block device") else None


def filesystem_signature(head: bytes) -> str | None:
    """The file system or swap area whose signature stands at the start of a device, or None."""
    places = {
        "xfs": (0, b"XFSB"),
        "ext2/3/4": (1080, b"\x53\xef"),
        "btrfs": (0x10040, b"_BHRfS_M"),
        "swap": (4086, b"SWAPSPACE2"),
    }
    return next((name for name, (at, magic) in places.items() if head[at : at + len(magic)] == magic), None)


def require_unused(device: BlockDevice, kernel: Kernel) -> None:
    """TierError when anything uses the device: its numbers would not be the tier's, and a write would destroy data."""
    found = uses(device.name, kernel)
    if not found:
        return
    mount_point = mount_point_of(device.name, kernel)
    hint = f"measure the directory {mount_point} instead" if mount_point else "name a device that nothing uses"
    raise TierError(f"{device.path} is in use: {'; '.join(found)}. Nothing was touched; {hint}.")


def require_consent(device: BlockDevice, allow_destroy: Sequence[str]) -> None:
    """TierError unless ``--allow-destroy`` repeats the device's resolved path, letter by letter."""
    if str(device.path) in allow_destroy:
        return
    if not allow_destroy:
        raise TierError(
            f"writing would destroy what is on {device.path}; measure reads only with --mix read, "
            f"or repeat its path: --allow-destroy {device.path}."
        )
    raise TierError(
        f"--allow-destroy {', '.join(allow_destroy)} does not repeat the resolved path of the tier, {device.path}; "
        "nothing was touched."
    )


def require_expendable(device: BlockDevice, head: bytes, tail: bytes) -> None:
    """TierError when the device cannot be written or carries the signature of LVM, MD, LUKS or BlueStore."""
    if device.read_only:
        raise TierError(f"{device.path} is read-only; measure reads only with --mix read.")
    member = member_signature(head, tail, device.size_bytes)
    if member is not None:
        raise TierError(
            f"{device.path} carries a signature of {member}, so it may be part of a set that is not assembled now; "
            f"nothing was touched. If it is not, remove the signature with 'wipefs -a {device.path}'."
        )


def require_exclusive(device: BlockDevice) -> None:
    """TierError when the kernel says that the device has an owner: the last word, for owners that /sys does not show.

    O_EXCL without O_CREAT fails with EBUSY on a claimed device (open(2)): mounts, MD, dm, swap, ZFS, multi-device
    btrfs, a running OSD.
    """
    try:
        os.close(os.open(device.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        raise TierError(not_exclusive(device, error)) from None


def not_exclusive(device: BlockDevice, error: OSError) -> str:
    """The sentence for a device that cannot be claimed."""
    return (
        f"{device.path} cannot be opened for exclusive use ({error.strerror}); "
        "something on this host uses it, or you may not read it. Nothing was touched."
    )


def read_ends(device: BlockDevice) -> tuple[bytes, bytes]:
    """The start and the end of the device, for its signatures; TierError when it cannot be read."""
    try:
        with device.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            file.seek(max(0, device.size_bytes - TAIL_BYTES))
            return head, file.read(TAIL_BYTES)
    except OSError as error:
        raise TierError(f"{device.path} cannot be read ({error.strerror}); reading a device needs root.") from None


def _direct_uses(name: str, kernel: Kernel) -> Iterator[str]:
    numbers = _text(kernel.sys_class_block / name / "dev")
    for mount_point in _mount_points(name, numbers, kernel):
        yield f"{name} is mounted at {mount_point}"
    for line in kernel.swaps.splitlines()[1:]:
        swap = _unescape(line.split()[0]) if line.split() else ""
        if swap and (Path(swap).resolve().name == name and swap.startswith("/dev/")):
            yield f"{name} is swap space"
        if swap and swap == _backing_file(name, kernel):
            yield f"{name} lies over the swap file {swap}"


def _mount_points(name: str, numbers: str | None, kernel: Kernel) -> Iterator[str]:
    # proc(5): id parent major:minor root mount-point options [optional fields] - type source super-options.
    # btrfs mounts carry an anonymous device number, so their source counts as well.
    for line in kernel.mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 5:
            continue
        source = _unescape(tail[1]) if len(tail) > 1 else ""
        if fields[2] == numbers or (source.startswith("/dev/") and Path(source).resolve().name == name):
            yield _unescape(fields[4])


def _built_on(name: str, kernel: Kernel) -> list[str]:
    """Every device whose data lies on this one: partitions, holders, loop devices over it, and what is on those."""
    return _closure(name, lambda one: [*_partitions(one, kernel), *_holders(one, kernel)])


def _made_of(name: str, kernel: Kernel) -> list[str]:
    """Every device that this one's data lies on: the disk of a partition, LVM's and MD's members, a loop's device."""

    def below(one: str) -> list[str]:
        parent = _parent(one, kernel)
        over = _loop_over(one, kernel)
        slaves = kernel.sys_class_block / one / "slaves"
        names = sorted(entry.name for entry in slaves.iterdir()) if slaves.is_dir() else []
        return [*names, *([parent] if parent else []), *([over] if over else [])]

    return _closure(name, below)


def _shared_uses(name: str, kernel: Kernel) -> Iterator[str]:
    """Uses of the same bytes by another way: the kernel lets many loop devices lie over one file or device."""
    for loop in (name, *_made_of(name, kernel)):
        below = _loop_over(loop, kernel)
        for other in [*_twins(loop, kernel), *([below] if below else [])]:
            for one in (other, *_built_on(other, kernel)):
                yield from _direct_uses(one, kernel)
            for holder in _holders(other, kernel):
                if _loop_over(holder, kernel) is None:
                    yield f"{other}, which holds the same bytes, is part of {holder} ({_holder_kind(holder, kernel)})"


def _twins(name: str, kernel: Kernel) -> list[str]:
    """The other loop devices over the file that a loop device lies over."""
    backing = _backing_file(name, kernel)
    loops = [entry.name for entry in kernel.sys_class_block.glob("loop*") if entry.name != name]
    return sorted(loop for loop in loops if backing and _is_same_file(backing, _backing_file(loop, kernel)))


def _is_same_file(one: str, other: str | None) -> bool:
    try:
        return other is not None and (one == other or Path(one).samefile(other))
    except OSError:
        return False


def _closure(name: str, step: Callable[[str], list[str]]) -> list[str]:
    found: list[str] = []
    waiting = step(name)
    while waiting:
        one = waiting.pop(0)
        if one not in found and one != name:
            found.append(one)
            waiting += step(one)
    return found


def _partitions(name: str, kernel: Kernel) -> list[str]:
    folder = kernel.sys_class_block / name
    return sorted(entry.parent.name for entry in folder.glob("*/partition"))


def _holders(name: str, kernel: Kernel) -> list[str]:
    folder = kernel.sys_class_block / name / "holders"
    held = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    loops = [entry.name for entry in kernel.sys_class_block.glob("loop*") if _loop_over(entry.name, kernel) == name]
    return sorted({*held, *loops})


def _loop_over(name: str, kernel: Kernel) -> str | None:
    """The block device that a loop device lies over, None when it lies over a file."""
    backing = _backing_file(name, kernel)
    if backing is None or not backing.startswith("/dev/"):
        return None
    below = Path(backing).resolve().name
    return below if (kernel.sys_class_block / below).exists() else None


def _backing_file(name: str, kernel: Kernel) -> str | None:
    return _text(kernel.sys_class_block / name / "loop" / "backing_file")


def _holder_kind(holder: str, kernel: Kernel) -> str:
    identity = _text(kernel.sys_class_block / holder / "dm" / "uuid") or ""
    if identity:
        return {"LVM": "LVM", "CRYPT": "dm-crypt", "mpath": "multipath"}.get(identity.split("-")[0], "device mapper")
    return "MD RAID" if holder.startswith("md") else "a loop device" if holder.startswith("loop") else "a holder"


def _parent(name: str, kernel: Kernel) -> str | None:
    """The disk of a partition, None for anything else."""
    folder = kernel.sys_class_block / name
    return folder.resolve().parent.name if (folder / "partition").exists() else None


def _disk_folder(folder: Path) -> Path:
    return folder.resolve().parent if (folder / "partition").exists() else folder


def _name_of(numbers: str, kernel: Kernel) -> str | None:
    for entry in sorted(kernel.sys_class_block.iterdir()) if kernel.sys_class_block.is_dir() else []:
        if _text(entry / "dev") == numbers:
            return entry.name
    return None


def _number(path: Path, default: int) -> int:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else default


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _unescape(text: str) -> str:
    # The kernel writes blanks, tabs, newlines and backslashes as octal.
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
