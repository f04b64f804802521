"""Everything that is wrong with a configuration, in the order of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.engines.vllm.releases import Release
from kvbench.settings.finding import SEVERITIES, SettingsFinding, join, shown
from kvbench.settings.fitting import Deployed, check_fit
from kvbench.settings.keys import EXTRA, OTHER_CONNECTORS, TRANSFER
from kvbench.settings.lmcache import check_lmcache
from kvbench.settings.offloading import check_offloading, check_simple
from kvbench.settings.reading import FoundSettings
from kvbench.settings.scopes import check_keys, nearest
from kvbench.settings.surroundings import check_surroundings

_EXTRA = "kv_connector_extra_config"


def check(found: FoundSettings, release: Release, deployed: Deployed | None = None) -> tuple[SettingsFinding, ...]:
    """The findings of one configuration, errors first; with a model also what contradicts its layout."""
    findings = list(_config(found, found.config, "", release, deployed))
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _config(
    found: FoundSettings, config: Mapping[str, Any], where: str, release: Release, deployed: Deployed | None
) -> Iterator[SettingsFinding]:
    yield from check_keys(TRANSFER, config, where, release)
    connector, extra = config.get("kv_connector"), config.get(_EXTRA)
    path = join(where, _EXTRA)
    if not isinstance(connector, str) or not connector:
        return
    if connector not in EXTRA:
        yield from _other_connector(connector, config, join(where, "kv_connector"))
        return
    extra = {} if extra is None else extra
    if not isinstance(extra, dict):
        return
    yield from _extra(found, connector, extra, path, release)
    if deployed is not None:
        yield from check_fit(connector, extra, path, deployed, found.options)
    if connector == "MultiConnector":
        children = extra.get("connectors")
        for number, child in enumerate(children if isinstance(children, list) else []):
            if isinstance(child, dict):
                yield from _config(found, child, f"{join(path, 'connectors')}[{number}]", release, deployed)


def _extra(
    found: FoundSettings, connector: str, extra: Mapping[str, Any], where: str, release: Release
) -> Iterator[SettingsFinding]:
    if connector == "OffloadingConnector":
        yield from check_offloading(extra, where, release)
        yield from check_surroundings(found, extra, where, release)
        return
    yield from check_keys(EXTRA[connector], extra, where, release)
    if connector == "SimpleCPUOffloadConnector" and release.has("disk-backend"):
        yield from check_simple(extra, where)
    elif connector == "LMCacheConnectorV1":
        yield from check_lmcache(found, extra, where)


def _other_connector(connector: str, config: Mapping[str, Any], where: str) -> Iterator[SettingsFinding]:
    if connector in OTHER_CONNECTORS or config.get("kv_connector_module_path"):
        message = f"the keys of {shown(connector)} are not known here, so only those around it were checked"
        yield SettingsFinding("note", "unchecked", where, message, "check them in its own documentation")
        return
    close = nearest(connector, (*EXTRA, *OTHER_CONNECTORS))
    message = f"{shown(connector)!r} is no connector of vLLM's: the engine does not start"
    hint = f"did you mean {close!r}?" if close else "add kv_connector_module_path, the module that holds it"
    yield SettingsFinding("error", "wrong-value", where, message, hint, "refuses")
