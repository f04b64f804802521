"""What others wrote: shown escaped, kept without secrets, read within bounds, and never written over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvbench.border import bounded
from kvbench.border.escaping import MOST_CHARACTERS, escaped, sentence
from kvbench.border.redaction import REMOVED, redacted, redacted_json
from kvbench.errors import InputFileError, ResultFileError, UsageError
from kvbench.formats.fio import read as fio
from kvbench.formats.fio import text as fio_text
from kvbench.prefill.samples import MOST_SAMPLES, read_csv
from kvbench.record import results, stats
from kvbench.report.ours import require_own_page
from kvbench.run.rundir import importing
from kvbench.tiers import mounts
from tests.conftest import Outcome
from tests.factories import SHIPPED_CSV, fio_document, fio_job, fio_side, point, shared_data, write_json
from tests.fuzz.borders import BORDERS, EXAMPLE_RUN

Kvbench = Callable[..., Outcome]
MS = 10**6
BINS = {9 * MS: 600, 11 * MS: 600}
EVIL = "[red]n\x1b[31m\u202e|`<b>=\n:cd: @"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"), ("a\nb\tc", "a\\nb\\tc"), ("\u202eabc", "\\u202eabc"), ("x\udc80", "x\\udc80"),
        ("\x9b", "\\x9b"), ("\u2028", "\\u2028"), ("\x00", "\\x00"),
        ("größe 90 % – 日本 😀", "größe 90 % – 日本 😀"), ("a\u00a0b", "a\u00a0b"), ("C:\\x1b", "C:\\x1b"),
    ],
)  # fmt: skip
def test_what_acts_is_spelled_and_the_rest_stays(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_long_sentence_loses_its_middle() -> None:
    text = "name " + "x" * 5000 + "; name another."
    assert len(sentence(text)) <= MOST_CHARACTERS
    assert sentence(text).startswith("name xxx")
    assert sentence(text).endswith("xxx; name another.")
    assert sentence("y" * MOST_CHARACTERS) == "y" * MOST_CHARACTERS


@pytest.mark.parametrize(
    "text",
    [
        "//user:hush@host/share", "https://user:hush@host:9000/x", "https://hush@host/", "//u:hu/hush@host/share",
        "u:hush@host:/x",
        "rw,password=hush,vers=3", "secret=hush,name=admin", "rw,passwd=hush", "pass=hush", "key=hush",
        "rbd secret='hush hush'",
        "passwd=hush;x", "curl -u user:hush https://x", "sshpass -p hush ssh x", "tool --token hush",
        "tool --api-key=hush",
        "Authorization: Bearer hushhush.hush", "PGPASSWORD=hush psql", "export AWS_SECRET_ACCESS_KEY=hush",
        '{"password": "hush"}',
        "https://x/y?token=hush&z=1", "hf_hushhushhushhushhushhush", "AKIAHUSHHUSHHUSHHUSH", "client_secret: hush",
    ],
)  # fmt: skip
def test_credentials_are_removed(text: str) -> None:
    shown = redacted(text)
    assert "hush" not in shown.lower()
    assert REMOVED in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1:6789:/", "admin@fsid.cephfs=/path", "s3://bucket/prefix@1", "http://127.0.0.1:9000/a@b",
        "prompt_tokens=8192",
        "tokenizer=llama", "rw,relatime,name=admin", "the monkey=1", "keyring /etc/ceph/keyring", "bypass=1",
        "/etc/keys/x", "4k",
        "user@host:/export", "basic test of the tier", "12:00:01 fio starts",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_credential_stays(text: str) -> None:
    assert redacted(text) == text


def test_json_without_secrets_is_the_same_object() -> None:
    data = {"jobs": [{"bins": {"9000": 3, "11000": 4}, "options": {"bs": "1m"}}]}
    assert redacted_json(data) is data
    assert redacted_json({"a": [{"http_pass": 7, "x": "y"}]}) == {"a": [{"http_pass": REMOVED, "x": "y"}]}
    assert redacted_json({"key": 1, "5": 2}) == {"key": REMOVED, "5": 2}


def test_the_source_of_a_mount_loses_its_password() -> None:
    line = "36 25 0:39 / /mnt/c rw,relatime shared:1 - cifs //user:hush@server/share rw,user=me,password2=hush,cred=/x"
    mount = mounts.mount_of(Path("/mnt/c"), line)
    assert mount is not None
    assert (mount.source, mount.kind) == (f"//{REMOVED}@server/share", "network")
    assert mount.options == f"rw,relatime,rw,user=me,password2={REMOVED},cred=/x"


def imported(kvbench: Kvbench, tmp_path: Path, name: str = "job", **options: str) -> tuple[Path, Outcome]:
    job = fio_job(name, fio_side(BINS, 2359296), rw="randread", bs="2304k", numjobs="16", size="400g")
    job["job options"] |= options
    text = "fio: pid 3 of https://me:hush@host stopped\n" + json.dumps(fio_document(job))
    source = tmp_path / "x.json"
    source.write_text(text)
    run = tmp_path / "run"
    return run, kvbench("import", f"[red]t={source}", "--model", "qwen3-8b", "-o", run)


def test_secrets_of_an_imported_file_reach_no_file_and_no_line(kvbench: Kvbench, tmp_path: Path) -> None:
    told = {
        "description": "by a:hush@host",
        "exec_prerun": "login --password hush",
        "http_s3_key": "hush",
        "filename": "//u:hush@h/x",
    }
    run, outcome = imported(kvbench, tmp_path, "job token=hush", **told)
    assert outcome.code == 0, outcome.err
    written = "".join(path.read_text() for path in run.rglob("*") if path.is_file())
    assert "hush" not in written + outcome.out + outcome.err
    assert written.count(REMOVED) >= 5
    assert "ioengine" in written


@pytest.mark.slow
def test_names_act_neither_on_the_terminal_nor_in_the_report(kvbench: Kvbench, tmp_path: Path) -> None:
    run, outcome = imported(kvbench, tmp_path, EVIL)
    page, junit, told = tmp_path / "p.html", tmp_path / "j.xml", [outcome]
    result = json.loads((run / "result.json").read_text())
    result["labels"] = {EVIL: EVIL}
    for item in result["points"]:
        item["tier"] = EVIL
        item["warnings"].append({"code": "x", "message": EVIL, "hint": "=cmd()", "values": {EVIL: EVIL}})
    write_json(run / "result.json", result)
    told.append(kvbench("report", run, "--ttft-csv", SHIPPED_CSV, "-o", page))
    told.append(kvbench("gate", run, "--ttft-csv", SHIPPED_CSV, "--junit", junit, "--markdown", tmp_path / "g.md"))
    told.append(kvbench("crossover", run, "--ttft-csv", SHIPPED_CSV, "--markdown", tmp_path / "c.md"))
    assert [one.code for one in told] == [0, 0, 3, 0], [one.err for one in told]
    files = {path: path.read_text() for path in tmp_path.rglob("*.[hmcj]*") if path.is_file() and path.parent != run}
    for text in [*files.values(), *(one.out + one.err for one in told)]:
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert all("<b>" not in text for path, text in files.items() if path.suffix in (".html", ".md"))
    assert "[red]n\\x1b[31m\\u202e" in told[3].out
    assert ElementTree.parse(junit).getroot().find(".//testcase") is not None
    cells = [cell for path, text in files.items() if path.suffix == ".csv" for cell in re.split("[,\n]", text)]
    assert "'=cmd()" in cells
    assert not any(cell.startswith("=") for cell in cells)
    assert r"\[red\]n\\x1b" in (tmp_path / "c.md").read_text()


def report(kvbench: Kvbench, page: Path) -> Outcome:
    return kvbench("report", EXAMPLE_RUN, "-o", page)


@pytest.mark.slow
def test_a_report_is_written_over_its_own_files_and_over_no_others(kvbench: Kvbench, tmp_path: Path) -> None:
    page = tmp_path / "package.html"
    assert report(kvbench, page).code == 0
    data = page.with_suffix(".json")
    every = [path for path in tmp_path.rglob("*") if path.is_file()]
    others = [path for path in every if path not in (page, data)]
    require_own_page(page, data, others)
    mine = tmp_path / "package-tables" / "mine.csv"
    mine.write_text("a,b\n")
    with pytest.raises(UsageError, match="not made by kvbench"):
        require_own_page(page, data, [*others, mine])
    data.write_text('{"name": "package", "dependencies": {}}')
    outcome = report(kvbench, page)
    assert (outcome.code, outcome.out) == (2, "")
    assert "package.json exists and was not made by kvbench; name another place" in outcome.err
    assert json.loads(data.read_text())["name"] == "package"


@pytest.mark.parametrize("name", ["package.html", "package.json", "package.md", "package-tables/verdicts.csv"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_or_link_of_somebody_else_stays(tmp_path: Path, name: str, linked: bool) -> None:
    place, elsewhere = tmp_path / name, tmp_path / "elsewhere.html"
    place.parent.mkdir(exist_ok=True)
    elsewhere.write_text("Made by kvbench " if linked else "")
    if linked:
        place.symlink_to(elsewhere)
    else:
        place.write_text("mine")
    page = tmp_path / "package.html"
    with pytest.raises(UsageError, match=r"exists and was not made by kvbench|is a link"):
        require_own_page(
            page, page.with_suffix(".json"), [tmp_path / "package.md", tmp_path / "package-tables/verdicts.csv"]
        )


def test_a_linked_folder_of_tables_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "p-tables").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="p-tables is a link"):
        require_own_page(tmp_path / "p.html", tmp_path / "p.json", [tmp_path / "p-tables" / "verdicts.csv"])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[" * 101 + "]" * 101, "nests more than 100 levels"), ("[" * 100_000, "nests more than 100 levels"),
        ('{"a":' * 102 + "1" + "}" * 102, "nests more than 100 levels"), (f"[{10**400}]", "larger than any count"),
        ("[1, 2", "at line 1"), ("[-1" + "0" * 41 + "]", "larger than any count"),
    ],
)  # fmt: skip
def test_json_beyond_the_bounds_is_one_short_sentence(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        bounded.json_of(text)
    assert len(str(caught.value)) < 120


def test_json_within_the_bounds_is_read() -> None:
    assert bounded.json_of("[" * 99 + "]" * 99)
    assert bounded.json_of(f"[{10**39}, 1e308, NaN]")[1] == 1e308
    with pytest.raises(ValueError, match="larger than any count"):
        bounded.json_of("[1e999]", "refuse")
    with pytest.raises(ValueError, match="NaN stands"):
        bounded.json_of("[NaN]", "refuse")
    assert bounded.json_of("[NaN, Infinity, 1]", "null") == [None, None, 1]


def test_yaml_aliases_may_repeat_and_not_explode() -> None:
    assert bounded.yaml_of("a: &x [1, 2]\nb: [*x, *x]\n") == [{"a": [1, 2], "b": [[1, 2], [1, 2]]}]
    bomb = "a0: &a0 [1, 2]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    with pytest.raises(ValueError, match="repeats its own parts too often"):
        bounded.yaml_of(bomb)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert bounded.read_bytes(path, 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 0 MiB"):
        bounded.read_bytes(path, 4)
    with pytest.raises(ValueError, match="no regular file"):
        bounded.read_bytes(Path("/dev/zero"), 4, regular=True)


def table(tmp_path: Path, *rows: str, head: str = "prompt_tokens,ttft_s") -> Path:
    path = tmp_path / "ttft.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "row", ["1e308,5", "1024,1e308", "1024,5e-324", "1024,nan", "1e10,5", "1024.5,1", '"1024,5', "x" * 60_000]
)
def test_an_impossible_row_is_named(tmp_path: Path, row: str) -> None:
    with pytest.raises(InputFileError, match="line 3 is not a positive whole number"):
        read_csv(table(tmp_path, "512,0.1", row, "2048,0.4"))
    assert [
        one.prompt_tokens for one in read_csv(table(tmp_path, "512,0.1", row, "2048,0.4"), skip_bad_rows=True).rows
    ] == [512, 2048]


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="a line of more than"):
        read_csv(table(tmp_path, head="prompt_tokens,ttft_s\n512," + "9" * 3_000_000))


def test_many_samples_are_thinned_evenly_and_the_ends_stay(tmp_path: Path) -> None:
    rows = [f"{1000 + at},{0.1 + at * 1e-5:.6f}" for at in range(50_001)]
    found = read_csv(table(tmp_path, *rows))
    tokens = [row.prompt_tokens for row in found.rows]
    assert (len(tokens), tokens[0], tokens[-1]) == (MOST_SAMPLES, 1000, 51_000)
    assert found.notes == ("the curve uses 2,000 of 50,001 TTFT samples, evenly selected",)
    gaps = {after - before for before, after in pairwise(tokens)}
    assert max(gaps) <= 2 * min(gaps)
    few = read_csv(table(tmp_path, *rows[:MOST_SAMPLES]))
    assert (len(few.rows), few.notes) == (MOST_SAMPLES, ())


@pytest.mark.slow
def test_lines_are_numbered_over_the_pieces_of_a_large_file(tmp_path: Path) -> None:
    rows = [f"{1000 + at},0.1" for at in range(150_000)]
    rows[140_000] = "7,0.1"
    with pytest.raises(InputFileError, match="line 140002 goes back from 140999 to 7 tokens"):
        read_csv(table(tmp_path, *rows))
    rows[140_000] = "\n# a note: here"
    rows[140_001] = "x"
    with pytest.raises(InputFileError, match="line 140004 is not"):
        read_csv(table(tmp_path, *rows))


def test_a_document_behind_many_lines_in_brackets_is_found() -> None:
    document = json.dumps(fio_document(fio_job("kv", fio_side(BINS))), indent=1)
    for line in ("[12:00:00] something", '{"level": "info",', '[{"a'):
        found = fio_text.find(f"{line}\n" * 20_000 + document)
        assert [one["fio version"] for one in found.documents] == ["fio-3.33"], line
        assert len(found.preamble) < 140_000


def test_an_option_beyond_its_range_is_no_condition() -> None:
    side = fio_side(BINS)
    for share, kept in (("101", None), ("100", 100), ("75", 75)):
        job = fio_job("kv", side, side, rw="randrw", bs="4k", rwmixread=share)
        from kvbench.formats.fio.importer import imported_points

        (found,) = imported_points(fio.parse_all(json.dumps(fio_document(job)), "x"), "t", "x.json")
        assert found.point.conditions.rwmixread == kept


@pytest.mark.parametrize(
    "second", [{"second": 1, "read": []}, {"second": 0}, {"read": {}}, {"second": 1, "events": "x"}, []]
)
def test_a_series_of_another_shape_is_refused(tmp_path: Path, second: object) -> None:
    good = {"second": 1, "read": {"bytes_per_s": 5, "iops": 1.5}, "host": {"load_1m": None}, "more": [1]}
    write_json(tmp_path / "s.json", [good])
    assert results.load_series(tmp_path, point(series="s.json")) == [good]
    write_json(tmp_path / "s.json", [good, second])
    with pytest.raises(ResultFileError, match="is damaged"):
        results.load_series(tmp_path, point(series="s.json"))


def test_ranks_of_very_many_samples_are_those_of_the_normal_distribution() -> None:
    exact, near = stats.interval_ranks(10**8, 99.0), stats.interval_ranks(10**8 + 1, 99.0)
    assert all(
        abs(one - other) <= 2 for one, other in zip(exact, near, strict=True) if one is not None and other is not None
    )
    assert stats.interval_ranks(1 << 62, 50.0)[0] is not None


def test_an_import_that_fails_leaves_nothing_and_keeps_equal_ids(tmp_path: Path) -> None:
    from kvbench.record.results import Observation

    output = tmp_path / "a" / "run"

    def fail() -> None:
        with importing(output, ["t"]) as run:
            run.add("t", [{}], [Observation(point(), {})])
            raise UsageError("no.")

    with pytest.raises(UsageError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with importing(output, ["t"]) as run:
        run.add("t", [{}], [Observation(point(), {}), Observation(point(), {})])
        result = run.finish((), {})
    assert [one.id for one in result.points] == [point().id, f"{point().id}-2"]


@pytest.mark.slow
def test_the_recorded_inputs_that_broke_readers_end_in_one_sentence(kvbench: Kvbench, tmp_path: Path) -> None:
    borders = {border.name: border for border in BORDERS}
    kinds = {
        "csv": ["ttft-csv"],
        "fio": ["fio"],
        "model": ["config"],
        "rundir": ["result", "histogram", "series", "measurement"],
    }
    for number, path in enumerate(sorted(shared_data("field/fuzz").glob("*-*"))):
        for name in kinds[path.name.partition("-")[0]]:
            folder = tmp_path / f"{number}-{name}"
            outcome = kvbench(*borders[name].command(folder, path.name, path.read_text(errors="surrogateescape")))
            assert outcome.code in (0, 1, 2, 3), (path.name, name, outcome.err)
            assert "Traceback" not in outcome.err
            assert max(map(len, outcome.err.splitlines()), default=0) <= 620
