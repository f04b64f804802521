"""A single-node Ceph (16.2, Debian 12) on loopback without systemd: mon, mgr, OSDs, MDS, RGW and a ceph-fuse mount.

Found out by trying, each costing an evening otherwise: auth=none kills the OSD at start ("wrong fsid"), so cephx with
one keyring; a client must be unmounted and gone before the MDS stops, or ceph-fuse lingers for ever; dead daemons may
stay as zombies where process 1 reaps nobody.
"""

from __future__ import annotations

import os
import secrets
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.lab.nanio import answers, free_port
from tests.lab.processes import mounted_below, pid_of, run, stop, unmount, wait_until
from tests.lab.s3 import make_bucket
from tests.lab.state import Ceph, LabError, Osd, S3Server

PACKAGES = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "radosgw", "ceph-common")
_PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "radosgw", "radosgw-admin")
_OSD_BYTES = 8 << 30
_DAEMON_WAIT_S = 90
_BUCKET = "kvbench"

_CONF = """\
[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{mon_port}
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr2 = false
keyring = {home}/keyring
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_allow_pool_delete = true
mon_max_pg_per_osd = 500
mon_data_avail_crit = 1
mon_data_avail_warn = 2
run_dir = {run}
pid_file = {run}/$name.pid
admin_socket = {run}/$name.$pid.asok
log_file = {log}/$name.log
crash_dir = {run}
exporter_sock_dir = {run}
[client]
log_file = /dev/null
pid_file =
[mon]
mon_data = {home}/mon
mon_cluster_log_file = {log}/cluster.log
[mgr]
mgr_data = {home}/mgr
mgr_initial_modules =
[osd]
osd_data = {home}/osd-$id
osd_objectstore = bluestore
bluestore_block_size = {osd_bytes}
bluestore_block_create = true
bluestore_fsck_on_mount = false
bluestore_cache_autotune = false
bluestore_cache_size = 268435456
osd_memory_target = 939524096
osd_class_update_on_start = true
[mds]
mds_data = {home}/mds
mds_cache_memory_limit = 134217728
[client.fuse]
log_file = {log}/fuse.log
pid_file = {run}/fuse.pid
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{rgw_port}
rgw_enable_usage_log = false
rgw_dns_name = 127.0.0.1
log_file = {log}/rgw.log
pid_file = {run}/rgw.pid
"""

