"""What LMCache's connector asks for beyond the single key (lmcache/v1/storage_backend/, 0.5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.settings.finding import SettingsFinding, join
from kvbench.settings.reading import FoundSettings
from kvbench.settings.surroundings import check_seed

_DISK, _DISK_SIZE, _REMOTE = "lmcache.local_disk", "lmcache.max_local_disk_size", "lmcache.remote_url"
_WITH_SECRETS = ("aws_access_key_id", "aws_secret_access_key")


def check_lmcache(found: FoundSettings, extra: Mapping[str, Any], where: str) -> Iterator[SettingsFinding]:
    """What is wrong with kv_connector_extra_config of LMCacheConnectorV1."""
    if extra.get(_DISK) and not _above_zero(extra.get(_DISK_SIZE)):
        message = f"{_DISK} without {_DISK_SIZE}, whose default is 0: LMCache keeps nothing on disk"
        yield SettingsFinding(
            "error", "missing-key", join(where, _DISK_SIZE), message, "give the GiB that it may use", "ignores"
        )
    inner = extra.get("lmcache.extra_config")
    for name in _WITH_SECRETS:
        if isinstance(inner, dict) and inner.get(name):
            path = join(join(where, "lmcache.extra_config"), name)
            message = f"{name} holds a secret, and a command line can be read by everybody on the host"
            yield SettingsFinding("warning", "secret", path, message, "give it in LMCache's configuration file instead")
    if extra.get(_REMOTE):
        yield from check_seed(found, join(where, _REMOTE), "LMCache names chunks by a hash that starts from a seed")


def _above_zero(value: Any) -> bool:
    try:
        return float(value) > 0
    except (TypeError, ValueError):
        return False
