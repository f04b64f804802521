"""Writing the data set: many PUT requests at once, tried again when the service is busy, counted."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kvbench.drivers import OnRate
from kvbench.drivers.s3.client import ObjectClient, RequestFailed
from kvbench.drivers.s3.load import new_content
from kvbench.drivers.s3.objects import Objects
from kvbench.errors import MeasurementError
from kvbench.record.results import write_atomically
from kvbench.tiers.bucket import BucketSpace
from kvbench.units import format_bandwidth

EVIDENCE_NAME = "requests.json"

_WRITERS = 16
_TRIES = 6
_TICK_S = 0.5


def lay_out(client: ObjectClient, space: BucketSpace, sets: Sequence[Objects], folder: Path, on_rate: OnRate) -> None:
    """Write and prove every object that is to be read, with evidence in ``folder``; MeasurementError when one fails."""
    began = time.monotonic()
    repeated = write_objects(client, space, sets, on_rate)
    written = sum(len(objects.reads) for objects in sets)
    evidence = {"objects": written, "seconds": time.monotonic() - began, "repeated_requests": repeated}
    write_atomically(folder / EVIDENCE_NAME, json.dumps(evidence, indent=1) + "\n")
    for objects in sets:
        require_objects(space, objects)


def require_objects(space: BucketSpace, objects: Objects) -> None:
    """MeasurementError unless every object that will be read exists with its size: a LIST below our own prefix."""
    found = space.requests.sizes(objects.read_prefix)
    missing = [key for key in objects.reads if found.get(key) != objects.io_bytes]
    if missing:
        raise MeasurementError(
            f"{len(missing)} of {len(objects.reads)} objects of the data set are gone or have another size; look for a "
            "lifecycle rule or somebody who deletes, and measure again."
        )


def write_objects(client: ObjectClient, space: BucketSpace, sets: Sequence[Objects], on_rate: OnRate) -> int:
    """Write every object that is to be read; how many requests had to be repeated. MeasurementError when one fails."""
    wanted = [(key, objects.io_bytes) for objects in sets for key in objects.reads]
    # Written down before they exist: whatever happens, they are deleted.
    space.keys.update(key for key, _ in wanted)
    work: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for item in wanted:
        work.put(item)
    writers = [_Writer(client, work) for _ in range(min(_WRITERS, len(wanted)))]
    for writer in writers:
        writer.start()
    began = time.monotonic()
    try:
        while any(writer.is_alive() for writer in writers):
            writers[0].join(_TICK_S)
            on_rate(format_bandwidth(sum(writer.bytes for writer in writers) / (time.monotonic() - began)))
            if any(writer.failure for writer in writers):
                break
    finally:
        _settle(space, writers, work)
    failure = next((writer.failure for writer in writers if writer.failure), None)
    if failure is not None:
        raise MeasurementError(f"laying out the data set failed: {failure}.")
    return sum(writer.repeated for writer in writers)


class _Writer(threading.Thread):
    """Takes objects from the queue until it is empty or one of them cannot be written."""

    def __init__(self, client: ObjectClient, work: queue.SimpleQueue[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self._client, self._work = client, work
        self.bytes, self.repeated, self.failure = 0, 0, ""

    def run(self) -> None:
        with suppress(queue.Empty):
            while not self.failure:
                self._write(*self._work.get_nowait())

    def _write(self, key: str, size: int) -> None:
        content = new_content(size)
        for tried in range(_TRIES):
            try:
                self._client.put(key, content)
            except RequestFailed as error:
                if error.fatal or tried == _TRIES - 1:
                    self.failure = str(error)
                    return
                self.repeated += 1
                time.sleep(0.1 * 2**tried)
            else:
                self.bytes += size
                return


def _settle(space: BucketSpace, writers: Sequence[_Writer], work: queue.SimpleQueue[tuple[str, int]]) -> None:
    """Take back what nobody began, and wait a while for what is under way."""
    with suppress(queue.Empty):
        while True:
            work.get_nowait()
    deadline = time.monotonic() + 5.0
    for writer in writers:
        writer.join(max(0.0, deadline - time.monotonic()))
    if any(writer.is_alive() for writer in writers):
        space.unsettled.append("layout")
