"""The page in a real browser: nothing asked of the network, no error, readable at 320 px, on paper and by everybody."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvbench.report.html import html
from tests.conftest import ROOT
from tests.test_report import four_by_three

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EXAMPLE = ROOT / "reports" / "example" / "run"
PREFILL = ROOT / "profiles" / "prefill" / "gpt-oss-120b-h200.csv"
AXE = "axe-core@4.10.3"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PHONE, DESK = (320, 640), (1280, 800)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Browser:
    """A headless Chromium, driven over the pipe of its developer protocol."""

    def __init__(self, profile: Path) -> None:
        """Start it with a profile of its own and open an empty page."""
        theirs, ours = os.pipe()
        our_end, their_end = os.pipe()
        # Chromium reads descriptor 3 and writes 4; moving ours out of the way first keeps dup2 from closing one.
        read = fcntl.fcntl(theirs, fcntl.F_DUPFD, 20)
        write = fcntl.fcntl(their_end, fcntl.F_DUPFD, 20)

        def connect() -> None:
            os.dup2(read, 3)
            os.dup2(write, 4)

        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=connect,
        )
        for descriptor in (theirs, their_end, read, write):
            os.close(descriptor)
        self._to, self._from = os.fdopen(ours, "wb", 0), os.fdopen(our_end, "rb")
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """The result of one command; events that arrive before it are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, page: Path, size: tuple[int, int] = DESK, *, dark: bool = False) -> None:
        """Load a file in a window of that size and wait for it."""
        self.events.clear()
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression (the page itself holds no script)."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def named(self, *methods: str) -> list[dict[str, Any]]:
        """The events of those kinds since the page was opened."""
        return [event for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        """End it."""
        self._to.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._from.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._from.fileno(), 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "id" not in message:
            self.events.append(message)
        return message


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kvbench.cli import main

    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", str(EXAMPLE), "--ttft-csv", str(PREFILL), "-o", str(path)]) == 0
    return path


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_nothing_is_asked_of_the_network_and_nothing_goes_wrong(
    browser: Browser, page: Path, size: tuple[int, int]
) -> None:
    browser.open(page, size)
    browser.run("1")
    asked = [event["params"]["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert browser.named("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    assert browser.run("document.scripts.length") == 0


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_first_screen_holds_the_verdict(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.open(page, size)
    bottom = browser.run("document.querySelector('.lede .pill').getBoundingClientRect().bottom")
    assert bottom <= size[1]
    assert browser.run("document.querySelector('.lede .pill').innerText") == "1 of 4 combinations viable"
    assert browser.run("document.querySelector('.matrix').getBoundingClientRect().bottom") <= size[1]
    if size == DESK:
        assert browser.run("document.querySelector('.contents').getBoundingClientRect().bottom") <= size[1]


def test_every_line_of_the_contents_leads_to_a_heading(browser: Browser, page: Path) -> None:
    browser.open(page)
    targets = "[...document.querySelectorAll('.contents a')].map(a => a.getAttribute('href').slice(1))"
    assert browser.run(f"{targets}.length") > 5
    assert browser.run(f"{targets}.filter(id => !document.getElementById(id))") == []
    headings = browser.run("[...document.querySelectorAll('main h2:not(.unseen)')].map(h => h.id)")
    assert browser.run(targets) == headings


def test_four_tiers_and_three_models_fit_the_first_screen(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html(four_by_three(tmp_path)))
    browser.open(path, (1280, 800))
    assert browser.run("document.querySelector('.matrix').getBoundingClientRect().bottom") <= 800
    assert browser.run("document.querySelectorAll('.matrix td').length") == 12
    assert browser.run("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, (width, 700))
    assert browser.run("document.documentElement.scrollWidth") <= width
    wide = browser.run("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length")
    assert (wide > 0) is (width < 1281)


def test_light_and_dark_differ_and_figures_follow(browser: Browser, page: Path) -> None:
    script = (
        "[document.body, document.querySelector('figure svg text')].map(e => getComputedStyle(e)).map(s => s.color)"
    )
    browser.open(page)
    light = browser.run(script)
    ink = browser.run("getComputedStyle(document.querySelector('#figure-target svg text')).fill")
    browser.open(page, dark=True)
    assert browser.run(script) != light
    assert browser.run("getComputedStyle(document.querySelector('#figure-target svg text')).fill") != ink


def test_it_prints_to_a4(browser: Browser, page: Path) -> None:
    browser.open(page)
    printed = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    sizes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([\d. ]+)\]", printed)}
    for left, bottom, width, height in sizes:
        assert (left, bottom) == (0, 0)
        assert sorted((width, height)) == pytest.approx([595, 842], abs=2)
    assert 2 <= len(re.findall(rb"/Type /Page\b", printed)) <= 20


def test_nothing_is_cut_on_paper(browser: Browser, page: Path) -> None:
    browser.open(page, (1040, 700))  # A4 landscape less its margins, where the wide tables go
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        cut = browser.run(
            "[...document.querySelectorAll('table, svg')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
            ".map(e => e.outerHTML.slice(0, 80))"
        )
        assert cut == []
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (DESK, True), (PHONE, False)])
def test_axe_finds_nothing(browser: Browser, page: Path, axe: str, size: tuple[int, int], dark: bool) -> None:
    browser.open(page, size, dark=dark)
    browser.run(axe + ";0")
    found = browser.run("axe.run(document, {resultTypes: ['violations']})")
    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]] == []
    assert len(found["passes"]) > 10


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    """The source of axe-core, fetched once by npm."""
    cache = getattr(request.config, "cache", None)
    npm = shutil.which("npm")
    if npm is None or cache is None:
        pytest.skip("npm is not installed, so axe-core cannot be fetched")
    folder: Path = cache.mkdir("axe-core")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", AXE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            pytest.skip(f"axe-core could not be installed: {done.stderr.strip().splitlines()[-1:]}")
    return script.read_text(encoding="utf-8")
