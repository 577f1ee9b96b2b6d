"""What is said of orders, files, sweeps and lists that cannot be: each with its kind of error, to the letter."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lib import Layer, Mesh, Trace, Uneven, schedule, simulate, stages
from lib.schedules import gallery, steps
from lib.schedules.formats import orders, trace
from lib.schedules.formats.chrome import read_slices
from lib.schedules.mesh_parallel import domain_parallel
from lib.schedules.pipelines import action, generators, legality, lowering, program, timing
from lib.schedules.pipelines.generators import one_f_one_b
from tests.support.puzzles import way
from tests.support.said import Said

FILES = {path.stem: Said(path, kinds=True) for path in sorted(Path(__file__).with_name("said").glob("*.txt"))}
ROOMS = (gallery, steps, orders, trace, action, generators, legality, lowering, program, timing)
NAMES = {name: value for room in ROOMS for name, value in vars(room).items()}
STUDENTS = """
KEPT = ["F0", "F1"]
says = lambda *words: lambda rank, ranks, batches: [*words]
async def coroutine(rank, ranks, batches): return ["F0"]
async def coroutine_of_stages(layers, ranks): return [1, 1]
def too_far(rank, ranks, batches): return ["F0", "B0"] if rank == 0 else ["F0", "B0"][2:][0]
"""
"""A text of its own: where a mistake is does not depend on the lines of this file."""
exec(STUDENTS, NAMES)


def recorded(data: bytes | None, name: str = "trace.json", read: Callable[[Path], Any] = read_slices) -> Any:
    """What is read of a file with this in it; None for a folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.mkdir() if data is None else path.write_bytes(data)
        return read(path)


def official(puzzle: str) -> Trace:
    return Trace.of(simulate(way(puzzle), puzzle=puzzle))


def written(function: Any, batches: int = 2, mesh: Mesh | None = None) -> Any:
    return simulate(schedule(function), ranks=None if mesh else 2, layers=2, batches=batches, mesh=mesh, budget=500)


def refused(
    parts: Any = None, rows: int = 12, kernel: int = 3, stride: int = 1, axes: dict[str, int] | None = None
) -> str:
    """What is said on a mesh, of three ranks along rows unless it is another one, before any rank waits."""
    layers = [Layer("convolution", 3, 3, rows, kernel=kernel, padding=kernel // 2, stride=stride)]
    with pytest.raises(Exception, match="rank 0") as raised:
        simulate(domain_parallel(parts or {}), layers=layers, mesh=Mesh(axes or {"rows": 3}))
    return "\n".join(line for line in str(raised.value).splitlines() if not line.startswith("  where:"))


def staged(function: Any) -> Any:
    costs = Uneven(layers=(1, 1, 1, 1, 1, 3))
    return simulate(stages(one_f_one_b)(function), ranks=2, layers=6, batches=2, costs=costs)


@pytest.mark.parametrize(("file", "call"), [(name, call) for name, said in FILES.items() for call in said.texts])
def test_what_is_said(file: str, call: str) -> None:
    FILES[file].check(call, globals() | NAMES)
