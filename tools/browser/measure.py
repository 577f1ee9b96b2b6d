"""Measures the pages in Chromium: what is transferred, and how long somebody waits. For a quiet machine.

Times are by the browser's own clock, from the moment at which a page is asked for, or at which something is clicked.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Final

from playwright.sync_api import Locator, Page, expect, sync_playwright

from lib.files import ROOT
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.locations import notebook_in
from tools.browser.build import on_a_visit, python
from tools.browser.serving import server

PACKED: Final = (".bin", ".zip")
"""What no host packs again."""
PATIENCE: Final = 60_000
PAUSE: Final = 100
"""Milliseconds between two looks."""
DONE: Final = "performance.getEntriesByName('done').length"
PUZZLE: Final = "interleaved"
FIRST: Final = PUZZLES["ddp"].stem
TURNS: Final = 7
BARE: Final = """async ([lock]) => {
  const program = `import {loadPyodide} from "${new URL("pyodide/pyodide.mjs", location)}";
    const begun = performance.now();
    loadPyodide({indexURL: "${new URL("pyodide/", location)}", lockFileContents: ${JSON.stringify(lock)}, packages: []})
      .then(() => postMessage(performance.now() - begun));`;
  const worker = new Worker(URL.createObjectURL(new Blob([program], {type: "text/javascript"})), {type: "module"});
  const time = await new Promise((resolve, reject) =>
    Object.assign(worker, {onmessage: ({data}) => resolve(data), onerror: reject}));
  worker.terminate();
  return time;
}"""
"""Loads Pyodide alone in a worker: what the machine needs for that just now."""
MARK_TEXT: Final = """(out, text) => new MutationObserver((_, observer) => {
  if (!out.textContent.includes(text)) return;
  performance.mark("text");
  observer.disconnect();
}).observe(out, {childList: true})"""
"""Marks when an output has a text that it has not yet: a run takes the old one away first."""
VERDICT: Final = "Correct!"
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
        _until_done(page.locator(f'.cell[data-id="{PICTURE}"]').get_by_role("button", name="Run"))
        figures["fresh profile: first stored picture (s)"] = _mark(page, "stored output")
        figures["fresh profile: all cells shown (s)"] = _mark(page, "shown")
        figures["fresh profile: Python ready (s)"] = _mark(page, "ready")
        figures["fresh profile: first picture that Python drew (s)"] = _mark(page, "done")
        while not page.evaluate("performance.getEntriesByName('remembered').length"):
            page.wait_for_timeout(200)
        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        page.goto("licences.txt")  # which has no policy
        bare = float(page.evaluate(BARE, [python(folder)["lock"]])) / 1000
        figures["for comparison: Pyodide alone, its files at hand (s)"] = bare
        page.goto(f"?p={FIRST}")
        _until_done(page.locator(f'.cell[data-id="{PICTURE}"]').get_by_role("button", name="Run"))
        figures["next page: Python ready (s)"] = _mark(page, "ready")
        figures["next page: first picture that Python drew (s)"] = _mark(page, "done")
        page.goto(f"?p={PUZZLES[PUZZLE].stem}")
        expect(page.get_by_role("status")).to_have_text("Python is ready.")
        page.locator("#open").set_input_files(notebook_in(ROOT / "solutions", PUZZLE))
        expect(page.get_by_role("status")).to_contain_text("Opened")
        figures[f"{PUZZLE}, solved: Run all (s)"] = _until_done(page.get_by_role("button", name="Run all"))
        check = page.locator(".cell", has_text=re.compile(rf"Model\.check\(.*puzzle=\"{PUZZLE}\"")).first
        gap, times = page.locator(".cell.mine").first, list[float]()
        for _ in range(TURNS):
            gap.locator(".cm-line").first.click()
            page.keyboard.press("End")
            page.keyboard.insert_text("  # changed")
            check.locator(".out").evaluate(MARK_TEXT, VERDICT)
            _until_done(check.get_by_role("button", name="Run"))
            times.append(_mark(page, "text") - _mark(page, "clicked"))
        figures[f"{PUZZLE}: from Run to the verdict, the first time (s)"] = times[0]
        figures[f"{PUZZLE}: from Run to the verdict, the median of {TURNS} (s)"] = median(times)
        browser.close()
        serving.shutdown()
    return figures


def _until_done(button: Locator) -> float:
    """Click, and return the seconds until the page has shown all that came of it. The click is the page's own: one that
    playwright makes takes a while to arrive."""
    page, before = button.page, button.page.evaluate(DONE)
    button.evaluate("(button) => { performance.mark('clicked'); button.click(); }")
    # Marks are counted, and only then the page is looked at: to look for a text keeps it busy for longer than a check.
    for _ in range(PATIENCE // PAUSE):
        page.wait_for_timeout(PAUSE)
        if page.evaluate(DONE) > before:
            break
    expect(page.get_by_role("status")).to_have_text("Done.")
    return _mark(page, "done") - _mark(page, "clicked")


def _mark(page: Page, name: str) -> float:
    """The seconds of the last mark of a name, but of what is there first the first."""
    place = 0 if name == "stored output" else -1
    return float(page.evaluate(f"performance.getEntriesByName('{name}').at({place}).startTime")) / 1000
