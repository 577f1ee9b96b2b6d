"""Nothing hangs: whoever waits for what can never come is told, at once, by both drivers, with everybody's state."""

import asyncio
import re
import sys
from typing import Any

import pytest

from lib import DeadlockError, Dist, Mesh, MismatchError, Model, PuzzleError, RankFailed, simulate
from tests.support.drivers import DRIVERS, Run, gather
from tests.support.profiles import THOROUGH
from tests.support.said import Said


def state(error: PuzzleError) -> list[str]:
    """What the message says of each rank, without the lines in which they are."""
    assert error.got is not None
    return [text.strip().partition(" (line ")[0] for text in error.got.splitlines()]


def test_ranks_that_call_different_collectives_at_the_same_place_disagree(run: Run) -> None:
    """Even where not all of them have come: that says more than that they wait."""

    async def differ(model: Model) -> None:
        if model.rank < 2:
            await model.allreduce(model.fake_grad(model.rank), model.rank)

    with pytest.raises(MismatchError) as raised:
        run(differ, ranks=3)
    assert raised.value.ranks == (0, 1)


@pytest.mark.parametrize("culprit", [0, 1, 3])
async def test_under_asyncio_the_culprit_raises_its_own_error_and_the_others_hear_of_it(culprit: int) -> None:
    async def fail(model: Model) -> None:
        await model.allreduce(model.fake_grad(0), 0)
        if model.rank == culprit:
            raise KeyError("mine")
        await model.allreduce(model.fake_grad(1), 1)

    where = f"rank {culprit}: KeyError: 'mine'\n  where:    test_deadlock.py, line "
    with pytest.raises(KeyError) as raised:
        await gather(fail, ranks=4)
    assert raised.value.__notes__[0].startswith(where)
    found = await everybody(fail, 4)
    assert [type(error) for error in found] == [KeyError if rank == culprit else RankFailed for rank in range(4)]
    assert {str(error).startswith(where) for error in found if isinstance(error, RankFailed)} == {True}


async def everybody(function: Any, ranks: int) -> list[Any]:
    """What gather with `return_exceptions` brings of each rank."""
    dist = Dist(ranks)
    models = [Model(rank, dist) for rank in range(ranks)]
    return await asyncio.gather(*[function(model) for model in models], return_exceptions=True)


async def test_gather_that_returns_exceptions_gets_a_deadlock_from_all_who_wait() -> None:
    async def skip(model: Model) -> str:
        if model.rank != 1:
            await model.allreduce(model.fake_grad(0), 0)
        return "done"

    found = await everybody(skip, 3)
    assert [type(item) for item in found] == [DeadlockError, str, DeadlockError]
    assert str(found[0]) == str(found[2])
    assert found[0] is not found[2], "each task has an error of its own, with its own traceback"


async def test_a_mismatch_hits_the_others_too() -> None:
    """Who comes last raises it; who waits hears that a rank failed."""

    async def differ(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [0]), 0)

    assert [type(error) for error in await everybody(differ, 3)] == [RankFailed, RankFailed, MismatchError]


async def test_ranks_that_nobody_started() -> None:
    dist = Dist(4)
    with pytest.raises(DeadlockError) as raised:
        await asyncio.gather(*[reduced(Model(rank, dist)) for rank in (0, 1)])
    assert state(raised.value) == [
        "rank 0 waits in all-reduce #1, layer 0: ranks 0 and 1 came, ranks 2 and 3 did not",
        "rank 1 waits in all-reduce #1, layer 0: ranks 0 and 1 came, ranks 2 and 3 did not",
        "rank 2 does not exist: Model(rank=2, dist=dist) was never made",
        "rank 3 does not exist: Model(rank=3, dist=dist) was never made",
    ]
    assert raised.value.fix == "start all 4 ranks: ranks 2 and 3 missing; Dist(4) needs as many Models"
    assert raised.value.trace.ranks == 4


async def test_a_rank_that_sleeps_or_awaits_something_of_its_own_is_no_deadlock() -> None:
    async def slow(model: Model) -> None:
        if model.rank == 1:
            await asyncio.sleep(0.05)
        await reduced(model)
        if model.rank == 0:
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.02, future.set_result, None)
            await future
        await reduced(model)

    assert [model.time for model in await gather(slow, ranks=3)] == [0.6] * 3


@pytest.mark.timeout(3)
async def test_ranks_played_by_hand_in_one_task() -> None:
    """As in a cell of a notebook: the task that plays rank 0 is the one that waits as rank 1."""
    dist = Dist(2)
    zero, one = Model(0, dist), Model(1, dist)
    await zero.pass_to(1, "hello")
    assert await one.receive(0) == "hello"
    with pytest.raises(DeadlockError) as raised:
        await one.receive(0)
    assert "rank 1 waits to receive from rank 0" in state(raised.value)
    with pytest.raises(ValueError, match="has seen a run that failed") as used:
        Model(0, dist)
    assert str(used.value) == "this Dist has seen a run that failed; make a new one: dist = Dist(...)"


@pytest.mark.timeout(3)
async def test_ranks_played_by_hand_that_disagree() -> None:
    dist = Dist(2)
    zero, one = Model(0, dist), Model(1, dist)
    first, second = zero.allreduce(zero.fake_grad(0), 0), one.pass_to(0, "hello")
    await second
    with pytest.raises(DeadlockError):
        await first


