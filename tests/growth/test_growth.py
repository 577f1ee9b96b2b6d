"""No cost grows faster than its work: a run four times as large takes at most 4.4 times as many lines of ours, and goes
through at most 4.4 times as many items of lists."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import pytest

from lib import LINKS, Mesh, Model, Trace, check, simulate
from lib.errors.source_lines import LIBRARY
from lib.schedules.data_parallel import ddp, fsdp
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of

MOST = 4.4
SEARCHES = ("index", "count", "remove", "insert", "copy", "reverse")


class Cost(NamedTuple):
    """Lines of lib that a run executes, and items of lists and tuples that methods of Python's own go through for it,
    where one line may go through any number. (Of `x in items` nothing tells.) The same numbers each time, whatever else
    the machine does."""

    lines: int
    searched: int

    @classmethod
    def of(cls, run: Callable[[], object]) -> Cost:
        lines = searched = 0

        def note(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return note

        def enter(frame: FrameType, event: str, _: Any) -> Any:
            return note if frame.f_code.co_filename.startswith(LIBRARY) else None

        def called(frame: FrameType, event: str, method: Any) -> None:
            nonlocal searched
            if event == "c_call" and getattr(method, "__name__", "") in SEARCHES:
                items: object = method.__self__
                if isinstance(items, list | tuple) and frame.f_code.co_filename.startswith(LIBRARY):
                    searched += len(cast("list[object]", items))

        before = sys.gettrace(), sys.getprofile()
        sys.settrace(enter)
        sys.setprofile(called)
        try:
            run()
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
        return cls(lines, searched)

    def fits(self, small: Cost) -> bool:
        """Tell whether it is no more than a run may cost that does four times as much as another one."""
        return self.lines <= MOST * small.lines and self.searched <= MOST * small.searched


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
    run(size)  # what is loaded or looked up for the first time is not a part of it
    run(4 * size)
    assert Cost.of(lambda: run(4 * size)).fits(Cost.of(lambda: run(size)))


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
    assert Cost.of(lambda: check(large)).fits(Cost.of(lambda: check(small)))


@pytest.mark.parametrize("name", CHECKS)
def test_the_work_of_a_file_grows_with_the_run(name: str, tmp_path: Path) -> None:
    run, size = CHECKS[name]
    costs: list[Cost] = []
    for factor in (1, 1, 4):  # what is loaded for the first time is not a part of it
        trace = Trace.of(run(factor * size))
        costs.append(Cost.of(lambda trace=trace: trace.save(tmp_path / "run.json")))
        costs.append(Cost.of(lambda: Trace.load(tmp_path / "run.json")))
    assert costs[4].fits(costs[2])
    assert costs[5].fits(costs[3])


def test_a_list_that_is_searched_for_each_item_is_found_out() -> None:
    """What the lines alone do not show: one of ours calls `index` for each of its items."""
    space: dict[str, Any] = {}
    code = "def places(items):\n return [items.index(item) for item in items]"
    exec(compile(code, f"{LIBRARY}/none.py", "exec"), space)
    small, large = (Cost.of(lambda n=n: space["places"]([*range(n)])) for n in (10, 40))
    assert large.lines <= MOST * small.lines
    assert (small.searched, large.searched) == (100, 1600)
    assert not large.fits(small)
