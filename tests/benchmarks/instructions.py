"""How many instructions of Python's six programs take: the same on every machine, where seconds are not.

`python -m tests.benchmarks.instructions` writes `instructions.json` anew for the Python that runs it; a change that
makes a program cheaper or dearer on purpose brings its new figures with it. Nothing here needs pytest, so any Python
with the sources can run it.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from lib import Costs, Dist, Model, Trace, check, retime, simulate
from lib.schedules.data_parallel import ddp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of

FILE = Path(__file__).with_suffix(".json")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def instructions(act: Callable[[], Any]) -> int:
    """Count what the interpreter steps through to do something."""
    count = 0

    def step(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return step

    before = sys.gettrace()
    gc.disable()  # or what is thrown away at some time would count
    sys.settrace(step)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


async def gathered() -> None:
    dist = Dist(8)
    await asyncio.gather(*(ddp(Model(rank, dist, 8, 8)) for rank in range(8)))


def programs(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the programs by name; files are written into a folder."""
    pipeline = program_of(one_f_one_b(4, 8))

    def trace() -> Trace:
        return Trace.of(simulate(pipeline, ranks=4, layers=4, batches=8))

    checked, timed, saved = trace(), trace(), trace()

    def stored() -> None:
        saved.save(folder / "run.json")
        Trace.load(folder / "run.json")

    return {
        "simulate DDP": lambda: simulate(ddp, ranks=8, layers=8, batches=8),
        "gather DDP": lambda: asyncio.run(gathered()),
        "simulate 1F1B": trace,
        "check 1F1B": lambda: check(checked),
        "retime 1F1B": lambda: retime(timed, Costs(forward=2.0)),
        "save and load 1F1B": stored,
    }


def counted() -> dict[str, int]:
    """Count all programs, each after it was run once: what is imported and worked out once does not count."""
    with TemporaryDirectory() as folder:
        for act in programs(Path(folder)).values():
            act()
        instructions(lambda: None)  # Python 3.12 traces instructions from the second time on
        return {name: instructions(act) for name, act in programs(Path(folder)).items()}


if __name__ == "__main__":
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    known[PYTHON] = counted()
    FILE.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")
    print(json.dumps(known[PYTHON], indent=1))
