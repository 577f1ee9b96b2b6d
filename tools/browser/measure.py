"""Measures the pages in Chromium: what is transferred, and how long somebody waits. For a quiet machine.

Times are by the browser's own clock, from the moment at which a page is asked for, or at which something is clicked.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from threading import Thread
from typing import Final

from playwright.sync_api import Page, expect, sync_playwright

from lib.files import ROOT
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.locations import notebook_in
from tools.browser.build import on_a_visit
from tools.browser.serving import server

PACKED: Final = (".bin", ".zip")
"""What no host packs again."""
PATIENCE: Final = 60_000
PUZZLE: Final = "interleaved"
FIRST: Final = PUZZLES["ddp"].stem
PICTURE: Final = "ddp-9"
"""A cell that draws, and what it needs stands above it."""


def transferred(folder: Path) -> int:
    """Return the bytes of a visit as a host sends them: packed."""
    files = [path for path in folder.rglob("*") if path.is_file() and on_a_visit(path)]
    packed = (path.read_bytes() if path.suffix in PACKED else gzip.compress(path.read_bytes(), 6) for path in files)
    return sum(map(len, packed))


def measure(folder: Path) -> dict[str, float]:
    """Return figures by what they are, in seconds and MB."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    figures = {"transfer of all, packed (MB)": transferred(folder) / 1e6}
    expect.set_options(timeout=PATIENCE)
    with server(folder) as serving, sync_playwright() as playwright:
        Thread(target=serving.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
        page = browser.new_context(base_url=f"http://127.0.0.1:{serving.server_address[1]}/").new_page()
        page.goto(f"?p={FIRST}")
        _run(page, PICTURE)
        figures["fresh profile: first stored picture (s)"] = _mark(page, "stored output")
        figures["fresh profile: all cells shown (s)"] = _mark(page, "shown")
        figures["fresh profile: Python ready (s)"] = _mark(page, "ready")
        figures["fresh profile: first picture that Python drew (s)"] = _mark(page, "done")
        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        stem = PUZZLES[PUZZLE].stem
        page.goto(f"?p={stem}")
        expect(page.get_by_role("status")).to_have_text("Python is ready.")
        figures["next page: Python ready (s)"] = _mark(page, "ready")
        page.locator("#open").set_input_files(notebook_in(ROOT / "solutions", PUZZLE))
        expect(page.get_by_role("status")).to_contain_text("Opened")
        begun = float(page.evaluate("performance.now()"))
        page.get_by_role("button", name="Run all").click()
        expect(page.get_by_role("status")).to_have_text("Done.")
        figures[f"{PUZZLE}, solved: Run all (s)"] = _mark(page, "done") - begun / 1000
        check = page.locator(".cell", has_text=re.compile(rf"Model\.check\(.*puzzle=\"{PUZZLE}\"")).first
        gap = page.locator(".cell.mine").first
        gap.locator(".cm-line").first.click()
        page.keyboard.press("End")
        page.keyboard.insert_text("  # changed")
        check.scroll_into_view_if_needed()
        begun = float(page.evaluate("performance.now()"))
        check.get_by_role("button", name="Run").click()
        expect(page.get_by_role("status")).to_have_text("Done.")
        figures[f"{PUZZLE}: from Run to the verdict (s)"] = _mark(page, "done") - begun / 1000
        browser.close()
        serving.shutdown()
    return figures


def _run(page: Page, cell: str) -> None:
    page.locator(f'.cell[data-id="{cell}"]').get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_have_text("Done.")


def _mark(page: Page, name: str) -> float:
    """The seconds of the last mark of a name, but of what is there first the first."""
    place = 0 if name == "stored output" else -1
    return float(page.evaluate(f"performance.getEntriesByName('{name}').at({place}).startTime")) / 1000
