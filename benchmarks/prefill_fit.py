"""How often the interval of the prefill curve holds the true time: simulated TTFT through kvbench's own fit.

    python benchmarks/prefill_fit.py [--runs 400] [--seed 1] [--samples 1,3,10] [--noise 5,10,20] [--at 32k] [--json]

Draws TTFT of a server whose curve is known, with relative errors (normal, log-normal or skewed like waits), fits them,
and prints for each number of samples and noise: how many 95 % intervals hold the true time at --at, the mean error of
the fitted time (bias), and the median half-width. A coverage of 0.95 over 400 runs is known to +-0.02.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

from kvbench.prefill.curve import fit
from kvbench.prefill.least_squares import Floats, powers
from kvbench.prefill.samples import Sample, Samples
from kvbench.units import parse_tokens

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Server:
    """A server whose curve is known, and how its times stray."""

    coefficients: Floats
    lengths: tuple[int, ...]
    errors: str


@dataclass(frozen=True)
class Found:
    """What the runs of one setting gave; the last three are shares of the true time, None where nothing could be."""

    samples_per_length: int
    noise: float
    coverage: float | None
    bias: float
    half_width: float | None
    without_interval: int


def main() -> None:
    """Simulate every setting and print a table, or JSON."""
    chosen = arguments()
    lengths = tuple(parse_tokens(one) for one in chosen.lengths.split(","))
    server = Server(np.array([chosen.a, chosen.b, chosen.c]), lengths, chosen.errors)
    found = [
        simulate(server, count, noise / 100, parse_tokens(chosen.at), chosen.runs, chosen.seed)
        for count in map(int, chosen.samples.split(","))
        for noise in map(float, chosen.noise.split(","))
    ]
    if chosen.json:
        print(json.dumps([asdict(one) for one in found]))
        return
    print(f"{'samples':>10} {'noise':>6} {'coverage':>9} {'bias':>7} {'+-':>6} {'none':>5}")
    for one in found:
        shape = f"{len(lengths)} x {one.samples_per_length}"
        coverage, width = shown(one.coverage, ".3f"), shown(one.half_width, ".1%")
        print(f"{shape:>10} {one.noise:6.0%} {coverage:>9} {one.bias:7.1%} {width:>6} {one.without_interval:5}")


def arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="simulated measurements of each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", default="1,3,10", help="samples of each length")
    parser.add_argument("--noise", default="5,10,20", help="standard deviation of a time in percent")
    parser.add_argument("--lengths", default="2k,4k,8k,16k,32k")
    parser.add_argument("--at", default="32k", help="the length whose time is estimated")
    parser.add_argument("--errors", choices=("normal", "lognormal", "gamma"), default="normal")
    parser.add_argument("-a", type=float, default=0.02, help="seconds that every prompt takes")
    parser.add_argument("-b", type=float, default=2e-5, help="seconds for each token")
    parser.add_argument("-c", type=float, default=2e-10, help="seconds for each token squared")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def simulate(server: Server, per_length: int, noise: float, at: int, runs: int, seed: int) -> Found:
    """Coverage, bias and width over ``runs`` measurements of ``per_length`` samples at every length."""
    generator = np.random.default_rng(seed)
    tokens = np.repeat(np.array(sorted(server.lengths), dtype=float), per_length)
    expected = powers(tokens) @ server.coefficients
    true_s = float((powers(np.array([float(at)])) @ server.coefficients)[0])
    held, errors, widths = [], [], []
    for _ in range(runs):
        seconds = expected * factors(generator, server.errors, noise, len(tokens))
        rows = tuple(Sample(int(one), float(time)) for one, time in zip(tokens, seconds, strict=True))
        curve = fit(Samples(rows, None, "simulated"))
        errors.append(float(curve.seconds(at)[0]) / true_s - 1)
        if len(curve.draws):
            tails = [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2]
            low, high = np.quantile(curve.drawn_seconds(np.array([float(at)]))[:, 0], tails)
            held.append(low <= true_s <= high)
            widths.append((high - low) / 2 / true_s)
    coverage = float(np.mean(held)) if held else None
    width = float(np.median(widths)) if widths else None
    return Found(per_length, noise, coverage, float(np.mean(errors)), width, runs - len(held))


def factors(generator: np.random.Generator, errors: str, noise: float, count: int) -> Floats:
    """Relative errors with mean 1 and that standard deviation; never below a twentieth."""
    if errors == "lognormal":
        sigma = np.sqrt(np.log1p(noise**2))
        return generator.lognormal(-(sigma**2) / 2, sigma, count)
    if errors == "gamma":
        return np.maximum(0.05, 1 - noise + generator.gamma(1.0, noise, count))
    return np.maximum(0.05, generator.normal(1.0, noise, count))


def shown(value: float | None, form: str) -> str:
    """A number, or a dash for none."""
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    main()
