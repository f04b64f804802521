"""The forms in which a configuration is handed over: a command line, JSON, and a Kubernetes pod's part."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from kvbench.settings.reading import FLAG
from kvbench.settings.writing import Written

_MIB = 1 << 20
# What else the engine and its libraries keep in /dev/shm (NCCL, the executor's message queue).
_SPARE_MIB = 1024


def command_line(written: Written, model: str) -> str:
    """One line for a POSIX shell that serves ``model`` with the configuration."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in written.environment.items()]
    return " ".join([*variables, shlex.join(["vllm", "serve", *_arguments(written, model)])])


def as_json(written: Written, _: str = "") -> str:
    """The configuration as indented JSON."""
    return json.dumps(written.config, indent=2, allow_nan=False)


def kubernetes(written: Written, model: str) -> str:
    """The part of a pod's spec that serves ``model``: one container, and shared memory for the CPU tier."""
    container: dict[str, Any] = {
        "name": "vllm",
        "command": ["vllm", "serve"],
        # The kubelet expands $(NAME) in arguments, and makes $$ one dollar again.
        "args": [word.replace("$", "$$") for word in _arguments(written, model)],
    }
    if written.environment:
        container["env"] = [{"name": name, "value": value} for name, value in written.environment.items()]
    spec: dict[str, Any] = {"containers": [container]}
    if written.shared_memory_bytes:
        container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
        size = f"{-(-written.shared_memory_bytes // _MIB) + _SPARE_MIB}Mi"
        spec["volumes"] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return yaml.safe_dump(spec, sort_keys=False, width=1 << 20)


def _arguments(written: Written, model: str) -> list[str]:
    compact = json.dumps(written.config, separators=(",", ":"), allow_nan=False)
    return [model, *written.options, FLAG, compact]


FORMS: Mapping[str, Callable[[Written, str], str]] = MappingProxyType(
    {"shell": command_line, "json": as_json, "kubernetes": kubernetes}
)
