"""One thin file per command. COMMANDS lists them in the order of ``--help`` as name -> ``module:function``.

The modules are named, not imported: a call loads only the command that it runs. Each module has a HELP text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "blocksize": "blocksize:blocksize",
        "models": "models:models",
        "jobs": "jobs:jobs",
        "fio": "fio:fio",
        "measure": "fio:fio",
        "import": "import_:import_",
        "prefill": "prefill:prefill",
        "crossover": "crossover:crossover",
        "trace": "trace:trace",
        "workingset": "workingset:workingset",
        "settings": "settings:settings",
        "diff": "diff:diff",
        "report": "report:report",
        "gate": "gate:gate",
        "doctor": "doctor:doctor",
        "clean": "clean:clean",
    }
)