async def test_a_group_of_tasks_is_cancelled_without_noise() -> None:
    async def skip(model: Model) -> None:
        if model.rank == 2:
            raise KeyError("mine")
        await reduced(model)

    dist = Dist(3)
    with pytest.raises(BaseExceptionGroup) as raised:  # noqa: PT012
        async with asyncio.TaskGroup() as group:
            for rank in range(3):
                group.create_task(skip(Model(rank, dist)))
    assert [type(error) for error in raised.value.exceptions] == [KeyError]


async def test_cancelling_everybody_ends() -> None:
    async def wait(model: Model) -> None:
        if model.rank == 0:
            await asyncio.sleep(60)
        await model.allreduce(model.fake_grad(0), 0)

    dist = Dist(3)
    tasks = [asyncio.create_task(wait(Model(rank, dist))) for rank in range(3)]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) for error in found)


async def test_two_worlds_in_one_loop_do_not_meet() -> None:
    async def skip(model: Model) -> None:
        if model.rank == 0:
            await reduced(model)

    good, bad = await asyncio.gather(everybody(reduced, 2), everybody(skip, 2))
    assert good == [None, None]
    assert [type(item) for item in bad] == [DeadlockError, type(None)]


async def reduced(model: Model) -> None:
    await model.allreduce(model.fake_grad(0), 0)


async def chain(model: Model) -> None:
    await model.receive((model.rank - 1) % model.RANKS)


async def skipped(model: Model) -> None:
    if model.rank:
        await reduced(model)


async def every_second(model: Model) -> None:
    if model.rank % 2:
        await reduced(model)


async def from_anybody(model: Model) -> None:
    await model.receive()


async def no_room(model: Model) -> None:
    for number in range(2):
        await model.pass_to((model.rank + 1) % model.RANKS, number)


async def opposite(model: Model) -> None:
    await model.receive((model.rank + model.RANKS // 2) % model.RANKS)


async def gone_astray(model: Model) -> None:
    await model.pass_to((model.rank + 2) % model.RANKS, "hello")
    await model.receive((model.rank - 1) % model.RANKS)


async def one_raises(model: Model) -> None:
    if model.rank == model.RANKS - 1:
        raise KeyError("mine")
    await model.allreduce(model.fake_grad(0), 0)


async def stages(model: Model) -> None:
    if model.rank:
        await model.receive(model.group("stage")[model.coord["stage"] - 1])


async def received_twice(model: Model) -> None:
    if model.rank == 1:
        await model.receive()
        await model.receive()
    elif model.rank == 2:
        await model.pass_to(1, "first")


async def passed_twice(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, "one")
        await model.pass_to(1, "two")


async def groups_in_two_orders(model: Model) -> None:
    for axis in ("row", "column") if model.rank in (0, 3) else ("column", "row"):
        await model.allreduce(model.fake_grad(0), 0, axis)


async def collective_before_message(model: Model) -> None:
    if model.rank == 0:
        await model.receive(1)
    await model.allreduce(model.fake_grad(0), 0)
    if model.rank == 1:
        await model.pass_to(0, "too late")


MANY = [chain, skipped, every_second, from_anybody, no_room, opposite, gone_astray, one_raises, stages]


def calls_of(run: Run, function: Any, ranks: int) -> int:
    """How many calls of functions a run takes until it has failed."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run(function, ranks=ranks, mesh=Mesh({"stage": ranks}))
    except (PuzzleError, KeyError):
        return count
    finally:
        sys.setprofile(None)
    raise AssertionError("it was to fail")


@pytest.mark.parametrize("function", MANY, ids=lambda function: function.__name__)
def test_twice_the_ranks_take_about_twice_the_work(function: Any, run: Run) -> None:
    calls_of(run, function, 10)  # what is imported or cached is so by now
    few, many = (calls_of(run, function, ranks) for ranks in (50, 200))
    assert many < 6 * few


@pytest.mark.parametrize("function", MANY, ids=lambda function: function.__name__)
def test_many_ranks_make_no_very_long_message(function: Any) -> None:
    ranks = 10_000 if THOROUGH else 500
    with pytest.raises(PuzzleError) as raised:
        simulate(function, ranks=ranks, mesh=Mesh({"stage": ranks}))
    text = str(raised.value)
    assert len(text) < 2500
    assert text.count("test_deadlock.py") == 1
    assert len(text.splitlines()) < 26


def waits(function: Any, ranks: int = 12, **mesh: int) -> str:
    """What each rank waits for, with both drivers, as `simulate` says it."""
    said: list[list[str]] = []
    for run in DRIVERS.values():
        with pytest.raises(DeadlockError) as raised:
            run(function, ranks=ranks, mesh=Mesh(mesh) if mesh else None)
        texts = [
            raised.value.what,
            *state(raised.value),
            f"expected: {raised.value.expected}",
            f"fix: {raised.value.fix}",
        ]
        said.append([re.sub("not begun, or (is|are) over", "finished", text) for text in texts])
    assert said[0] == said[1]
    return "\n".join(said[0])


test_what_a_group_of_ranks_waits_for = Said(__file__, "groups").test(lambda: globals())


async def test_of_many_ranks_that_nobody_made() -> None:
    dist = Dist(20)
    with pytest.raises(DeadlockError) as raised:
        await asyncio.gather(*[skipped(Model(rank, dist)) for rank in range(2)])
    assert state(raised.value)[2] == "ranks 2-19 do not exist: their Models were never made"
