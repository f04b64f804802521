"""Which block devices kvbench refuses: decided from fake kernels here, from the real one in tests/tiers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvbench.errors import TierError
from kvbench.tiers import block
from kvbench.tiers.block import BlockDevice, Kernel


@dataclass
class Machine:
    """A fake /sys/class/block with links into a fake device tree, as the kernel makes it."""

    root: Path
    mounts: list[str] = field(default_factory=list)
    swaps: list[str] = field(default_factory=list)
    count: int = 0

    def disk(self, name: str, *, of: str | None = None, sectors: int = 2048) -> str:
        """A disk, or with ``of`` a partition of that disk."""
        self.count += 1
        folder = self.root / "devices" / of / name if of else self.root / "devices" / name
        (folder / "holders").mkdir(parents=True)
        (folder / "slaves").mkdir()
        (folder / "dev").write_text(f"8:{self.count}\n")
        (folder / "size").write_text(f"{sectors}\n")
        (folder / "ro").write_text("0\n")
        if of:
            (folder / "partition").write_text("1\n")
        else:
            (folder / "queue").mkdir()
            (folder / "queue" / "logical_block_size").write_text("4096\n")
            (folder / "queue" / "physical_block_size").write_text("4096\n")
        self.blocks.mkdir(exist_ok=True)
        (self.blocks / name).symlink_to(folder)
        return name

    def hold(self, holder: str, *members: str, uuid: str | None = None) -> None:
        """``holder`` is made of ``members``, as LVM, MD and dm-crypt are."""
        for member in members:
            (self.blocks / member / "holders" / holder).mkdir()
            (self.blocks / holder / "slaves" / member).mkdir()
        if uuid:
            (self.blocks / holder / "dm").mkdir()
            (self.blocks / holder / "dm" / "uuid").write_text(f"{uuid}\n")

    def loop(self, name: str, backing_file: str) -> str:
        """A loop device over a file or another device."""
        self.disk(name)
        (self.blocks / name / "loop").mkdir()
        (self.blocks / name / "loop" / "backing_file").write_text(f"{backing_file}\n")
        return name

    def mount(self, name: str, where: str = "/data") -> None:
        """The device is mounted."""
        numbers = (self.blocks / name / "dev").read_text().strip()
        self.mounts.append(f"40 1 {numbers} / {where} rw,relatime shared:1 - xfs /dev/{name} rw")

    @property
    def blocks(self) -> Path:
        """The fake /sys/class/block."""
        return self.root / "class"

    @property
    def kernel(self) -> Kernel:
        """What this machine's kernel says."""
        swaps = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority", *self.swaps]
        return Kernel("\n".join(self.mounts), "\n".join(swaps), self.blocks)

    def uses(self, name: str) -> list[str]:
        """Why this device is refused."""
        return block.uses(name, self.kernel)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_loop_devices_over_one_file_share_their_uses(machine: Machine) -> None:
    for name in ("loop0", "loop1"):
        machine.loop(name, "/images/one.img")
    machine.loop("loop2", "/images/two.img")
    assert machine.uses("loop1") == []
    machine.mount("loop0")
    assert machine.uses("loop1") == ["loop0 is mounted at /data"]
    assert machine.uses("loop2") == []


def test_a_loop_device_over_another_name_of_the_file_is_found(machine: Machine, tmp_path: Path) -> None:
    image, link = tmp_path / "one.img", tmp_path / "other.img"
    image.touch()
    link.hardlink_to(image)
    machine.mount(machine.disk("loop0p1", of=machine.loop("loop0", str(image))))
    machine.loop("loop1", str(link))
    assert machine.uses("loop1") == ["loop0p1 is mounted at /data"]


def test_lvm_on_another_loop_device_over_the_file_counts(machine: Machine) -> None:
    for name in ("loop0", "loop1"):
        machine.loop(name, "/images/one.img")
    machine.disk("dm-0")
    machine.hold("dm-0", "loop0", uuid="LVM-abc")
    assert machine.uses("loop1") == ["loop0, which holds the same bytes, is part of dm-0 (LVM)"]


def test_a_loop_device_over_a_disk_shares_what_lies_on_the_disk(machine: Machine) -> None:
    machine.disk("sda")
    machine.mount(machine.disk("sda1", of="sda"))
    machine.disk("sda2", of="sda")
    machine.loop("loop0", "/dev/sda")
    machine.loop("loop1", "/dev/sda2")
    assert machine.uses("loop0") == ["sda1 is mounted at /data"]
    assert machine.uses("loop1") == []


def test_an_unused_disk_is_free(machine: Machine) -> None:
    machine.disk("sda")
    machine.mount(machine.disk("sdb"))
    assert machine.uses("sda") == []


