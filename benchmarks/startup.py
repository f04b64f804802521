"""How fast kvbench is to the hand, as ratios to a bare typer application, measured side by side in one run.

    python benchmarks/startup.py [ROUNDS]

Every round runs each command once, in turn, so that drift of the machine hits all of them; medians are compared: each
with the bare application's command and with its --help.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARE_TYPER = """
import typer
app = typer.Typer()
@app.command()
def size(model: str, tp: int = typer.Option(1, "--tp")):
    typer.echo(model)
@app.command()
def other():
    pass
app()
"""


def main(rounds: int) -> None:
    """Print a line for each command: median seconds and the ratios to the bare typer application and to its --help."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE_TYPER)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "bare typer application": [sys.executable, str(bare), "size", "x"],
            "bare typer --help": [sys.executable, str(bare), "--help"],
            "kvbench --help": [sys.executable, "-m", "kvbench", "--help"],
            "kvbench blocksize qwen3-8b": [sys.executable, "-m", "kvbench", "blocksize", "qwen3-8b"],
            "kvbench blocksize qwen3-8b --json": [sys.executable, "-m", "kvbench", "blocksize", "qwen3-8b", "--json"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for round_number in range(rounds + 1):
            for name, command in commands.items():
                seconds = _wall_s(command)
                if round_number:  # the first round only warms the file caches
                    times[name].append(seconds)
    bare_s, bare_help_s = (statistics.median(times[name]) for name in ("bare typer application", "bare typer --help"))
    for name, values in times.items():
        median = statistics.median(values)
        ratios = f"{median / bare_s:5.2f} x bare   {median / bare_help_s:5.2f} x bare --help"
        print(f"{name:36} {median:6.3f} s   {ratios}   (min {min(values):.3f}, max {max(values):.3f})")


def _wall_s(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
