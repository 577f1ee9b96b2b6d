"""How fast and how large pictures are. Each time is the best of several in this process, from Trace to SVG text, in
seconds that the process computes.

`python benchmarks/drawing.py`. Ratios are to the simulation of the same run, which is how a student meets them.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from drawing import compare as compare
from drawing import draw, draw_group
from drawing.comparing.review import picture_of_review
from lib import PUZZLES, Model, Trace, review, simulate
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import gaps
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference

CASES: tuple[tuple[str, Callable[[Model], Any], int, int, int], ...] = (
    ("DDP, 4 ranks", ddp, 4, 2, 4),
    ("1F1B, 16 ranks x 200 events (target 0.6 s, 500 kB)", program_of(one_f_one_b(16, 29)), 16, 16, 29),
    ("FSDP, 16 ranks x 200 events (target 0.6 s, 500 kB)", fsdp, 16, 24, 16),
    ("1F1B, 16 ranks x 1 024 events (target 0.4 s, 2 MB)", program_of(one_f_one_b(16, 149)), 16, 16, 149),
    ("1F1B, 64 ranks x 1 786 events", program_of(one_f_one_b(64, 256)), 64, 64, 256),
    ("DDP, 1 024 ranks x 26 events", ddp, 1024, 4, 1024),
)


def best(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and the last result."""
    shortest, result = float("inf"), None
    for _ in range(repeats):
        begun = time.process_time()
        result = run()
        shortest = min(shortest, time.process_time() - begun)
    return shortest, result


def reviews() -> None:
    """Prints a line a puzzle: simulate, review (with a run of the reference), and the picture, together and apart."""
    print(f"{'from run to review (target 0.5 s)':<52} {'s':>7} {'of simulate':>12} {'picture':>8} {'kB':>7}")
    for puzzle in [record.id for record in PUZZLES.values() if not record.is_function]:
        function = load_function(reference(puzzle), puzzle)
        simulated, models = best(lambda f=function, p=puzzle: simulate(f, puzzle=p), 5)
        review(models, puzzle=puzzle)  # the first one in a process imports and resolves source lines
        reviewed, found = best(lambda m=models, p=puzzle: review(m, puzzle=p), 5)
        painted, svg = best(lambda r=found: picture_of_review(r).svg(), 5)
        whole = simulated + reviewed + painted
        kilobytes = len(svg.encode()) / 1000
        print(f"  {puzzle:<50} {whole:>7.3f} {whole / simulated:>12.1f} {painted:>8.3f} {kilobytes:>7.0f}")
    trace = Trace.of(simulate(program_of(one_f_one_b(16, 29)), ranks=16, layers=16, batches=29))
    seconds, _ = best(lambda: [what(replace(trace)) for what in (gaps, critical_path)], 5)  # with nothing kept yet
    print(f"gaps and critical path of 1F1B, 16 ranks x 200 events (target 0.2 s) {seconds:.3f} s")


def main() -> None:
    """Prints a line a picture."""
    print(f"{'':<52} {'events':>8} {'s':>7} {'of simulate':>12} {'kB':>7}")
    for name, function, ranks, layers, batches in CASES:
        simulated, models = best(
            lambda f=function, r=ranks, n=layers, b=batches: simulate(f, ranks=r, layers=n, batches=b), 3
        )
        with redirect_stdout(io.StringIO()):
            seconds, svg = best(lambda m=models: draw(m).svg(), 5 if ranks < 64 else 2)
        events = sum(len(model.program.events) for model in models)
        print(f"{name:<52} {events:>8} {seconds:>7.3f} {seconds / simulated:>12.1f} {len(svg.encode()) / 1000:>7.0f}")
    models = simulate(ddp, ranks=4, layers=6, batches=4)
    seconds, _ = best(lambda: draw_group(models[0].final_weights).svg(), 5)
    print(f"draw_group of 6 weights {1000 * seconds:.1f} ms")
    other = simulate(fsdp, ranks=4, layers=6, batches=4)
    seconds, _ = best(lambda: compare(ddp=models, fsdp=other).svg(), 5)
    print(f"compare of two runs of 4 ranks x 6 layers {1000 * seconds:.1f} ms")
    reviews()
    for code in ("import chalk", "import lib", "import drawing"):
        timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        root = Path(__file__).parent.parent
        found = [
            subprocess.run([sys.executable, "-c", timed], cwd=root, capture_output=True, check=True) for _ in range(5)
        ]
        print(f"{code} {1000 * min(float(run.stdout) for run in found):.0f} ms")


if __name__ == "__main__":
    main()