def test_a_mounted_disk_is_in_use(machine: Machine) -> None:
    machine.mount(machine.disk("sda"), "/mnt/with\\040blank")
    assert machine.uses("sda") == ["sda is mounted at /mnt/with blank"]
    assert block.mount_point_of("sda", machine.kernel) == "/mnt/with blank"


def test_a_mount_with_an_anonymous_number_is_seen_by_its_source(machine: Machine) -> None:
    machine.disk("sda")
    machine.mounts.append("40 1 0:45 /@ /data rw shared:1 - btrfs /dev/sda rw,subvol=/@")
    assert machine.uses("sda") == ["sda is mounted at /data"]


def test_the_disk_of_a_mounted_partition_is_in_use_and_its_sibling_is_free(machine: Machine) -> None:
    machine.disk("sda")
    machine.mount(machine.disk("sda1", of="sda"))
    machine.disk("sda2", of="sda")
    assert machine.uses("sda") == [
        "sda1 is mounted at /data",
        "it holds the partition sda1",
        "it holds the partition sda2",
    ]
    assert machine.uses("sda2") == []


def test_a_disk_with_partitions_is_refused_though_none_is_mounted(machine: Machine) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda")
    assert machine.uses("sda") == ["it holds the partition sda1"]
    assert machine.uses("sda1") == []


def test_a_partition_of_a_mounted_disk_is_in_use(machine: Machine) -> None:
    machine.mount(machine.disk("sda"))
    machine.disk("sda1", of="sda")
    assert machine.uses("sda1") == ["sda is mounted at /data"]


@pytest.mark.parametrize(
    ("holder", "uuid", "kind"),
    [
        ("dm-0", "LVM-abc", "LVM"),
        ("dm-1", "CRYPT-LUKS2-abc", "dm-crypt"),
        ("dm-2", "mpath-abc", "multipath"),
        ("md0", None, "MD RAID"),
    ],
)
def test_members_of_lvm_md_and_dm_are_in_use(machine: Machine, holder: str, uuid: str | None, kind: str) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda")
    machine.disk(holder)
    machine.hold(holder, "sda1", uuid=uuid)
    assert machine.uses("sda1") == [f"it is part of {holder} ({kind})"]
    assert "it holds the partition sda1" in machine.uses("sda")
    assert machine.uses(holder) == []


def test_a_mount_on_top_of_lvm_is_seen_from_the_disk_and_from_the_volume(machine: Machine) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda")
    machine.disk("dm-0")
    machine.hold("dm-0", "sda1", uuid="LVM-abc")
    machine.mount("dm-0", "/var")
    assert machine.uses("dm-0") == ["dm-0 is mounted at /var"]
    assert "dm-0 is mounted at /var" in machine.uses("sda")


def test_a_partition_of_a_raided_disk_is_in_use(machine: Machine) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda")
    machine.disk("md0")
    machine.hold("md0", "sda")
    assert machine.uses("sda1") == ["its disk sda is part of md0"]


def test_swap_space_is_in_use(machine: Machine) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda")
    machine.swaps.append("/dev/sda1                               partition\t8388604\t\t0\t\t-2")
    assert machine.uses("sda1") == ["sda1 is swap space"]
    assert "sda1 is swap space" in machine.uses("sda")


def test_a_loop_device_over_a_used_disk_or_swap_file_is_in_use(machine: Machine) -> None:
    machine.mount(machine.disk("sda"))
    machine.loop("loop0", "/dev/sda")
    machine.loop("loop1", "/swap file")
    machine.loop("loop2", "/images/disk.img")
    machine.swaps.append("/swap\\040file                               file\t8388604\t\t0\t\t-2")
    assert machine.uses("loop0") == ["sda is mounted at /data"]
    assert machine.uses("loop1") == ["loop1 lies over the swap file /swap file"]
    assert machine.uses("loop2") == []


def test_a_disk_under_a_loop_device_is_in_use(machine: Machine) -> None:
    machine.disk("sda")
    machine.loop("loop0", "/dev/sda")
    assert machine.uses("sda") == ["it is part of loop0 (a loop device)"]


def test_the_kernels_name_counts_not_the_path(machine: Machine) -> None:
    machine.disk("sda")
    machine.disk("sda1", of="sda", sectors=4096)
    device = block.device_of(Path("/tmp/some-node"), "8:2", machine.kernel)
    assert device == BlockDevice(Path("/tmp/some-node"), "sda1", 4096 * 512, 4096, 4096, None, False)


