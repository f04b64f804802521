"""``kvbench jobs``: the fio job file, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvbench.commands.options import (
    AccessOption,
    BlockTokensOption,
    BuffersOption,
    ConnectorOption,
    DatasetOption,
    EngineVersionOption,
    FioLayoutOption,
    GpuArchOption,
    KvDtypeOption,
    MixOption,
    ModelOption,
    NumjobsOption,
    PublishedOption,
    ReadShareOption,
    RuntimeOption,
    TpOption,
    parse_tier,
)

HELP = "Print the fio job file for a tier, without running it."


def jobs(
    tier: Annotated[str, typer.Option("--tier", metavar="T", help="The directory that the job would measure.")],
    model: ModelOption = None,
    tp: TpOption = 1,
    kv_dtype: KvDtypeOption = "auto",
    block_tokens: BlockTokensOption = 16,
    connector: ConnectorOption = None,
    engine_version: EngineVersionOption = None,
    gpu_arch: GpuArchOption = "sm90",
    mix: MixOption = "mixed,read,write",
    rwmixread: ReadShareOption = 75,
    numjobs: NumjobsOption = None,
    runtime: RuntimeOption = "auto",
    dataset: DatasetOption = None,
    access: AccessOption = "random",
    published: PublishedOption = False,
    fio_layout: FioLayoutOption = "large-files",
    buffers: BuffersOption = "engine",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the file here instead.")] = None,
) -> None:
    """Load, derive, plan, render."""
    from kvbench.commands.planning import Request, measurement_for
    from kvbench.drivers.fio.job import render_points
    from kvbench.errors import UsageError
    from kvbench.record.results import write_atomically
    from kvbench.run.plan import job_comments
    from kvbench.tiers.kinds import kind_of

    programs = kind_of(parse_tier(tier)[1]).programs
    request = Request(
        tiers=[tier],
        models=model,
        tp=tp,
        kv_dtype=kv_dtype,
        block_tokens=block_tokens,
        connector=connector,
        engine_version=engine_version,
        gpu_arch=gpu_arch,
        mix=mix,
        rwmixread=rwmixread,
        numjobs=numjobs,
        runtime=runtime,
        dataset=dataset,
        access=access,
        published=published,
        fio_layout=fio_layout,
        buffers=buffers,
        driver="fio" if programs.get("fio") == "fio" else None,
        # Nothing is requested or written here.
        yes=True,
        allow_shared=True,
    )
    measurement = measurement_for(request)
    plan = measurement.tiers[0]
    if plan.driver != "fio":
        raise UsageError(f"{tier} is measured by {plan.driver}, so there is no fio job; see 'kvbench fio --dry-run'.")
    text = job_comments(measurement.uses)
    text += render_points(measurement.points, Path(plan.target).expanduser().resolve(), plan.settings)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text)
