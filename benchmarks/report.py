"""How long the pages of a class take to be written and to be opened, and how large they are.

`python benchmarks/report.py`: 500 students of 8 puzzles, few and then many distinct schedules. With the package
playwright and a browser, `--browser /usr/bin/chromium`, also how long the page of the class takes from the address to
the end of loading, to be in another order, and to show who is looked for.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from lib.suite.cli.grading.report import write_report
from tests.support.classes import class_of

STUDENTS = 500
TIMES = """async () => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const timed = async (act) => { const begun = performance.now(); act(); await painted();
    return performance.now() - begun; };
  const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
  const sort = await timed(() => document.querySelector("#table th:nth-child(2) button").click());
  const find = document.getElementById("find");
  const found = await timed(() => { find.value = "an"; find.dispatchEvent(new Event("input")); });
  return [loaded, sort, found];
}"""


def opened(page: Path, browser: str) -> list[float]:
    """Milliseconds until a page is loaded, sorted and filtered: the medians of five."""
    play: Any = import_module("playwright.sync_api").sync_playwright
    runs: list[list[float]] = []
    with play() as tools:
        chromium = tools.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(5):
            tab = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
            tab.goto(page.as_uri())
            runs.append(tab.evaluate(TIMES))
            tab.close()
        chromium.close()
    return [sorted(times)[2] for times in zip(*runs, strict=True)]


def main() -> None:
    """Prints a line for each class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", help="the program of a Chromium; needs the package playwright")
    browser = parser.parse_args().browser
    print(
        f"{'students x puzzles':<20} {'schedules':>9} {'s':>6} {'index, kB':>10} {'all, MB':>8}  load, sort, find (ms)"
    )
    for variants in (0, 40):
        book, traces = class_of(STUDENTS, variants=variants)
        shown = {score.own.schedule for student in book.students for score in student.scores} - {""}
        with TemporaryDirectory() as folder:
            begun = time.perf_counter()
            index = write_report(book, traces, Path(folder))
            took = time.perf_counter() - begun
            everything = sum(path.stat().st_size for path in Path(folder).rglob("*.*")) / 1e6
            size = index.stat().st_size / 1000
            times = "" if browser is None else ", ".join(f"{one:.0f}" for one in opened(index, browser))
            words = f"{len(book.students)} x {len(book.asked)}"
            print(f"{words:<20} {len(shown):>9} {took:>6.1f} {size:>10.0f} {everything:>8.1f}  {times}")


if __name__ == "__main__":
    main()