def test_an_unknown_number_is_refused(machine: Machine) -> None:
    machine.disk("sda")
    with pytest.raises(TierError, match="the kernel knows no block device 9:9"):
        block.device_of(Path("/dev/x"), "9:9", machine.kernel)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/dev/no-such-disk", "does not exist; 'lsblk' lists"),
        ("/dev/null", "is no block device"),
        (__file__, "is no block device"),
        ("/", "is no block device"),
    ],
)
def test_what_is_no_block_device_is_refused_and_not_created(machine: Machine, target: str, said: str) -> None:
    with pytest.raises(TierError, match=said):
        block.identify(target, machine.kernel)
    assert not Path("/dev/no-such-disk").exists()


def test_a_used_device_is_refused_with_the_directory_to_measure(machine: Machine) -> None:
    machine.mount(machine.disk("sda"), "/srv/kv")
    device = block.device_of(Path("/dev/sda"), "8:1", machine.kernel)
    with pytest.raises(TierError) as refused:
        block.require_unused(device, machine.kernel)
    assert str(refused.value) == (
        "/dev/sda is in use: sda is mounted at /srv/kv. Nothing was touched; measure the directory /srv/kv instead."
    )


DEVICE = BlockDevice(Path("/dev/nvme1n1"), "nvme1n1", 1 << 30, 512, 512, None, read_only=False)


@pytest.mark.parametrize("given", ["", "nvme1n1", "/dev/nvme1n1p1", "/dev/disk/by-id/nvme-x", "/dev/nvme1n1/"])
def test_only_the_resolved_path_is_consent(given: str) -> None:
    with pytest.raises(TierError, match="does not repeat the resolved path of the tier, /dev/nvme1n1; nothing was"):
        block.require_consent(DEVICE, [given])


def test_without_consent_reads_are_offered() -> None:
    with pytest.raises(TierError, match="--mix read, or repeat its path: --allow-destroy /dev/nvme1n1"):
        block.require_consent(DEVICE, [])


def test_the_resolved_path_is_consent() -> None:
    block.require_consent(DEVICE, ["/dev/sdz", "/dev/nvme1n1"])


HEADS = [
    (b"\0" * 512 + b"LABELONE" + b"\0" * 100, "LVM"),
    (b"\0" * 4096 + b"\xfc\x4e\x2b\xa9", "MD RAID"),
    (b"\xfc\x4e\x2b\xa9", "MD RAID"),
    (b"LUKS\xba\xbe\0\2", "LUKS"),
    (b"bluestore block device\n", "Ceph BlueStore"),
]


@pytest.mark.parametrize(("head", "member"), HEADS)
def test_a_member_that_is_not_assembled_is_refused(head: bytes, member: str) -> None:
    assert block.member_signature(head) == member
    with pytest.raises(TierError, match=f"carries a signature of {member}.*wipefs -a /dev/nvme1n1"):
        block.require_expendable(DEVICE, head, b"")


# A device of 100 MiB and 5 KiB: 1.0 lies on 4 KiB, 0.90 on 64 KiB, both counted from the start.
@pytest.mark.parametrize("offset", [(100 << 20) - 4096, (100 << 20) - (64 << 10)], ids=["1.0", "0.90"])
def test_an_md_superblock_at_the_end_is_seen(tmp_path: Path, offset: int) -> None:
    size = (100 << 20) + 5120
    path = tmp_path / "member"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(offset)
        file.write(b"\xfc\x4e\x2b\xa9")
    device = BlockDevice(path, "sdx", size, 512, 512, None, read_only=False)
    with pytest.raises(TierError, match="carries a signature of MD RAID"):
        block.require_expendable(device, *block.read_ends(device))


@pytest.mark.parametrize("head", [b"", b"\0" * block.HEAD_BYTES, b"XFSB" + b"\0" * 600])
def test_no_member_is_no_objection(head: bytes) -> None:
    assert block.member_signature(head) is None
    block.require_expendable(DEVICE, head, b"")


def test_a_read_only_device_cannot_be_written() -> None:
    with pytest.raises(TierError, match="is read-only; measure reads only"):
        block.require_expendable(BlockDevice(Path("/dev/sr0"), "sr0", 1, 512, 512, None, read_only=True), b"", b"")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"XFSB", "xfs"),
        (b"\0" * 1080 + b"\x53\xef", "ext2/3/4"),
        (b"\0" * 0x10040 + b"_BHRfS_M", "btrfs"),
        (b"\0" * 4086 + b"SWAPSPACE2", "swap"),
        (b"\0" * 512, None),
        (b"", None),
    ],
)
def test_file_systems_are_named(head: bytes, found: str | None) -> None:
    assert block.filesystem_signature(head) == found
