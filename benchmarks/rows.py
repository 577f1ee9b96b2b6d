"""The rows of the table: for each what is measured, beside what, and how much more it may take.

A row is a function that yields samples, in an interpreter of its own. In each sample ours and the peer are measured
right after each other, so that both meet the same machine.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.peers import hand_overs, simpy_pipeline
from lib import LINKS, Costs, Dist, Model, Trace, check, retime, simulate
from lib.files import ROOT
from lib.schedules.data_parallel import ddp, fetching
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.suite.submissions.load import load_function


class Sample(NamedTuple):
    """Seconds of the processor (or bytes) of ours and of the peer, if there is one; and what else is to be said."""

    ours: float
    peer: float | None = None
    note: str = ""


class Row(NamedTuple):
    """A row: its name, its peer in words, the `most` that ours may be of the peer (or above it, or in units, as `kind`
    says), and how to measure it, quickly or well."""

    name: str
    peer: str
    most: float | None
    measure: Callable[[bool], Iterator[Sample]]
    kind: str


ROWS: dict[str, Row] = {}
START = 13.9e-3
"""Seconds in which bare Python started on the machine for which bounds in seconds were set."""


def row(name: str, peer: str = "", most: float | None = None, *, kind: str = "ratio") -> Any:
    """Put a function into the table. `kind` is "ratio" to the peer, "above" it in ms, or ours alone in "s" or "GB". In
    ms or s beside bare Python, the bound is that of a machine on which it takes START."""

    def put(measure: Callable[[bool], Iterator[Sample]]) -> Callable[[bool], Iterator[Sample]]:
        ROWS[name] = Row(name, peer, most, measure, kind)
        return measure

    return put


def cpu(act: Callable[[], Any]) -> float:
    """Return the seconds that this process computes to do something."""
    gc.collect()
    begun = time.process_time()
    act()
    return time.process_time() - begun


def in_turns(ours: Callable[[], Any], peer: Callable[[], Any], times: int, note: str = "") -> Iterator[Sample]:
    """Measure two things in turns."""
    for _ in range(times):
        yield Sample(cpu(ours), cpu(peer), note)


def _times(quick: bool, usual: int = 7) -> int:
    return 3 if quick else usual


# -- simulate -------------------------------------------------------------------------------------------------------


def _events(models: list[Model]) -> int:
    return sum(len(model.program.events) for model in models)


def _simulated(ranks: int) -> None:
    @row(f"simulate DDP, {ranks} ranks", "asyncio's bare hand-overs", 2.5)
    def measure(quick: bool) -> Iterator[Sample]:
        layers = max(2, (2000 if quick else 8000) // ranks)

        def run() -> list[Model]:
            return simulate(ddp, ranks=ranks, layers=layers, batches=ranks)

        events = _events(run())
        yield from in_turns(run, lambda: hand_overs(ranks, events // ranks), _times(quick, 25), f"{events:,} events")


def _gathered(ranks: int) -> None:
    @row(f"asyncio.gather of a world, {ranks:,} ranks", "simulate", 1.25)
    def measure(quick: bool) -> Iterator[Sample]:
        layers = max(2, (2000 if quick else 8000) // ranks)

        async def world() -> None:
            dist = Dist(ranks)
            models = [Model(rank, dist, layers, ranks) for rank in range(ranks)]
            await asyncio.gather(*(ddp(model) for model in models))

        def peer() -> None:
            simulate(ddp, ranks=ranks, layers=layers, batches=ranks)

        yield from in_turns(lambda: asyncio.run(world()), peer, _times(quick, 25))


for _ranks in (4, 16, 64, 256):
    _simulated(_ranks)
for _ranks in (4, 64, 1024):
    _gathered(_ranks)


@row("simulate 1F1B, 64 stages, 256 microbatches", "SimPy's bare events", 2.0)
def pipeline(quick: bool) -> Iterator[Sample]:
    """Simulate a pipeline with values, memory and Trace."""
    batches = 64 if quick else 256
    function = program_of(one_f_one_b(64, batches))

    def run() -> None:
        simulate(function, ranks=64, layers=64, batches=batches)

    yield from in_turns(run, lambda: simpy_pipeline(64, batches), _times(quick, 15))


MEMORY = """
from lib import simulate
from lib.schedules.data_parallel import ddp
models = simulate(ddp, ranks={ranks}, layers=2, batches={ranks})
print(next(int(line.split()[1]) / 2**20 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@row("memory of 100,000 ranks, DDP of 2 layers", "", 0.8, kind="GB")
def held(quick: bool) -> Iterator[Sample]:
    """Measure the most memory that a fresh process ever had."""
    part = 10 if quick else 1
    gigabytes = float(_python("-c", MEMORY.format(ranks=100_000 // part)).stdout)
    yield Sample(part * gigabytes, note=f"{part} times that of {100_000 // part:,} ranks" if quick else "")


# -- what is done with a run ----------------------------------------------------------------------------------------


def _checked(name: str, function: Any, ranks: int, layers: int, batches: int) -> None:
    @row(f"check {name}", "simulate", 2.0)
    def measure(quick: bool) -> Iterator[Sample]:
        size = {"ranks": ranks, "layers": layers // (4 if quick and function is ddp else 1), "batches": batches}

        def ours() -> float:
            # Another one each time, as a Trace keeps what was worked out. It is gone before the next run is made, which
            # would lie scattered around it.
            trace = Trace.of(simulate(function, **size))
            return cpu(lambda: check(trace))

        for _ in range(_times(quick, 21)):
            yield Sample(ours(), cpu(lambda: simulate(function, **size)))


_checked("DDP 4 x 2,000 layers", ddp, 4, 2000, 4)
_checked("DDP 64 x 128 layers", ddp, 64, 128, 64)
_checked("1F1B 16 x 64", program_of(one_f_one_b(16, 64)), 16, 16, 64)


def _timed(name: str, costs: Costs, first: bool, most: float | None) -> None:
    @row(f"retime 1F1B, {name}", "simulate", most)
    def measure(quick: bool) -> Iterator[Sample]:
        function = program_of(one_f_one_b(16, 64))

        def run() -> Trace:
            return Trace.of(simulate(function, ranks=16, layers=16, batches=64))

        again = retime(run(), costs)
        for _ in range(_times(quick)):
            trace = run() if first else again
            yield Sample(cpu(lambda trace=trace: retime(trace, costs)), cpu(run))


_timed("links not shared, the first time", Costs(forward=2.0), True, None)
_timed("links not shared", Costs(forward=2.0), False, 0.1)
_timed("links shared", LINKS, False, 0.6)


def _stored(name: str, most: float) -> None:
    @row(f"{name} a Trace of 111,000 events", "simulate it", most)
    def measure(quick: bool) -> Iterator[Sample]:
        size = {"ranks": 16, "layers": 250 if quick else 1156, "batches": 16}
        trace = Trace.of(simulate(ddp, **size))
        with TemporaryDirectory() as folder:
            path = Path(folder, "run.json")
            trace.save(path)
            note = f"{_number(trace):,} events, {path.stat().st_size / 1e6:.2f} MB"
            act = (lambda: trace.save(path)) if name == "save" else (lambda: Trace.load(path))
            yield from in_turns(act, lambda: simulate(ddp, **size), _times(quick, 5), note)


def _number(trace: Trace) -> int:
    return sum(len(program.events) for program in trace.programs)


_stored("save", 0.7)
_stored("load", 1.0)


# -- pictures, imports, commands ------------------------------------------------------------------------------------


@row("draw 16,422 operations", "bare Python", 0.3, kind="s")
def drawn(quick: bool) -> Iterator[Sample]:
    """Draw a pipeline of 16 ranks as SVG."""
    from drawing import draw

    batches = 40 if quick else 149
    models = simulate(program_of(one_f_one_b(16, batches)), ranks=16, layers=16, batches=batches)
    svg = draw(models).svg()
    note = f"{_events(models):,} operations, {len(svg.encode()) / 1e6:.2f} MB"
    for _ in range(_times(quick)):
        yield Sample(cpu(lambda: draw(models).svg()), _bare(), note)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def _child(*arguments: str) -> float:
    """Return the seconds that a fresh Python and its children compute."""
    before = getrusage(RUSAGE_CHILDREN)
    _python(*arguments)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _bare() -> float:
    """Return the seconds of bare Python: the median of some, as each is short."""
    return median(_child("-c", "pass") for _ in range(5))


def _started(name: str, most: float, *arguments: str) -> None:
    @row(name, "bare Python", most, kind="above")
    def measure(quick: bool) -> Iterator[Sample]:
        _child(*arguments)  # with what it compiles
        for _ in range(_times(quick, 15)):
            yield Sample(_child(*arguments), _bare())


_started("from lib import Model, simulate, check", 45, "-c", "from lib import Model, simulate, check")
for _words in ("run ddp", "check fsdp", "review gpipe", "draw ddp -o ddp.svg"):
    _started(f"puzzles {_words}", 500, "-c", "from lib.suite.cli.app import app; app()", *_words.split())


@row("a class of 500 graded, for 8 puzzles x 3 sizes of a student", "bare Python", 0.18, kind="s")
def graded(quick: bool) -> Iterator[Sample]:
    """Grade one student, for whom all is loaded and our own solutions run, as is done once for a class; then two
    classes, one twice as large: from both follows what a student costs."""
    from benchmarks.classes import grade_class

    students = 10 if quick else 50
    (once, _), (few, _), (many, answers) = (grade_class(number) for number in (1, students, 2 * students))
    each = (many - few) / students
    yield Sample(each + (once - each) / 500, _bare(), f"from {students} and {2 * students} students: {answers}")


# -- real processes -------------------------------------------------------------------------------------------------


def _replayed(name: str, function: Any, batches: int, library: str) -> None:
    @row(f"replay {name}, 4 gloo ranks", f"torch's {library.removeprefix('torch-')}", 1.0)
    def measure(quick: bool) -> Iterator[Sample]:
        from lib.replay import ReplayOptions, replay

        # Nearly all of a step is products of matrices, the same on both sides. On a shared machine neighbours differ by
        # 5 to 10 %, so the median of 40 is known within 1 to 2 %.
        size, steps = (256, 3) if quick else (1024, 40)
        options = ReplayOptions(
            dtype="float32", hidden=size, length=size, steps=steps, warmup=2, verify=False, timeout=300
        )
        result = replay(simulate(function, ranks=4, layers=4, batches=batches), options, against=(library,))
        (other,) = result.libraries
        for mine, theirs in zip(other.replay_cpu, other.cpu, strict=True):
            yield Sample(mine, theirs, f"of all ranks; {result.ratio(library):.2f} on the clock")


OVERLAP = ROOT / "solutions" / "alternatives" / "ddp_overlap_layer_by_layer.py"
_replayed("DDP with overlap", load_function(OVERLAP, "ddp_overlap"), 4, "ddp")
_replayed("FSDP with prefetching", fetching(1, 1), 4, "fsdp")
_replayed("1F1B", program_of(one_f_one_b(4, 8)), 8, "torch-pipelining")


def _begun(ranks: int) -> None:
    @row(f"start of {ranks} gloo ranks", "", None, kind="s")
    def measure(quick: bool) -> Iterator[Sample]:
        from lib.replay import replay

        trace = Trace.of(simulate(ddp, ranks=ranks, layers=2, batches=ranks))
        for _ in range(_times(quick, 5)):
            yield Sample(replay(trace, verify=False).startup)


for _ranks in (2, 4, 8, 16):
    _begun(_ranks)
