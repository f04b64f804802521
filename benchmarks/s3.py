"""The s3 driver against fio's http engine and a bare loop of its client: rate, latency, CPU, in alternated rounds.

    python -m benchmarks.s3 s3://bucket/prefix [--size 2359296] [--threads 4] [--seconds 5] [--rounds 3]

The endpoint and the keys come from the AWS variables. Debian's fio lacks the http engine; where it can be had (a fio
built with libcurl, or the engine alone as a file called ``http`` on LD_LIBRARY_PATH) it takes part, else it is skipped.
Each way reads objects that exist (fio its own: it names them itself) and overwrites the same ones. fio's output, which
holds the keys, goes through a pipe and is not kept. Aim: at least fio's rate, at most 1.5 times its CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.s3_clients import Row, alternate, child, cpu_s, object_keys, own_objects, show
from kvbench.drivers.s3.client import ObjectClient
from kvbench.drivers.s3.load import Load, new_content
from kvbench.drivers.s3.objects import Objects
from kvbench.record.recorder import Recorder, direction_of, histograms_of
from kvbench.tiers.bucket import inspect
from kvbench.tiers.endpoint import from_environment

_OBJECTS_EACH = 16


def main() -> None:
    """Alternate the ways and print ratios to fio's engine, or to the bare loop without it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--size", type=int, default=2_359_296)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("NAME", "WAY", "PREFIX"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        _, way, prefix = chosen.one
        print(json.dumps(driver_round(chosen.target, way, prefix, chosen.size, chosen.threads, chosen.seconds)))
        return
    loop = Path(__file__).with_name("s3_clients.py")
    asked = [chosen.target, "--size", chosen.size, "--threads", chosen.threads, "--seconds", chosen.seconds]
    has_fio = fio_has_http()
    names = ["s3 driver", "bare obstore", *(["fio http"] if has_fio else [])]
    with own_objects(chosen.target, chosen.size) as prefix:

        def measure(name: str, way: str) -> Row:
            if name == "fio http":
                return fio_round(chosen.target, way, prefix, chosen.size, chosen.threads, chosen.seconds)
            if name == "s3 driver":
                return child(__file__, *asked, "--one", name, way, prefix)
            return child(loop, *asked, "--one", "obstore", way, prefix)

        if has_fio:
            fio_round(chosen.target, "layout", prefix, chosen.size, chosen.threads, chosen.seconds)
        else:
            print("fio http: skipped, the installed fio has no such engine")
        rows = alternate(names, chosen.rounds, measure)
    show(rows, names, base="fio http" if has_fio else "bare obstore")


def driver_round(target: str, way: str, prefix: str, size: int, threads: int, seconds: float) -> Row:
    """One round of the driver itself, in this process."""
    keys = tuple(object_keys(prefix))
    recorders = [Recorder() for _ in range(threads)]
    load = Load(
        ObjectClient(inspect("t", target)), Objects(size, keys, keys), recorders, 100 if way == "read" else 0, seed=1
    )
    # The driver has loaded numpy by the time of a round: it wrote the data set.
    new_content(size)
    before = cpu_s()
    ended = load.run(seconds, lambda so_far: None)
    used = cpu_s() - before
    side = direction_of(recorders, "read" if way == "read" else "write", ended.seconds)
    if side is None or ended.failure:
        raise SystemExit(f"the driver made no request: {ended.failure}")
    latencies = histograms_of(recorders)["read" if way == "read" else "write"]
    return {
        "mib_per_s": side.bytes_per_s / 2**20,
        "p50_ms": latencies.percentile(50) / 1e6,
        "p99_ms": latencies.percentile(99) / 1e6,
        "cpu_s_per_gib": used / (side.bytes / 2**30),
    }


def fio_has_http() -> bool:
    """Whether ``fio`` can load its http engine."""
    try:
        done = subprocess.run(["fio", "--enghelp=http"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return "http_host" in done.stdout


def fio_round(target: str, way: str, prefix: str, size: int, threads: int, seconds: float) -> Row:
    """One round of fio's http engine; the keys reach it through its environment, the job through its stdin."""
    found, tier = from_environment(os.environ, Path.home()), inspect("t", target)
    job = f"""[global]
ioengine=http
http_mode=s3
http_host={urlsplit(found.url).netloc}
https={"on" if found.encrypted else "off"}
http_s3_region={found.region}
http_s3_keyid=${{AWS_ACCESS_KEY_ID}}
http_s3_key=${{AWS_SECRET_ACCESS_KEY}}
filename_format=/{tier.bucket}/{prefix}fio-$jobnum
bs={size}
size={size * _OBJECTS_EACH}
numjobs={threads}
group_reporting
lat_percentiles=1
refill_buffers
[{way}]
rw={"randread" if way == "read" else "write" if way == "layout" else "randwrite"}
"""
    if way != "layout":
        job += f"time_based\nruntime={seconds:.0f}\n"
    before, began = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(["fio", "--output-format=json", "-"], input=job, capture_output=True, text=True, check=False)
    used = _children_cpu_s() - before
    if done.returncode:
        raise SystemExit(f"fio ended with {done.returncode} after {time.perf_counter() - began:.0f} s")
    document = json.loads(done.stdout[done.stdout.index("{") :])
    side = document["jobs"][0]["read" if way == "read" else "write"]
    percentiles = side["lat_ns"]["percentile"]
    return {
        "mib_per_s": side["bw_bytes"] / 2**20,
        "p50_ms": percentiles["50.000000"] / 1e6,
        "p99_ms": percentiles["99.000000"] / 1e6,
        "cpu_s_per_gib": used / (side["io_bytes"] / 2**30),
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
