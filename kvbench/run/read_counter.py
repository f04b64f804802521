"""The user's counter of bytes that the storage has read (``--read-counter``), for tiers without a device on this host.

A Ceph cluster's is the sum of ``op_r_out_bytes`` over ``ceph tell osd.* perf dump`` (Ceph 16.2).
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from kvbench.errors import MeasurementError

_TIMEOUT_S = 60.0


def read_counter(command: tuple[str, ...], folder: Path) -> int:
    """Bytes that the command prints as a whole number in its last line; MeasurementError when it does not.

    Run without a shell and without input; only the number is kept, so nothing that it prints reaches the record.
    """
    shown = shlex.quote(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise MeasurementError(f"--read-counter {shown} cannot be started ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"--read-counter {shown} did not end within {_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise MeasurementError(f"--read-counter {shown} ended with exit code {done.returncode}")
    last = (done.stdout.strip().splitlines() or [""])[-1].strip()
    if not last.isascii() or not last.isdecimal():
        raise MeasurementError(f"--read-counter {shown} must print a whole number of bytes in its last line")
    return int(last)
