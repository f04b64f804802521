"""Text with a unit and back: exact where it can be exact, refused where it is ambiguous."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench import units
from kvbench.errors import UsageError

SIZE_UNITS = {
    "": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
}  # fmt: skip
FOUR_DIGITS = "a value that rounding lifts to the next digit shows four digits where three are promised: 1.000 ms"


@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZE_UNITS)), st.sampled_from(["", " "]))
def test_whole_sizes_are_exact(number: int, unit: str, blank: str) -> None:
    assert units.parse_size(f"{number}{blank}{unit}") == number * SIZE_UNITS[unit]


@given(st.integers(0, 1023))
def test_bytes_round_trip(count: int) -> None:
    assert units.parse_size(units.format_bytes(count)) == count


@given(st.integers(1, 999), st.integers(1, 5))
def test_whole_binary_sizes_round_trip(number: int, power: int) -> None:
    count = number << 10 * power
    assert units.parse_size(units.format_bytes(count)) == count


@given(st.integers(8, 79), st.integers(1, 5))
def test_eighths_round_trip(eighths: int, power: int) -> None:
    """1.125 MiB is how a block of gpt-oss-120b reads: it must not be rounded."""
    count = eighths << (10 * power - 3)
    assert units.parse_size(units.format_bytes(count)) == count


@given(st.integers(0, 1 << 60))
def test_format_bytes_is_right_to_half_a_permille(count: int) -> None:
    text = units.format_bytes(count)
    number, unit = text.split()
    assert abs(float(number) * SIZE_UNITS[unit] - count) <= count * 0.0005 + 0.5


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.001 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (1 << 20, "1 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (1_179_648, "1.125 MiB"),
        (2_359_296, "2.25 MiB"),
        (70_272, "68.62 KiB"),
        (5 << 20, "5 MiB"),
        (100 << 20, "100 MiB"),
        (1000 << 20, "1000 MiB"),
        (4096 << 50, "4096 PiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert units.format_bytes(count) == text


@pytest.mark.parametrize("count", [1_048_100, 1_048_500, (1024 << 20) - (300 << 10)])
def test_no_size_reads_1024_of_a_unit(count: int) -> None:
    assert not units.format_bytes(count).startswith("1024 ")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("64GiB", 64 << 30),
        ("7TB", 7 * 10**12),
        ("4096", 4096),
        ("1.5GiB", 3 << 29),
        ("0.5 KiB", 512),
        ("0.001KB", 1),
        ("1gib", 1 << 30),
        ("  2 MiB ", 2 << 20),
    ],
)
def test_parse_size(text: str, count: int) -> None:
    assert units.parse_size(text) == count


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("4G", "'4G' is ambiguous; write 4GiB (powers of 1024) or 4GB (1000)."),
        ("4k", "'4k' is ambiguous; write 4KiB (powers of 1024) or 4KB (1000)."),
        ("-1", "'-1' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("", "'' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("1,5GiB", "'1,5GiB' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("1e9", "'1e9' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("nan", "'nan' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("٤KiB", "'٤KiB' is not a size; write it like 64GiB, 7TB or 1179648."),
        ("4blocks", "'4blocks' has an unknown unit; write a size like 64GiB, 7TB or 1179648."),
        ("4Mi", "'4Mi' has an unknown unit; write a size like 64GiB, 7TB or 1179648."),
        ("1.5B", "'1.5B' is not a whole number of bytes; write one that is."),
        ("0.0001KB", "'0.0001KB' is not a whole number of bytes; write one that is."),
    ],
)
def test_sizes_that_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        units.parse_size(text)


@given(st.integers(0, 10**9))
def test_tokens_round_trip(tokens: int) -> None:
    assert units.parse_tokens(units.format_tokens(tokens).replace(",", "")) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8k", 8192), ("32768", 32768), ("1m", 1 << 20), ("0.5k", 512), ("128K", 131072), (" 2 k", 2048)],
)
def test_parse_tokens(text: str, tokens: int) -> None:
    assert units.parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "-1", "8kb", "8GiB", "1.0001k", "8,192", "inf"])
def test_tokens_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(text))):
        units.parse_tokens(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("60", 60.0), ("1m", 60.0), ("2min", 120.0), ("10us", 1e-5)]
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert units.parse_duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1h", "2 seconds", "nan", "1e3"])
def test_durations_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration; write it like 2s, 500ms or 60"):
        units.parse_duration_s(text)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 us"),
        (812_000, "812 us"),
        (999_400, "999 us"),
        pytest.param(999_500, "1.00 ms"),
        (3_970_000, "3.97 ms"),
        (107_479_040, "107 ms"),
        (999_400_000, "999 ms"),
        pytest.param(999_999_500, "1.00 s"),
        pytest.param(9_996_000, "10.0 ms"),
        (1_000_000_000, "1.00 s"),
        (17_070_000_000, "17.1 s"),
        (600_000_000_000, "600 s"),
    ],
)
def test_format_duration(duration_ns: int, text: str) -> None:
    assert units.format_duration_ns(duration_ns) == text


@given(st.floats(1, 1e15))
def test_durations_keep_three_digits(duration_ns: float) -> None:
    number, unit = units.format_duration_ns(duration_ns).split()
    shown = float(number) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert shown == pytest.approx(duration_ns, rel=5.1e-3, abs=0.5)


@given(st.lists(st.text("abc1", min_size=1), max_size=5))
def test_split_list(items: list[str]) -> None:
    assert units.split_list(" , ".join(items)) == items


def test_other_texts() -> None:
    assert units.format_bandwidth(212_350_383) == "202.5 MiB/s"
    assert units.format_duration_s(0.0706) == "70.6 ms"
    assert units.format_tokens(32768) == "32,768"
    assert units.format_count(1_179_648) == "1,179,648"
