"""A stand-in for the fio program: put on PATH as ``fio``, it writes canned results and can misbehave on request.

FAKE_FIO_LOG gets a line for every call: what was asked (version, parse, run) and the job's name. FAKE_FIO_BEHAVIOUR is
a JSON object from a part of a job's name to what happens to it: an errno (fio reports it), ``truncated``, ``silent``
(no output file), ``hang`` (until a signal), ``stuck`` (ignores SIGTERM), ``die`` (SIGKILL to itself), ``short`` (ended
early), ``no-io`` (valid result without I/O), ``few`` (a hundredth of the I/O), ``refused`` (--parse-only fails).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

Options = dict[str, str]

VERSION = os.environ.get("FAKE_FIO_VERSION", "fio-3.33")
BEHAVIOUR: dict[str, str | int] = json.loads(os.environ.get("FAKE_FIO_BEHAVIOUR", "{}"))


def main(arguments: list[str]) -> int:
    if "--version" in arguments:
        log("version")
        print(VERSION)
        return 0
    sections = read_job(Path(arguments[-1]))
    options = sections.pop("global", {})
    # What finds the pace of stores is not logged, and does as told only where it is named.
    pacing = any(name.endswith("-pace") for name in sections)
    if "--parse-only" in arguments:
        if not pacing:
            log("parse " + " ".join(sections))
        if any(behaviour_of(name) == "refused" for name in sections):
            print("fio: bad option <nonsense=1>", file=sys.stderr)
            return 1
        return 0
    output = Path(next(text for text in arguments if text.startswith("--output=")).partition("=")[2])
    # Sections of one group are one job under the first one's name (group_reporting).
    (name, own), *others = sections.items()
    assert [other for other, _ in others] in ([], [name + "-stores"]), "kvbench runs one point at a time"
    if not pacing:
        log("run " + name)
    options = options | own | ({"beside": others[0][1]["numjobs"]} if others else {})
    if name == "layout":
        lay_out(options)
    return act(behaviour_of(name), name, options, output)


def read_job(path: Path) -> dict[str, Options]:
    sections: dict[str, Options] = {}
    current: Options = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line:
            key, _, value = line.partition("=")
            current[key] = value
    return sections


def behaviour_of(name: str) -> str | int:
    if name.endswith("-pace"):
        return BEHAVIOUR.get("pace", "ok")
    return next((what for part, what in BEHAVIOUR.items() if part in name), "ok")


def lay_out(options: Options) -> None:
    for number in range(int(options["numjobs"])):
        path = Path(options["directory"].replace("\\:", ":")) / f"kvbench.{number}"
        with path.open("wb") as file:
            file.truncate(int(options["size"]))


def act(behaviour: str | int, name: str, options: Options, output: Path) -> int:
    if behaviour == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "silent":
        print("fio: engine libaio not loadable", file=sys.stderr)
        return 1
    if behaviour in ("hang", "stuck"):
        hang(behaviour, name, options, output)
    text = document(name, options, behaviour)
    if behaviour == "truncated":
        text = text[: len(text) // 2]
    output.write_text(text)
    return 1 if isinstance(behaviour, int) else 0


def hang(behaviour: str | int, name: str, options: Options, output: Path) -> None:
    def on_signal(number: int, frame: object) -> None:
        log("signal " + name)
        if behaviour == "hang":
            output.write_text("\nfio: terminating on signal 15\n" + document(name, options, "short"))
            sys.exit(128)

    signal.signal(signal.SIGTERM, on_signal)
    log("hanging " + name)
    while True:
        time.sleep(0.05)


def document(name: str, options: Options, behaviour: str | int) -> str:
    runtime_ms = 500 if behaviour == "short" else int(options.get("runtime", "1")) * 1000
    error = behaviour if isinstance(behaviour, int) else 0
    scale = 100 if behaviour == "few" else 1
    reads = 0 if behaviour == "no-io" or options["rw"].endswith("write") else 3000 // scale
    alone = options["rw"].endswith("read") and "beside" not in options
    writes = 0 if behaviour == "no-io" or alone else 1000 // scale
    job = {
        "jobname": name,
        "groupid": 0,
        "error": error,
        "job options": options,
        "read": direction(reads, options, runtime_ms),
        "write": direction(writes, options, runtime_ms),
        "iodepth_level": {"1": 100.0},
    }
    preamble = f"fio: pid=1, err={error}/file:engines/x.c:1, error=something\n" if error else ""
    return preamble + json.dumps({"fio version": VERSION, "global options": {}, "jobs": [job]}, indent=2) + "\n"


def direction(ios: int, options: Options, runtime_ms: int) -> dict[str, Any]:
    block = int(options["bs"])
    if not ios:
        return {"io_bytes": 0, "total_ios": 0, "bw_bytes": 0, "iops": 0.0, "runtime": 0}
    # Keep Little's law: jobs = rate x mean latency.
    mean_ns = int(options["numjobs"]) * runtime_ms * 1_000_000 // (ios * 4 // 3 if options["rw"] == "randrw" else ios)
    latency: dict[str, Any] = {
        "min": mean_ns,
        "max": mean_ns,
        "mean": float(mean_ns),
        "N": ios,
        "bins": {str(mean_ns): ios},
    }
    latency["percentile"] = {"50.000000": mean_ns, "99.000000": mean_ns}
    return {
        "io_bytes": ios * block,
        "total_ios": ios,
        "bw_bytes": ios * block * 1000 // runtime_ms,
        "iops": ios * 1000 / runtime_ms,
        "runtime": runtime_ms,
        "lat_ns": latency,
    }


def log(text: str) -> None:
    with Path(os.environ["FAKE_FIO_LOG"]).open("a") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
