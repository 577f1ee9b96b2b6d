"""How fast the simulator is: `make bench`. Each figure is the best of several runs in this one process or call.

Seconds are those that the process computes: what else is going on on the machine counts less.
Ratios against another program are taken in turns in the same run, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import simpy

from lib import LINKS, Costs, Layer, Model, check, retime, simulate
from lib.analysis.figures import makespan
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.schedules.pipelines.timing import time_order

REPEATS = 5


def best(run: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """The shortest of several runs in seconds, and the last result."""
    shortest, result = float("inf"), None
    for _ in range(repeats):
        result = None  # let the last one's memory go first
        begun = time.process_time()
        result = run()
        shortest = min(shortest, time.process_time() - begun)
    return shortest, result


def events(models: list[Model]) -> int:
    """Recorded events of all ranks."""
    return sum(len(model.program.events) for model in models)


def data_parallel() -> Iterator[tuple[str, float, str]]:
    """Events a second with full accounting and trace, at 4 to 256 ranks (about 50 000 events each)."""
    for ranks, layers in ((4, 2000), (16, 500), (64, 128), (256, 32)):
        seconds, models = best(lambda r=ranks, n=layers: simulate(ddp, ranks=r, layers=n, batches=r))
        yield f"DDP {ranks} ranks x {layers} layers", events(models) / seconds, "events/s (target 200 000)"


def many_ranks() -> Iterator[tuple[str, float, str]]:
    """Very many ranks."""
    seconds, _ = best(lambda: simulate(fsdp, ranks=10_000, layers=4, batches=10_000), 2)
    yield "FSDP 10 000 ranks x 4 layers", seconds, "s (target 5)"


def inside_a_layer() -> Iterator[tuple[str, float, str]]:
    """Keys and values that go round 64 ranks, layer by layer, for an event of DDP in the same run."""

    def layers(tokens: int) -> list[Layer]:
        kinds = (Layer(outputs=1024, rows=tokens), Layer("attention", rows=tokens, heads=4, kv_heads=4))
        return [
            replace(kind, of=(2 * layer, 2 * layer + 1)[: 1 + place])
            for layer in range(16)
            for place, kind in enumerate(kinds)
        ]

    async def ring(model: Model) -> None:
        data = model.shard(model.get_activation(range(model.BATCHES)), "rows", model.rank, model.RANKS)
        for layer in range(0, model.LAYERS, 2):
            keys = model.forward(layer, data, model.load_weights(layer)[0])
            coming = model.shift(keys, layer + 1)
            out = model.forward(layer + 1, data, keys)
            for step in range(1, model.RANKS):
                keys = await coming
                if step < model.RANKS - 1:
                    coming = model.shift(keys, layer + 1)
                out = out + model.forward(layer + 1, data, keys)
            data = out

    plain, models = best(lambda: simulate(ddp, ranks=64, layers=128, batches=64))
    plain /= events(models)
    for tokens in (256, 10**6):
        seconds, models = best(lambda n=tokens: simulate(ring, ranks=64, layers=layers(n), batches=1), 2)
        yield (
            f"ring attention, 64 ranks x 16 layers, {tokens:,} tokens",
            seconds / events(models) / plain,
            "of DDP's event",
        )


def simpy_pipeline(stages: int, batches: int) -> None:
    """The sends, receives and computations of `one_f_one_b` in SimPy: times only, no values, no memory, no log."""
    env = simpy.Environment()
    boxes = {(a, b): simpy.Store(env) for a in range(stages) for b in (a - 1, a + 1)}

    def rank(stage: int) -> Iterator[Any]:
        last = stages - 1

        def forward() -> Iterator[Any]:
            if stage:
                yield boxes[stage - 1, stage].get()
                yield env.timeout(0.2)
            yield env.timeout(1)
            if stage != last:
                yield env.timeout(0.2)
                yield boxes[stage, stage + 1].put(1)

        def backward() -> Iterator[Any]:
            if stage != last:
                yield boxes[stage + 1, stage].get()
                yield env.timeout(0.2)
            yield env.timeout(1)
            if stage:
                yield env.timeout(0.2)
                yield boxes[stage, stage - 1].put(1)

        warm = min(batches, last - stage + 1)
        for _ in range(warm):
            yield from forward()
        for batch in range(batches):
            yield from backward()
            if batch + warm < batches:
                yield from forward()

    for stage in range(stages):
        env.process(rank(stage))
    env.run()


def pipeline() -> Iterator[tuple[str, float, str]]:
    """1F1B with 64 stages and 256 microbatches: ours with values, memory and trace, against bare SimPy."""
    ours, theirs = float("inf"), float("inf")
    models: list[Model] = []
    function = program_of(one_f_one_b(64, 256))
    for _ in range(REPEATS):
        models = []
        seconds, models = best(lambda: simulate(function, ranks=64, layers=64, batches=256), 1)
        ours = min(ours, seconds)
        theirs = min(theirs, best(lambda: simpy_pipeline(64, 256), 1)[0])
    yield "1F1B 64 x 256, simulate", ours, "s"
    yield "1F1B 64 x 256, SimPy without accounting", theirs, "s"
    yield "1F1B 64 x 256, ratio to SimPy", ours / theirs, "(target 2)"
    seconds, _ = best(lambda: check(models[0].trace), 1)
    yield "1F1B 64 x 256, check", seconds, "s"


def timed_anew() -> Iterator[tuple[str, float, str]]:
    """A run timed anew under other costs, as a part of what simulating it takes: the first time, and later ones."""
    programs = {
        "DDP 16 x 100": (ddp, {"ranks": 16, "layers": 100, "batches": 16}),
        "1F1B 16 x 64": (program_of(one_f_one_b(16, 64)), {"ranks": 16, "layers": 16, "batches": 64}),
    }
    for name, (function, size) in programs.items():
        simulated, models = best(lambda f=function, s=size: simulate(f, **s))
        for costs, kind in ((Costs(forward=2.0), ""), (LINKS, ", shared links")):
            first, _ = best(lambda m=models, c=costs: makespan(retime(m[0].trace, c)))
            run = retime(models[0].trace, costs)
            later, _ = best(lambda r=run, c=costs: makespan(retime(r, c)))
            yield f"{name}, retime{kind}, ratio to simulate", first / simulated, ""
            yield f"{name}, later ones{kind}, ratio to simulate", later / simulated, "" if kind else "(target 0.1)"


def orders() -> Iterator[tuple[str, float, str]]:
    """Orders for 64 ranks and 512 microbatches, made and timed without values; and the timer against bare SimPy."""
    for name in ("interleaved", "zb_v"):
        row = SCHEDULES[name]
        seconds, _ = best(lambda make=row.make: time_order(make(64, 512), message=0.4))
        yield f"{row.title} 64 x 512, generated and timed", seconds, "s (target 2)"
        seconds, _ = best(lambda make=row.make: time_order(make(64, 512), message=0.4, messages="awaited"), 2)
        yield f"{row.title} 64 x 512, with messages awaited", seconds, "s"
    ours, theirs = float("inf"), float("inf")
    for _ in range(REPEATS):
        ours = min(ours, best(lambda: time_order(one_f_one_b(64, 256), message=0.4, messages="awaited"), 1)[0])
        theirs = min(theirs, best(lambda: simpy_pipeline(64, 256), 1)[0])
    yield "1F1B 64 x 256, order timer, ratio to SimPy", ours / theirs, ""


LARGE = """
import os, time
from lib import simulate
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import program_of
order = SCHEDULES["{name}"].order(64, 512)
begun = time.process_time()
program = program_of(order, messages="{messages}")
made = time.process_time()
models = simulate(program, ranks=64, layers=128, batches=512)
took = time.process_time() - made
status = "/proc/self/status"  # and not ru_maxrss: a process takes over that of the one which started it
lines = open(status).readlines() if os.path.exists(status) else []
most = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
print(made - begun, took, *(most or ["nan"]))
"""
"""A pipeline of two stages a rank, in an interpreter of its own: seconds, and the most memory that it ever had."""


def large_pipelines() -> Iterator[tuple[str, float, str]]:
    """64 ranks with 512 microbatches, simulated with values, memory and trace; and by what SimPy takes for a fourth."""
    root = Path(__file__).parent.parent
    for name, messages in product(("interleaved", "zb_v"), ("awaited", "posted")):
        runs: list[list[float]] = []
        theirs = float("inf")
        for _ in range(2):
            code = LARGE.format(name=name, messages=messages)
            run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
            runs.append([*map(float, run.stdout.split())])
            theirs = min(theirs, best(lambda: simpy_pipeline(64, 256), 1)[0])
        made, ours, memory = map(min, zip(*runs, strict=True))
        yield f"{name} 64 x 512, {messages}, made a program", made, "s"
        yield f"{name} 64 x 512, {messages}, simulate", ours, "s (target 5)"
        yield f"{name} 64 x 512, {messages}, ratio to SimPy", ours / (4 * theirs), ""
        yield f"{name} 64 x 512, {messages}, memory", memory, "MB (target 700)"


def imports() -> Iterator[tuple[str, float, str]]:
    """What a program waits for in a fresh interpreter, without the interpreter's own start."""
    root = Path(__file__).parent.parent
    for line, target in (("import lib", 60), ("from lib import Model, simulate, check", 100)):
        code = f"import time; t = time.perf_counter(); {line}; print(time.perf_counter() - t)"
        seconds = min(
            float(subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True).stdout)
            for _ in range(10)
        )
        yield line, 1000 * seconds, f"ms (target {target})"


SECTIONS = {
    f.__name__: f
    for f in (imports, data_parallel, many_ranks, inside_a_layer, pipeline, timed_anew, orders, large_pipelines)
}


def main() -> None:
    """Prints one line a figure; with --json also as data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="which to run (all)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    print(f"{platform.python_implementation()} {platform.python_version()} on {platform.machine()}")
    found: dict[str, float] = {}
    for name in arguments.sections or SECTIONS:
        for what, figure, unit in SECTIONS[name]():
            found[what] = figure
            print(f"{what:<44} {figure:>12,.2f} {unit}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
