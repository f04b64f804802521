"""TTFT samples from CSV files, and the curve through them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kvbench.errors import InputFileError
from kvbench.prefill.curve import DRAWS, fit
from kvbench.prefill.samples import WAITING_NOTE, Sample, Samples, read_csv, require_alone
from tests.factories import ROOT, SHIPPED_CSV

GOOD = "prompt_tokens,ttft_s\n1024,0.5\n2048,1.0\n"
LENGTHS = st.integers(16, 200_000)
SECONDS = st.floats(1e-3, 100)


def csv(tmp_path: Path, text: str | bytes) -> Path:
    """A CSV file with exactly that content."""
    path = tmp_path / "ttft.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def samples(*rows: tuple[int, float]) -> Samples:
    """Samples of those lengths and seconds."""
    return Samples(tuple(Sample(tokens, seconds) for tokens, seconds in rows), None, "a test")


def polynomial(a: float, b: float, c: float, lengths: list[int]) -> Samples:
    """Samples exactly on a curve."""
    return samples(*((n, a + b * n + c * n * n) for n in lengths))


@pytest.mark.parametrize(
    "header",
    [
        "prompt_tokens,ttft_s", "Prompt Tokens,TTFT s", " INPUT-TOKENS , ttft_seconds ", "isl,mean_ttft_s",
        "input_len,p50_ttft_sec", "prompt_token_count,median_ttft_s", "context_tokens,time_to_first_token_s",
    ],
)  # fmt: skip
def test_spellings_of_seconds(tmp_path: Path, header: str) -> None:
    found = read_csv(csv(tmp_path, f"{header}\n1024,0.5\n2048,1.0\n"))
    assert [(row.prompt_tokens, row.ttft_s) for row in found.rows] == [(1024, 0.5), (2048, 1.0)]


@pytest.mark.parametrize("header", ["prompt_tokens,ttft_ms", "isl,TTFT-ms", "input_tokens,ttft_milliseconds"])
def test_spellings_of_milliseconds(tmp_path: Path, header: str) -> None:
    found = read_csv(csv(tmp_path, f"{header}\n1024,500\n2048,1e3\n"))
    assert [row.ttft_s for row in found.rows] == pytest.approx([0.5, 1.0], rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        "# a comment\n" + GOOD + "# the end",
        GOOD.rstrip("\n"),
        '"prompt_tokens","ttft_s"\n"1024","0.5"\n"2048"," 1.0 "\n',
        "ttft_s,prompt_tokens\n0.5,1024.0\n1.0,2.048e3\n",
    ],
    ids=["BOM", "CRLF", "blank lines", "comments", "no final newline", "quotes", "order"],
)
def test_forms_of_the_same_file(tmp_path: Path, text: str | bytes) -> None:
    found = read_csv(csv(tmp_path, text))
    assert [(row.prompt_tokens, row.ttft_s) for row in found.rows] == [(1024, 0.5), (2048, 1.0)]
    assert found.skipped_rows == 0


def test_an_indented_comment(tmp_path: Path) -> None:
    assert len(read_csv(csv(tmp_path, GOOD + "  # the end\n")).rows) == 2


def test_extra_columns_and_notes_are_kept(tmp_path: Path) -> None:
    text = '# model: org/name\n#source:  a, "b"\nrun,prompt_tokens,ttft_s,note\n1,10,1,"x, y"\n2,20,2,\n'
    found = read_csv(csv(tmp_path, text))
    assert (found.model, found.source) == ("org/name", 'a, "b"')
    assert [row.extra for row in found.rows] == [{"run": "1", "note": "x, y"}, {"run": "2", "note": ""}]
    assert read_csv(csv(tmp_path, GOOD)).source == "ttft.csv"
    assert read_csv(csv(tmp_path, GOOD)).model is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty; it needs the columns prompt_tokens and ttft_s or ttft_ms"),
        ("# only\n\n", "is empty; it needs the columns prompt_tokens and ttft_s or ttft_ms"),
        (
            "prompt_tokens,ttft\n1,2\n",
            "the column 'ttft' has no unit, seconds or milliseconds; name it ttft_s or ttft_ms",
        ),
        ("prompt_tokens,TTFT\n1,2\n", "the column 'TTFT' has no unit"),
        ("prompt_tokens,mean_ttft\n1,2\n", "the column 'mean_ttft' has no unit"),
        ("a,b\n1,2\n", "needs exactly one column prompt_tokens and one ttft_s or ttft_ms; it has a, b"),
        ("prompt_tokens,ttft_s,ttft_ms\n1,2,3\n", "needs exactly one column"),
        ("prompt_tokens,isl,ttft_s\n1,2,3\n", "needs exactly one column"),
        ("prompt_tokens;ttft_s\n1;2\n", "needs exactly one column"),
        ("prompt_tokens,ttft_s\n", "has no sample; measure TTFT at three prompt lengths or more"),
        ("prompt_tokens,ttft_s\n2,2\n\n1,3\n", "line 4 goes back from 2 to 1 tokens; sort the file by prompt_tokens"),
        ("prompt_tokens,ttft_s,concurrency\n1,2,1\n2,3,4\n", "mixes values of concurrency"),
    ],
)
def test_refusals(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputFileError, match=re.escape(sentence)):
        read_csv(csv(tmp_path, text))


def test_mixed_concurrency_in_any_case(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="mixes values of concurrency"):
        read_csv(csv(tmp_path, "prompt_tokens,ttft_s,Concurrency\n1,2,1\n2,3,4\n"))


BAD_ROWS = ["x,1", "0,1", "-5,1", "1.5,1", "10,0", "10,-1", "10,nan", "10,inf", "inf,1", "nan,1", "10", "10,1,2", "10,",
            ",1", "10,1s", '"10,5",1', "10;1"]  # fmt: skip


@pytest.mark.parametrize("row", BAD_ROWS)
def test_bad_rows_are_named_or_counted(tmp_path: Path, row: str) -> None:
    path = csv(tmp_path, f"# note\nprompt_tokens,ttft_s\n5,0.5\n{row}\n20,1.0\n")
    with pytest.raises(InputFileError, match=r"ttft\.csv: line 4 is not a positive whole number of tokens and a pos"):
        read_csv(path)
    found = read_csv(path, skip_bad_rows=True)
    assert [row.prompt_tokens for row in found.rows] == [5, 20]
    assert found.skipped_rows == 1


def test_many_bad_rows_are_abbreviated(tmp_path: Path) -> None:
    path = csv(tmp_path, GOOD + "\n".join(BAD_ROWS))
    with pytest.raises(InputFileError, match=r"lines 4, 5, 6, 7, 8 and 12 more are not"):
        read_csv(path)
    assert read_csv(path, skip_bad_rows=True).skipped_rows == len(BAD_ROWS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.csv", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputFileError, match=reason):
            read_csv(path)
    with pytest.raises(InputFileError, match="it is not UTF-8 text"):
        read_csv(csv(tmp_path, b"prompt_tokens,ttft_s\n\xff"))


def test_the_shipped_samples() -> None:
    found = read_csv(SHIPPED_CSV)
    assert found.model == "openai/gpt-oss-120b"
    assert [(row.prompt_tokens, round(row.ttft_s * 1e4)) for row in found.rows] == [
        (2048, 706), (8192, 2054), (16384, 4263), (32768, 9830), (49152, 16950)
    ]  # fmt: skip
    curve = fit(found)
    for row in found.rows:
        assert curve.seconds(row.prompt_tokens)[0] == pytest.approx(row.ttft_s, rel=0.05)


@given(st.floats(0, 1), st.floats(0, 1e-3), st.floats(0, 1e-8), st.lists(LENGTHS, min_size=3, max_size=8, unique=True))
def test_fit_recovers_exact_curves(a: float, b: float, c: float, lengths: list[int]) -> None:
    lengths = sorted(lengths)
    assume(a + b * lengths[0] > 1e-6)
    curve = fit(polynomial(a, b, c, lengths))
    wanted = [a + b * n + c * n * n for n in lengths]
    assert curve.seconds([float(n) for n in lengths]) == pytest.approx(wanted, rel=1e-5)
    assert (curve.measured_from, curve.measured_to, curve.samples) == (lengths[0], lengths[-1], len(lengths))


def test_fit_recovers_exact_coefficients() -> None:
    curve = fit(polynomial(0.05, 2e-5, 3e-10, [1024, 4096, 16384, 65536, 131072]))
    assert list(curve.coefficients) == pytest.approx([0.05, 2e-5, 3e-10], rel=1e-6)


def test_one_of_two_samples_alike_is_named_when_it_is_set_aside() -> None:
    curve = fit(samples(*((tokens, 10.0 if tokens == 16 else 1.0) for tokens in (16, 16, 17, 17, 18, 18, 19, 19))))
    assert [sample.prompt_tokens for sample in curve.set_aside] == [16]
    assert curve.notes == ("set aside the sample at 16 tokens (10 s), far from all others",)


@given(
    st.floats(0, 1), st.floats(1e-6, 1e-3), st.floats(0, 1e-8),
    st.lists(st.tuples(LENGTHS, st.floats(0.5, 2)), min_size=2, max_size=8),
)  # fmt: skip
@example(0.5, 0.03, 0.0, [(tokens, 10.0 if tokens == 16 else 1.0) for tokens in (16, 16, 17, 17, 18, 18, 19, 19)])
def test_fit_is_the_non_negative_optimum(a: float, b: float, c: float, strays: list[tuple[int, float]]) -> None:
    """Karush-Kuhn-Tucker: the gradient vanishes on used coefficients and is not negative on unused ones.

    Errors are relative to the fitted time, which the weights therefore are taken from.
    """
    rows = sorted((tokens, (a + b * tokens + c * tokens**2) * stray) for tokens, stray in strays)
    assume(len({tokens for tokens, _ in rows}) >= 2)
    curve = fit(samples(*rows))
    set_aside = [(sample.prompt_tokens, sample.ttft_s) for sample in curve.set_aside]
    # Of two samples alike one may be set aside.
    kept = sorted((Counter(rows) - Counter(set_aside)).elements())
    tokens, seconds = (np.array(column, dtype=float) for column in zip(*kept, strict=True))
    terms = 3 if len(set(tokens)) > 2 else 2
    fitted = curve.seconds(tokens)
    design = np.stack([tokens**power for power in range(terms)], axis=1) / fitted[:, np.newaxis]
    design /= np.linalg.norm(design, axis=0)
    used = curve.coefficients[:terms]
    assert (curve.coefficients >= 0).all()
    assert (curve.draws >= 0).all()
    residual = 1 - seconds / fitted
    gradient = design.T @ residual
    scale = 1e-6 * max(1.0, float(np.linalg.norm(residual)))
    assert (gradient >= -scale).all()
    assert (np.abs(gradient[used > 0]) <= scale).all()


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.floats(0.01, 0.5), st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-8),
    st.integers(0, 6), st.one_of(st.floats(2, 30), st.floats(0.03, 0.5)), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_one_bad_sample_does_not_bend_the_curve(
    a: float, b: float, c: float, at: int, factor: float, seed: int
) -> None:
    lengths = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    noise = np.random.default_rng(seed).uniform(0.99, 1.01, len(lengths))
    seconds = [float((a + b * n + c * n * n) * stray) for n, stray in zip(lengths, noise, strict=True)]
    spoilt = [*zip(lengths, seconds, strict=True)]
    spoilt[at] = (lengths[at], seconds[at] * factor)
    curve = fit(samples(*spoilt))
    inner = [n for n in lengths if n not in (lengths[at], lengths[0], lengths[-1])]
    assert curve.seconds([float(n) for n in inner]) == pytest.approx([a + b * n + c * n * n for n in inner], rel=0.06)
    assert [sample.prompt_tokens for sample in curve.set_aside] == [lengths[at]]
    assert any("set aside" in note for note in curve.notes)


def test_a_noisy_server_loses_no_sample() -> None:
    strays = (1, 2, 0.5, 3, 1, 0.3, 2, 1)
    rows = [(n, 1e-4 * n * stray) for n, stray in zip(range(1000, 9000, 1000), strays, strict=True)]
    assert fit(samples(*rows)).set_aside == ()


def test_the_shipped_curve_is_quadratic_and_says_what_a_line_would_cost() -> None:
    """facts: gpt-oss-120b on H200, 2k to 48k: a line leaves up to 76 ms, a parabola up to 2 ms (least squares).

    The parabola here minimises relative errors, so that its largest absolute residual is a little larger.
    """
    curve = fit(read_csv(SHIPPED_CSV))
    assert curve.largest_residual_s is not None
    assert curve.largest_residual_s < 0.006
    assert curve.linear_residual_s is not None
    assert curve.linear_residual_s == pytest.approx(0.076, abs=0.001)
    line = fit(read_csv(SHIPPED_CSV), "linear")
    assert line.c_s_per_token2 == 0
    assert line.largest_residual_s is not None
    assert line.largest_residual_s > curve.linear_residual_s
    assert len(line.draws)


def test_one_length_gives_the_cost_of_a_token_and_says_so() -> None:
    curve = fit(samples((1000, 0.2), (1000, 0.4)))
    assert (curve.a_s, curve.c_s_per_token2) == (0, 0)
    # Relative to the fitted time both samples weigh the same, so it is their mean.
    assert curve.b_s_per_token == pytest.approx(0.3 / 1000)
    assert len(curve.draws) == 0
    assert any("proportional" in note for note in curve.notes)


@given(st.lists(st.tuples(st.sampled_from([100, 200, 400]), SECONDS), min_size=4, max_size=8), st.randoms())
def test_order_of_equal_lengths_is_irrelevant_to_the_fit(rows: list[tuple[int, float]], random: object) -> None:
    assume(len({tokens for tokens, _ in rows}) >= 2)
    rows.sort(key=lambda row: row[0])
    other = sorted(rows)
    one, two = fit(samples(*rows)), fit(samples(*other))
    assert one.seconds([100.0, 400.0]) == pytest.approx(two.seconds([100.0, 400.0]), rel=1e-9)


def test_bootstrap_is_deterministic_and_surrounds_the_fit() -> None:
    one, two = fit(read_csv(SHIPPED_CSV)), fit(read_csv(SHIPPED_CSV))
    assert one.draws.shape == (DRAWS, 3)
    assert np.array_equal(one.draws, two.draws)
    at = np.array([4096.0, 32768.0])
    low, high = np.quantile(one.drawn_seconds(at), [0.025, 0.975], axis=0)
    assert (low <= one.seconds(at)).all()
    assert (one.seconds(at) <= high).all()


def test_two_lengths_are_a_line_without_interval() -> None:
    curve = fit(samples((1000, 1.0), (3000, 2.0)))
    assert list(curve.coefficients) == pytest.approx([0.5, 5e-4, 0.0])
    assert len(curve.draws) == 0
    assert curve.drawn_seconds(np.array([2000.0])).tolist() == [pytest.approx([1.5])]


def test_two_lengths_of_superlinear_prefill_meet_both_samples() -> None:
    curve = fit(samples((1024, 0.5), (32768, 31.0)))
    assert curve.seconds([1024.0, 32768.0]) == pytest.approx([0.5, 31.0], rel=1e-6)
    assert len(curve.draws) == 0


def test_short_times_weigh_no_more_than_long_ones() -> None:
    """Weights by the measured time would pull the fit to the short half: 0.8 and 1.2 gave 0.92 instead of 1."""
    rows = [(tokens, 1e-4 * tokens * stray) for tokens in (1000, 2000, 4000, 8000) for stray in (0.8, 1.2)]
    assert fit(samples(*rows)).seconds(8000.0)[0] == pytest.approx(0.8, rel=1e-6)


def test_few_samples_have_the_interval_of_student() -> None:
    """Five samples and two terms leave three degrees of freedom: the 95 % interval is 3.2 and not 1.96 errors wide."""
    strays = {1000: 1.05, 2000: 0.95, 4000: 1.05, 8000: 0.95, 16000: 1.05}
    rows = [(tokens, (2.0 + 1e-3 * tokens) * stray) for tokens, stray in strays.items()]
    curves = [fit(samples(*(row for row in rows for _ in range(count))), "linear") for count in (1, 20)]
    few, many = (np.ptp(np.quantile(one.drawn_seconds(np.array([4000.0])), [0.025, 0.975])) for one in curves)
    # The standard error shrinks by the root of 20, and by what the degrees of freedom are short of the samples.
    normal = many * np.sqrt(20) * np.sqrt((5 / 3) / (100 / 98))
    assert few / normal == pytest.approx(3.182 / 1.984, rel=0.15)


def test_three_single_samples_leave_nothing_for_an_interval() -> None:
    bent = [(1000, 1.0), (2000, 1.8), (4000, 4.0)]
    assert len(fit(samples(*bent)).draws) == 0
    assert len(fit(samples(*bent, (8000, 8.1))).draws) == DRAWS
    assert len(fit(samples(*bent), "linear").draws) == DRAWS


@pytest.mark.slow
def test_simulated_intervals_hold_the_true_time() -> None:
    """As ``benchmarks/prefill_fit.py`` prints it; the seed is fixed, so that the numbers are always the same."""
    command = [sys.executable, str(ROOT / "benchmarks" / "prefill_fit.py"), "--json", "--runs", "60", "--samples", "3",
               "--noise", "10,20"]  # fmt: skip
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert [(one["samples_per_length"], one["noise"]) for one in found] == [(3, 0.1), (3, 0.2)]
    assert all(one["coverage"] >= 0.9 for one in found)
    assert all(abs(one["bias"]) < 0.02 for one in found)
    assert all(one["without_interval"] == 0 for one in found)


@pytest.mark.slow
def test_outliers_never_take_most_of_the_long_prompts() -> None:
    """Four first turns among sixteen that a cache answered: the slow ones are the right ones, and the longest."""
    cached = [(tokens, 1e-4 * tokens) for tokens in range(2000, 34_000, 2000)]
    turns = [*cached, (36_000, 72.0), (38_000, 76.0), (40_000, 80.0), (42_000, 84.0)]
    assert fit(samples(*turns)).set_aside == ()
    one = [*cached, (36_000, 3.6), (38_000, 76.0), (40_000, 4.0), (42_000, 4.2)]
    assert [sample.prompt_tokens for sample in fit(samples(*one)).set_aside] == [38_000]


@pytest.mark.parametrize("column", ["concurrency", "Max Concurrency", "batch_size", "users"])
def test_a_column_of_requests_at_once_is_believed(tmp_path: Path, column: str) -> None:
    together = read_csv(csv(tmp_path, f"prompt_tokens,ttft_s,{column}\n1024,4,8\n8192,32,8\n"))
    with pytest.raises(InputFileError, match="was measured with 8 requests at once"):
        require_alone(together, allow_queued=False)
    kept = require_alone(together, allow_queued=True)
    assert kept.notes == (WAITING_NOTE,)
    assert kept.source == "ttft.csv (requests waited for each other)"
    alone = read_csv(csv(tmp_path, f"prompt_tokens,ttft_s,{column}\n1024,4,1\n8192,32,1.0\n"))
    assert require_alone(alone, allow_queued=False) is alone


@pytest.mark.parametrize("column", ["request_rate", "qps", "max_concurrency"])
def test_rows_of_several_loads_are_no_curve(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputFileError, match=f"mixes values of {column}"):
        read_csv(csv(tmp_path, f"prompt_tokens,ttft_s,{column}\n1024,1,1\n2048,2,2\n"))
    assert read_csv(csv(tmp_path, f"prompt_tokens,ttft_s,{column}\n1024,1,1\n2048,2,1\n")).rows


def test_other_columns_are_no_load(tmp_path: Path) -> None:
    found = read_csv(csv(tmp_path, "prompt_tokens,ttft_s,gpu,batch\n1024,1,0,8\n2048,2,1,9\n"))
    assert require_alone(found, allow_queued=False) is found
