"""Python's S3 clients side by side: rate, latency and CPU for whole objects, in alternated rounds against one service.

    python benchmarks/s3_clients.py s3://bucket/prefix [--size 2359296] [--threads 4] [--seconds 4] [--rounds 3]

The endpoint and the keys come from the AWS variables. A client that is not installed is skipped: pip install boto3
obstore aiobotocore awscrt minio. Everything is written below a prefix of this run's own and deleted. Every client gets
no retries, keep-alive and path addressing, and a body that is signed as it does by itself over the endpoint's scheme.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kvbench.drivers.s3.client import ObjectClient
from kvbench.tiers.bucket import BucketSpace, inspect
from kvbench.tiers.endpoint import S3Endpoint, from_environment

OBJECTS = 32
CLIENTS = ("obstore", "boto3", "aiobotocore", "awscrt", "minio")
Request = Callable[[str], object]
Row = dict[str, float]
Rows = dict[tuple[str, str], list[Row]]


def main() -> None:
    """Alternate the clients and print each as a ratio to obstore; as a child: one client, one way, JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--size", type=int, default=2_359_296)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("CLIENT", "WAY", "PREFIX"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        client, way, prefix = chosen.one
        keys = object_keys(prefix)
        print(json.dumps(one_client(client, way, chosen.target, keys, chosen.size, chosen.threads, chosen.seconds)))
        return
    present = [name for name in CLIENTS if importlib.util.find_spec(name)]
    print(f"skipped, not installed: {', '.join(set(CLIENTS) - set(present)) or 'none'}")
    with own_objects(chosen.target, chosen.size) as prefix:
        asked = [chosen.target, "--size", chosen.size, "--threads", chosen.threads, "--seconds", chosen.seconds]
        rows = alternate(present, chosen.rounds, lambda name, way: child(__file__, *asked, "--one", name, way, prefix))
    show(rows, present, base="obstore")


def own_objects(target: str, size: int) -> Any:
    """A context: a prefix of our own with OBJECTS objects, deleted at the end."""
    from contextlib import contextmanager

    @contextmanager
    def made() -> Any:
        tier = inspect("benchmark", target)
        with tempfile.TemporaryDirectory() as folder, tier.workspace(Path(folder)) as space:
            assert isinstance(space, BucketSpace)
            client = ObjectClient(tier)
            for key in object_keys(space.prefix):
                client.put(key, os.urandom(size))
            yield space.prefix

    return made()


def object_keys(prefix: str) -> list[str]:
    """The keys that every client reads and overwrites."""
    return [f"{prefix}object-{number}" for number in range(OBJECTS)]


def alternate(names: Sequence[str], rounds: int, measure: Callable[[str, str], Row]) -> Rows:
    """Every name and way in every round, the order turned round each time; what fails once is left out and named."""
    rows: Rows = {}
    failed: set[str] = set()
    for number in range(rounds):
        for way in ("read", "write"):
            for name in names if number % 2 == 0 else reversed(names):
                if name in failed:
                    continue
                try:
                    rows.setdefault((name, way), []).append(measure(name, way))
                except subprocess.CalledProcessError as error:
                    print(f"{name}: left out, it failed: {error.stderr.strip().splitlines()[-1][:200]}")
                    failed.add(name)
    return {key: found for key, found in rows.items() if key[0] not in failed}


def show(rows: Rows, names: Sequence[str], base: str) -> None:
    """Medians over the rounds, and ratios to ``base``."""
    print(f"{'':14} {'':6} {'MiB/s':>7} {'p50 ms':>8} {'p99 ms':>8} {'CPU s/GiB':>10}   ratio of rate, p50, p99, CPU")
    for way in ("read", "write"):
        reference = medians(rows[base, way])
        for name in [name for name in names if (name, way) in rows]:
            found = medians(rows[name, way])
            ratios = "  ".join(f"{found[key] / reference[key]:5.2f}" for key in found)
            print(
                f"{name:14} {way:6} {found['mib_per_s']:7.0f} {found['p50_ms']:8.2f} {found['p99_ms']:8.2f} "
                f"{found['cpu_s_per_gib']:10.2f}   {ratios}"
            )


