"""Who else may rename what kvbench makes on a tier: the directory and its parents, up to where it is mounted."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from kvbench.tiers.mounts import Mount


def shared_by(path: Path, mount: Mount | None) -> str | None:
    """Why others can rename what is below ``path`` (resolved), as a sentence without a full stop, or None.

    A mount point itself cannot be renamed, so what is above it does not count.
    """
    top = Path("/") if mount is None else Path(mount.mount_point)
    below = [place for place in (path, *path.parents) if place.is_relative_to(top)]
    found = ((place, _who_renames_in(place.stat())) for place in below)
    return next((f"{place} {why}" for place, why in found if why is not None), None)


def _who_renames_in(status: os.stat_result) -> str | None:
    """Who may rename entries of a directory beside root and this user, as a predicate; None for nobody."""
    owner = status.st_uid
    if owner not in (0, os.geteuid()):
        return f"belongs to user {_user(owner) or owner}"
    # In a sticky directory only an entry's owner renames it, beside the directory's owner and root (unlink(2), EPERM).
    if status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "may be written by everybody and has no sticky bit"
    if status.st_mode & stat.S_IWGRP and not _is_ours_alone(status.st_gid):
        return f"may be written by its group {_group(status.st_gid)} and has no sticky bit"
    return None


def _is_ours_alone(group_id: int) -> bool:
    """Whether a group has no member beside this user, as far as the system says.

    That is a user's own group, of the same name, or one of this process that has no entry, as the fsGroup of a pod.
    """
    try:
        group = grp.getgrgid(group_id)
    except KeyError:
        return group_id in (os.getegid(), *os.getgroups())
    user = _user(os.geteuid())
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _user(user_id: int) -> str | None:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return None


def _group(group_id: int) -> str:
    try:
        return grp.getgrgid(group_id).gr_name
    except KeyError:
        return str(group_id)
