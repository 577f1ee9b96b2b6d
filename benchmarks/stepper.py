"""How large the interactive view is, how long it takes to make, and how soon it is ready in a headless Chromium.

`python benchmarks/stepper.py`. Each time is the best of several. `ready` is `performance.now()` when the page has drawn
itself and listens; `step` is a press of an arrow key until the next frame but one, which is 33 ms at least.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from drawing.pages.view import View, step_through
from lib import Model, simulate
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of

CASES = (
    ("DDP, 4 ranks x 26 events", ddp, 4, 4, 4),
    ("1F1B, 16 ranks x 200 events (targets 1 MB, 1 s)", program_of(one_f_one_b(16, 29)), 16, 16, 29),
    ("FSDP, 16 ranks x 194 events", fsdp, 16, 24, 16),
    ("1F1B, 64 ranks x 1 786 events, the first ranks", program_of(one_f_one_b(64, 256)), 64, 64, 256),
)
REPEATS = 5
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


def measure(page: Page, path: Path) -> tuple[float, float]:
    """Milliseconds until the page is ready, and for a step."""
    ready, step = float("inf"), float("inf")
    for _ in range(REPEATS):
        page.goto(path.as_uri())
        ready = min(ready, float(page.evaluate("document.documentElement.dataset.ready")))
        for _ in range(10):
            begun = time.perf_counter()
            page.keyboard.press("ArrowRight")
            page.evaluate(PAINTED)
            step = min(step, 1000 * (time.perf_counter() - begun))
    return ready, step


def make(models: list[Model]) -> tuple[float, View]:
    """The shortest time that a page takes to make, in seconds, and the page."""
    spent, view = float("inf"), step_through(models)
    for _ in range(REPEATS):
        begun = time.perf_counter()
        view = step_through(models)
        view.html()
        spent = min(spent, time.perf_counter() - begun)
    return spent, view


def main() -> None:
    """Prints a line a page."""
    program = which("chromium")
    print(f"{'':<52} {'events':>8} {'kB':>7} {'notebook kB':>12} {'make ms':>8} {'ready ms':>9} {'step ms':>8}")
    for name, function, ranks, layers, batches in CASES:
        models = simulate(function, ranks=ranks, layers=layers, batches=batches)
        spent, view = make(models)
        events = sum(len(model.program.events) for model in models)
        alone, inline = (len(text.encode()) / 1000 for text in (view.html(), view._repr_mimebundle_()["text/html"]))
        line = f"{name:<52} {events:>8} {alone:>7.0f} {inline:>12.0f} {1000 * spent:>8.0f}"
        if program is not None:
            with TemporaryDirectory() as folder, sync_playwright() as play:
                browser = play.chromium.launch(executable_path=program, args=["--disable-gpu"])
                ready, step = measure(browser.new_page(), view.save(Path(folder, "page.html")))
                browser.close()
            line += f" {ready:>9.0f} {step:>8.0f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
