"""No cost grows faster than its work: a run four times as large takes at most 4.4 times as many lines of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from lib import LINKS, Mesh, Model, check, simulate
from lib.errors.source_lines import LIBRARY
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of

MOST = 4.4


def lines(run: Callable[[], object]) -> int:
    """Lines of lib that a run executes: the same number each time, whatever else the machine does."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return note if frame.f_code.co_filename.startswith(LIBRARY) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


async def sets(model: Model) -> None:
    """Take sets of all batches, again and again, as a step of many microbatches does."""
    for size in range(model.BATCHES):
        model.get_activation(range(size + 1))


async def summed(model: Model) -> None:
    """Add gradients up one by one. A union is one call of Python's own, whose numbers no line counts."""
    total = model.fake_grad(0)
    for number in range(model.BATCHES):
        total += model.fake_grad(0, [number])


async def kept(model: Model) -> None:
    """Keep many values alive, each in a local variable of its own."""
    weights = [model.load_weights(0)[0] for _ in range(model.BATCHES)]
    data = model.get_activation([0])
    for weight in weights:
        model.forward(0, data, weight)


async def under_way(model: Model) -> None:
    """Have all collectives under way before the first is awaited."""
    works = [model.allreduce(model.fake_grad(0), 0) for _ in range(model.BATCHES)]
    for work in works:
        await work


async def in_groups(model: Model) -> None:
    await model.allreduce(model.fake_grad(0), 0, "pair")


async def messages(model: Model) -> None:
    """Send all messages before the first is received."""
    if model.rank == 0:
        for number in range(model.BATCHES):
            model.pass_to(1, model.get_activation([number]))
    else:
        for _ in range(model.BATCHES):
            await model.receive(0)


async def into_one_link(model: Model) -> None:
    """Send to one rank at the same time, each rank as much as no other does."""
    if model.rank:
        await model.pass_to(0, model.get_activation(range(model.rank)))
    else:
        for work in [model.receive(rank) for rank in range(1, model.RANKS)]:
            await work


RUNS: dict[str, tuple[Callable[[int], object], int]] = {
    "events": (lambda n: simulate(ddp, ranks=2, layers=n, batches=2), 10),
    "ranks": (lambda n: simulate(ddp, ranks=n, layers=2, batches=n), 8),
    "ranks with shards": (lambda n: simulate(fsdp, ranks=n, layers=2, batches=n), 8),
    "batches in a set": (lambda n: simulate(sets, layers=1, batches=n), 20),
    "terms of a sum": (lambda n: simulate(summed, layers=1, batches=n), 20),
    "groups": (lambda n: simulate(in_groups, layers=1, mesh=Mesh({"row": n, "pair": 2})), 8),
    "live values": (lambda n: simulate(kept, layers=1, batches=n), 20),
    "communications under way": (lambda n: simulate(under_way, ranks=2, layers=1, batches=n), 20),
    "messages under way": (lambda n: simulate(messages, ranks=2, layers=1, batches=n), 20),
    "microbatches": (lambda n: simulate(program_of(one_f_one_b(4, n)), ranks=4, layers=4, batches=n), 10),
    "stages": (lambda n: simulate(program_of(one_f_one_b(n, 8)), ranks=n, layers=n, batches=8), 4),
    "flows into one link": (lambda n: simulate(into_one_link, ranks=n, layers=1, batches=n, costs=LINKS), 10),
    "links with a bandwidth": (lambda n: simulate(ddp, ranks=2, layers=n, batches=2, costs=LINKS), 10),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_work_of_a_run_grows_with_its_size(name: str) -> None:
    run, size = RUNS[name]
    run(size)  # what is loaded or looked up for the first time is no part of it
    run(4 * size)
    assert lines(lambda: run(4 * size)) <= MOST * lines(lambda: run(size))


CHECKS: dict[str, tuple[Callable[[int], list[Model]], int]] = {
    "layers of a rank": (lambda n: simulate(ddp, ranks=2, layers=n, batches=2), 10),
    "ranks": (lambda n: simulate(ddp, ranks=n, layers=2, batches=n), 8),
    "microbatches": (lambda n: simulate(program_of(one_f_one_b(4, n)), ranks=4, layers=4, batches=n), 10),
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_work_of_a_check_grows_with_the_run(name: str) -> None:
    run, size = CHECKS[name]
    small, large = run(size), run(4 * size)
    check(run(size))
    assert lines(lambda: check(large)) <= MOST * lines(lambda: check(small))