_CAPABILITIES = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *", "mds", "allow *", "mgr", "allow *"),
    "mgr.x": ("mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"),
    "mds.a": ("mon", "allow profile mds", "osd", "allow *", "mds", "allow *", "mgr", "allow profile mds"),
    # p: may change layouts, which puts a directory into another pool.
    "client.fuse": ("mon", "allow r", "osd", "allow rw", "mds", "allow rwp"),
    "client.rgw": ("mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"),
}
_OSD_CAPABILITIES = ("mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where this cluster keeps its things."""

    root: Path

    @property
    def home(self) -> Path:
        """Data and configuration."""
        return self.root / "ceph"

    @property
    def conf(self) -> Path:
        """ceph.conf, the only one that any of its programs reads."""
        return self.home / "ceph.conf"

    @property
    def mount(self) -> Path:
        """Where ceph-fuse mounts CephFS."""
        return self.root / "cephfs"

    def pid_file(self, name: str) -> Path:
        """The pid file of a daemon such as ``osd.0``."""
        return self.root / "run" / f"{name}.pid"

    def log(self, name: str) -> Path:
        """What a daemon prints while it starts."""
        return self.root / "log" / f"{name}.out"

    def ask(self, *words: str | int) -> str:
        """The answer of ``ceph WORDS``."""
        return run(["ceph", "-c", self.conf, "--connect-timeout", "60", *map(str, words)])


def require() -> None:
    """LabError with the reason where Ceph cannot run."""
    if os.geteuid() != 0:
        raise LabError("Ceph's daemons and the mount need root")
    if not Path("/dev/fuse").exists():
        raise LabError("ceph-fuse needs /dev/fuse, which this host or container does not offer")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise LabError(f"{', '.join(missing)} missing; apt-get install --no-install-recommends {' '.join(PACKAGES)}")


def up(root: Path, osds: int) -> Ceph:
    """Start a fresh cluster below ``root``; LabError when a step fails, with what it said."""
    require()
    down(root)
    try:
        return _start(_Cluster(root), osds)
    except LabError:
        down(root)
        raise


def is_up(root: Path, ceph: Ceph) -> bool:
    """Whether every daemon runs and the file system is mounted."""
    cluster = _Cluster(root)
    names = ["mon.a", "mgr.x", "mds.a", "rgw", "fuse", *(f"osd.{osd.id}" for osd in ceph.osds)]
    return Path(ceph.mount).is_mount() and all(pid_of(cluster.pid_file(name)) for name in names)


def down(root: Path) -> None:
    """Unmount, stop the lab's daemons, remove their data."""
    cluster = _Cluster(root)
    for point in mounted_below(cluster.mount):
        unmount(point)
    # ceph-fuse ends by itself once it is unmounted.
    stop([cluster.pid_file("fuse")], grace_s=5, signals=False)
    osds = sorted(file.stem for file in (root / "run").glob("osd.*.pid"))
    stop([cluster.pid_file(name) for name in ("rgw", "mds.a", *osds, "mgr.x", "mon.a")], grace_s=3)
    if cluster.home.exists():
        shutil.rmtree(cluster.home)
    for file in (root / "run").glob("*.asok"):
        file.unlink()


def start_osd(osd: Osd) -> None:
    """Start an OSD again that was stopped."""
    run(osd.command, log=Path(osd.pid_file).with_suffix(".out"))


def _start(cluster: _Cluster, osds: int) -> Ceph:
    for folder in ("mon", "mgr", "mds", *(f"osd-{number}" for number in range(osds))):
        (cluster.home / folder).mkdir(parents=True)
    cluster.mount.mkdir(exist_ok=True)
    rgw_port = free_port()
    _start_monitor(cluster, rgw_port)
    started = [_start_osd(cluster, number) for number in range(osds)]
    if not wait_until(lambda: f"{osds} up" in cluster.ask("osd", "stat"), _DAEMON_WAIT_S, 0.5):
        raise LabError(f"the OSDs do not come up; see {cluster.root}/log")
    replicated = _start_file_system(cluster, two_copies=osds > 1)
    return Ceph(str(cluster.conf), str(cluster.mount), started, replicated, _start_gateway(cluster, rgw_port))


def _start_monitor(cluster: _Cluster, rgw_port: int) -> None:
    fsid, mon_port = str(uuid.uuid4()), free_port()
    values = {"home": cluster.home, "run": cluster.root / "run", "log": cluster.root / "log"}
    cluster.conf.write_text(
        _CONF.format(fsid=fsid, mon_port=mon_port, rgw_port=rgw_port, osd_bytes=_OSD_BYTES, **values)
    )
    keyring = cluster.home / "keyring"
    run(["ceph-authtool", "--create-keyring", keyring])
    for name, capabilities in _CAPABILITIES.items():
        _add_key(cluster, name, capabilities)
    monmap = cluster.home / "monmap"
    address = f"[v1:127.0.0.1:{mon_port}]"
    run(["monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", address, monmap])
    run(["ceph-mon", "--mkfs", "-i", "a", "-c", cluster.conf, "--monmap", monmap, "--keyring", keyring])
    run(["ceph-mon", "-i", "a", "-c", cluster.conf], log=cluster.log("mon"))
    cluster.ask("config", "set", "global", "mon_warn_on_insecure_global_id_reclaim_allowed", "false")
    run(["ceph-mgr", "-i", "x", "-c", cluster.conf], log=cluster.log("mgr"))


def _add_key(cluster: _Cluster, name: str, capabilities: tuple[str, ...]) -> None:
    pairs = zip(capabilities[::2], capabilities[1::2], strict=True)
    words = [word for service, allowed in pairs for word in ("--cap", service, allowed)]
    run(["ceph-authtool", cluster.home / "keyring", "--gen-key", "-n", name, *words])


def _start_osd(cluster: _Cluster, number: int) -> Osd:
    identity = str(uuid.uuid4())
    given = int(cluster.ask("osd", "new", identity))
    if given != number:
        raise LabError(f"the monitor calls OSD {number} {given}")
    # A key of its own, made by `osd new` too late for --mkfs: the shared keyring and the monitor must agree.
    _add_key(cluster, f"osd.{number}", _OSD_CAPABILITIES)
    cluster.ask("auth", "import", "-i", str(cluster.home / "keyring"))
    start = ["ceph-osd", "-i", str(number), "-c", str(cluster.conf)]
    run([*start, "--mkfs", "--osd-uuid", identity], log=cluster.log(f"osd.{number}"))
    run(start, log=cluster.log(f"osd.{number}"))
    return Osd(number, str(cluster.pid_file(f"osd.{number}")), start)


def _start_file_system(cluster: _Cluster, *, two_copies: bool) -> str | None:
    for pool in ("cephfs_meta", "cephfs_data"):
        cluster.ask("osd", "pool", "create", pool, 8)
    cluster.ask("fs", "new", "cephfs", "cephfs_meta", "cephfs_data")
    run(["ceph-mds", "-i", "a", "-c", cluster.conf], log=cluster.log("mds"))
    if not wait_until(lambda: "up:active" in cluster.ask("mds", "stat"), _DAEMON_WAIT_S, 0.5):
        raise LabError(f"the MDS does not become active; see {cluster.root}/log")
    mount: list[str | Path] = ["ceph-fuse", "-c", cluster.conf, "-n", "client.fuse", "--client_mountpoint=/"]
    run([*mount, cluster.mount], log=cluster.log("fuse"))
    return _add_replicated_directory(cluster) if two_copies else None


def _add_replicated_directory(cluster: _Cluster) -> str:
    pool, folder = "cephfs_two_copies", cluster.mount / "two-copies"
    cluster.ask("osd", "pool", "create", pool, 8)
    cluster.ask("osd", "pool", "set", pool, "size", 2)
    cluster.ask("fs", "add_data_pool", "cephfs", pool)
    folder.mkdir()

    def moved() -> bool:
        # The client learns of a new pool with its next map.
        try:
            os.setxattr(folder, "ceph.dir.layout.pool", pool.encode())
        except OSError:
            return False
        return True

    if not wait_until(moved, 20, 0.5):
        raise LabError(f"{folder} cannot be moved to the pool {pool}")
    return str(folder)


def _start_gateway(cluster: _Cluster, port: int) -> S3Server:
    run(["radosgw", "-c", cluster.conf, "-n", "client.rgw"], log=cluster.log("rgw"))
    if not wait_until(lambda: answers(port), _DAEMON_WAIT_S):
        raise LabError(f"radosgw does not answer; see {cluster.root}/log")
    server = S3Server(f"http://127.0.0.1:{port}", "KVBENCHLAB", secrets.token_hex(20), _BUCKET)
    keys = [f"--access-key={server.access_key}", f"--secret={server.secret_key}"]
    run(["radosgw-admin", "-c", cluster.conf, "user", "create", "--uid=kvbench", "--display-name=kvbench", *keys])
    make_bucket(server)
    return server
