"""Where the lab lives and what runs in it: one directory, one lab.json."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LAB_VARIABLE = "KVBENCH_LAB"
DEFAULT_ROOT = "/tmp/kvbench-lab"
STATE_NAME = "lab.json"
MARKER_NAME = ".kvbench-lab"


class LabError(Exception):
    """A part of the lab cannot run here; the text is the reason and the next step."""


@dataclass(frozen=True, slots=True)
class Osd:
    """One object storage daemon: its id, its pid file and the command that starts it again."""

    id: int
    pid_file: str
    command: list[str]


@dataclass(frozen=True, slots=True)
class S3Server:
    """An S3 endpoint on loopback and the keys of its only user; the bucket exists."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str


@dataclass(frozen=True, slots=True)
class LlmServer:
    """An OpenAI-compatible server on loopback and the only model that it serves; 0 where its process is not known."""

    url: str
    model: str
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Ceph:
    """A running cluster. ``replicated`` is a directory below ``mount`` whose pool keeps two copies (two OSDs)."""

    conf: str
    mount: str
    osds: list[Osd]
    replicated: str | None
    rgw: S3Server


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop device over a file of the lab; ``mount`` is its XFS, None for a raw device."""

    device: str
    backing_file: str
    sector_bytes: int
    mount: str | None


@dataclass(frozen=True, slots=True)
class Lab:
    """What runs; ``missing`` says for every part that does not run why."""

    root: str
    ceph: Ceph | None = None
    nanio: S3Server | None = None
    loops: list[Loop] = field(default_factory=list)
    llm: LlmServer | None = None
    missing: dict[str, str] = field(default_factory=dict)


def lab_root() -> Path:
    """The lab's directory: $KVBENCH_LAB, or a fixed place below /tmp."""
    return Path(os.environ.get(LAB_VARIABLE) or DEFAULT_ROOT).resolve()


def claim(root: Path) -> None:
    """Create the lab's directory, or take over one that carries its marker; LabError for anybody else's."""
    marker = root / MARKER_NAME
    if not root.exists():
        root.mkdir(mode=0o711, parents=True)
    elif root.stat().st_uid != os.geteuid() or (any(root.iterdir()) and not marker.is_file()):
        raise LabError(f"{root} exists and is no lab; name an empty directory with {LAB_VARIABLE}.")
    marker.touch()


def save(lab: Lab) -> None:
    """Write lab.json, readable by this user only: it holds the keys of the lab's servers."""
    path = Path(lab.root) / STATE_NAME
    path.touch(mode=0o600)
    path.write_text(json.dumps(asdict(lab), indent=1) + "\n")


def load(root: Path) -> Lab | None:
    """The lab that was started below ``root``, or None."""
    try:
        data = json.loads((root / STATE_NAME).read_text())
    except (FileNotFoundError, PermissionError):
        return None
    return Lab(
        root=data["root"],
        ceph=_ceph(data["ceph"]) if data["ceph"] else None,
        nanio=S3Server(**data["nanio"]) if data["nanio"] else None,
        loops=[Loop(**item) for item in data["loops"]],
        llm=LlmServer(**data["llm"]) if data.get("llm") else None,
        missing=data["missing"],
    )


def _ceph(data: dict[str, Any]) -> Ceph:
    osds = [Osd(**item) for item in data["osds"]]
    return Ceph(data["conf"], data["mount"], osds, data["replicated"], S3Server(**data["rgw"]))
