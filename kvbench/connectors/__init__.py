"""What an inference engine's connector puts on storage: one file per connector, listed in CONNECTORS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kvbench.connectors import logical
from kvbench.connectors.stored import Group, Stored
from kvbench.errors import UsageError
from kvbench.layout.sized import SizedModel

__all__ = ["CONNECTORS", "DEFAULT_CONNECTOR", "Group", "Stored", "stored_layout"]

CONNECTORS: Mapping[str, Callable[[SizedModel], Stored]] = MappingProxyType({logical.NAME: logical.stored})
DEFAULT_CONNECTOR = logical.NAME


def stored_layout(sized: SizedModel, connector: str = DEFAULT_CONNECTOR) -> Stored:
    """What ``connector`` stores for ``sized``; UsageError that lists the known names for an unknown one."""
    make = CONNECTORS.get(connector)
    if make is None:
        raise UsageError(f"unknown connector {connector!r}; known: {', '.join(CONNECTORS)}.")
    return make(sized)