def medians(rows: Sequence[Row]) -> Row:
    """The median of every number over the rounds."""
    return {key: sorted(row[key] for row in rows)[len(rows) // 2] for key in rows[0]}


def child(*words: object) -> Row:
    """The JSON that a child of this benchmark prints."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=True)
    found: Row = json.loads(done.stdout)
    return found


def row_of(latencies_s: Sequence[float], size: int, seconds: float, cpu_s: float) -> Row:
    """The numbers of one round."""
    ordered, gib = sorted(latencies_s), len(latencies_s) * size / 2**30
    return {
        "mib_per_s": gib * 1024 / seconds,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
        "cpu_s_per_gib": cpu_s / gib,
    }


def cpu_s() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def one_client(client: str, way: str, target: str, keys: list[str], size: int, threads: int, seconds: float) -> Row:
    """One round of one client."""
    tier = inspect("benchmark", target)
    found = from_environment(os.environ, Path.home())
    if client == "aiobotocore":
        return asyncio.run(_asynchronous(found, tier.bucket, way, keys, size, threads, seconds))
    make = {"obstore": _obstore, "boto3": _boto3, "awscrt": _awscrt, "minio": _minio}[client]
    return threaded(make(found, tier.bucket, way, size), keys, size, threads, seconds)


def threaded(request: Request, keys: list[str], size: int, threads: int, seconds: float) -> Row:
    """A thread for each request in flight."""
    latencies: list[float] = []
    request(keys[0])
    before, began = cpu_s(), time.perf_counter()

    def work(at: int) -> None:
        while time.perf_counter() < began + seconds:
            start = time.perf_counter()
            request(keys[at % len(keys)])
            latencies.append(time.perf_counter() - start)
            at += 7

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return row_of(latencies, size, time.perf_counter() - began, cpu_s() - before)


def _keys() -> dict[str, str]:
    return {
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }


def _whole(got: int, size: int) -> None:
    if got != size:
        raise SystemExit(f"an object of {size} bytes came back with {got}")


def _obstore(found: S3Endpoint, bucket: str, way: str, size: int) -> Request:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        bucket,
        endpoint=found.url,
        region=found.region,
        unsigned_payload=found.encrypted,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "http1_only": True},
        retry_config={"max_retries": 0},
    )
    body = os.urandom(size)
    if way == "write":
        return lambda key: obstore.put(store, key, body, use_multipart=False)
    return lambda key: _whole(len(obstore.get(store, key).bytes()), size)


def _boto_options(config: Any) -> Any:
    return config(
        max_pool_connections=256,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )


def _boto3(found: S3Endpoint, bucket: str, way: str, size: int) -> Request:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=found.url, region_name=found.region, config=_boto_options(Config), **_keys()
    )
    body = os.urandom(size)
    if way == "write":
        return lambda key: client.put_object(Bucket=bucket, Key=key, Body=body)
    return lambda key: _whole(len(client.get_object(Bucket=bucket, Key=key)["Body"].read()), size)


async def _asynchronous(
    found: S3Endpoint, bucket: str, way: str, keys: list[str], size: int, tasks: int, seconds: float
) -> Row:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    latencies: list[float] = []
    options = {"endpoint_url": found.url, "region_name": found.region, "config": _boto_options(AioConfig), **_keys()}
    async with get_session().create_client("s3", **options) as client:
        body = os.urandom(size)

        async def put(key: str) -> None:
            await client.put_object(Bucket=bucket, Key=key, Body=body)

        async def get(key: str) -> None:
            answer = await client.get_object(Bucket=bucket, Key=key)
            async with answer["Body"] as stream:
                _whole(len(await stream.read()), size)

        request: Callable[[str], Awaitable[None]] = put if way == "write" else get
        await request(keys[0])
        before, began = cpu_s(), time.perf_counter()

        async def work(at: int) -> None:
            while time.perf_counter() < began + seconds:
                start = time.perf_counter()
                await request(keys[at % len(keys)])
                latencies.append(time.perf_counter() - start)
                at += 7

        await asyncio.gather(*(work(number) for number in range(tasks)))
        return row_of(latencies, size, time.perf_counter() - began, cpu_s() - before)


def _minio(found: S3Endpoint, bucket: str, way: str, size: int) -> Request:
    import io

    import urllib3
    from minio import Minio

    scheme, _, host = found.url.partition("://")
    keys = _keys()
    client = Minio(
        host,
        access_key=keys["aws_access_key_id"],
        secret_key=keys["aws_secret_access_key"],
        secure=scheme == "https",
        http_client=urllib3.PoolManager(maxsize=256, retries=False),
    )
    body = os.urandom(size)

    def read(key: str) -> None:
        answer = client.get_object(bucket, key)
        _whole(len(answer.read()), size)
        answer.release_conn()

    return (lambda key: client.put_object(bucket, key, io.BytesIO(body), size)) if way == "write" else read


def _awscrt(found: S3Endpoint, bucket: str, way: str, size: int) -> Request:
    import io

    from awscrt.auth import AwsCredentialsProvider
    from awscrt.http import HttpHeaders, HttpRequest
    from awscrt.io import ClientBootstrap, DefaultHostResolver, EventLoopGroup
    from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType

    keys, loops = _keys(), EventLoopGroup(2)
    client = S3Client(
        bootstrap=ClientBootstrap(loops, DefaultHostResolver(loops)),
        region=found.region,
        credential_provider=AwsCredentialsProvider.new_static(keys["aws_access_key_id"], keys["aws_secret_access_key"]),
        tls_mode=S3RequestTlsMode.ENABLED if found.encrypted else S3RequestTlsMode.DISABLED,
        part_size=max(size, 8 << 20),
    )
    host, body = found.url.partition("://")[2], os.urandom(size)

    def write(key: str) -> None:
        headers = HttpHeaders([("host", host), ("content-length", str(size))])
        request = HttpRequest("PUT", f"/{bucket}/{key}", headers, io.BytesIO(body))
        client.make_request(request=request, type=S3RequestType.PUT_OBJECT).finished_future.result()

    def read(key: str) -> None:
        came = 0

        def take(chunk: bytes, offset: int, **named: object) -> None:
            nonlocal came
            came += len(chunk)

        request = HttpRequest("GET", f"/{bucket}/{key}", HttpHeaders([("host", host)]))
        client.make_request(request=request, type=S3RequestType.GET_OBJECT, on_body=take).finished_future.result()
        _whole(came, size)

    return write if way == "write" else read


if __name__ == "__main__":
    main()
