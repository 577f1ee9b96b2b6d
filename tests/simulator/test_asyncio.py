"""The way of the original's notebooks: one task a rank in a running loop, and what else asyncio lets one do."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest

from lib import Dist, Mesh, Model, Trace
from lib.errors.exceptions import DeadlockError
from lib.simulator.recorder import Work
from lib.simulator.running_loop import AT_ONCE
from tests.support.drivers import DRIVERS, gather
from tests.support.schedules import ddp, pipeline_fsdp

TASKS: Any = asyncio.tasks


async def test_as_the_original_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def ddp_of_old(model: Model) -> Model:
        """Returns its Model, as the original's functions do."""
        await ddp(model)
        return model

    dist = Dist(4)
    out = await asyncio.gather(*[ddp_of_old(Model(layers=2, batches=4, rank=i, dist=dist)) for i in range(4)])
    assert [model.rank for model in out] == [0, 1, 2, 3]
    Model.check(out)
    assert capsys.readouterr().out.splitlines()[0] == "Correct!"


def test_the_collector_looks_seldom_while_ranks_run_and_then_as_before() -> None:
    ours, usual, meanwhile = gc.get_threshold(), (700, 10, 10), list[int]()

    async def total(model: Model) -> None:
        try:
            await model.allreduce(model.fake_grad(0, [model.rank]), 0)
            if model.rank == 0:  # one of the two that the last one wakes: the other goes on all the same
                raise KeyboardInterrupt
        finally:
            meanwhile.append(gc.get_threshold()[0])

    gc.set_threshold(*usual)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(gather(total, ranks=3, layers=1, batches=3))
        after = gc.get_threshold()
    finally:
        gc.set_threshold(*ours)
    assert (meanwhile, after) == ([1_000_000] * 3, usual)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_the_collector_is_as_before_though_a_loop_went_before_its_tasks_had_ended() -> None:
    async def total(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [model.rank]), 0)

    async def one_is_late(model: Model) -> None:
        if model.rank == 0:
            await asyncio.sleep(600)
        await total(model)

    before, loop = gc.get_threshold(), asyncio.new_event_loop()
    unfinished = loop.create_task(gather(one_is_late, ranks=3, layers=1, batches=3))
    loop.run_until_complete(asyncio.sleep(0.01))
    assert gc.get_threshold()[0] == 1_000_000
    loop.close()
    del loop, unfinished
    gc.collect()
    asyncio.run(gather(total, ranks=3, layers=1, batches=3))
    assert gc.get_threshold() == before


def test_an_interrupt_holds_up_none_of_those_that_were_woken_in_the_same_turn() -> None:
    went: list[tuple[int, None]] = []

    async def meet(model: Model) -> None:
        if model.rank < 3:
            await model.allreduce(model.fake_grad(0), 0, [0, 1, 2])
        if model.rank == 1:
            raise KeyboardInterrupt
        if model.rank:  # rank 0 is woken before rank 1, and wakes rank 3
            went.append((model.rank, await model.receive((model.rank + 1) % 4)))
        await model.pass_to((model.rank - 1) % 4, None)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(gather(meet, ranks=4, layers=1, batches=1))
    assert went == [(3, None)]


async def test_two_tasks_may_await_one_work() -> None:
    async def share(model: Model) -> None:
        for _ in range(5 * model.rank):  # so that the others wait already when the last one comes
            await asyncio.sleep(0)
        coming = model.allreduce(model.fake_grad(0), 0)

        async def wait() -> Any:
            return await coming

        first, second = await asyncio.gather(wait(), wait())
        assert first is second

    for model in await gather(share, ranks=3):
        assert [event.op for event in model.program.events] == ["fake_grad", "allreduce"]
        assert len(model.program.values) == 2


async def test_a_sandbox_in_a_notebook() -> None:
    model = Model(layers=2, batches=2)
    model.grad_weights[0] = model.fake_grad(0, [0, 1])
    assert await model.allreduce(model.grad_weights[0], 0) == model.grad_weights[0]
    assert (await model.scatterreduce(model.grad_weights[0], 0)).is_complete()
    assert model.time == 0.6


async def test_other_tasks_go_on_meanwhile_and_none_is_left_behind() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    other = asyncio.create_task(tick())
    before = asyncio.all_tasks()
    await gather(pipeline_fsdp, ranks=16, layers=4, batches=4)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    other.cancel()
    assert ticks > 5


@pytest.mark.parametrize("driver", DRIVERS)
def test_deep_recursion_of_hand_overs_is_no_problem(driver: str) -> None:
    async def chain(model: Model) -> None:
        got = 0 if model.rank == 0 else await model.receive(model.rank - 1)
        if model.rank < model.RANKS - 1:
            await model.pass_to(model.rank + 1, got + 1)
        else:
            assert got == model.RANKS - 1

    models = DRIVERS[driver](chain, ranks=sys.getrecursionlimit() + 200)
    assert models[-1].time == pytest.approx(0.4 * (len(models) - 1))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_collective_of_very_many(driver: str) -> None:
    async def reduce(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, []), 0)
        await model.allreduce(model.fake_grad(0, []), 0, "row")

    models = DRIVERS[driver](reduce, ranks=1024, mesh=Mesh({"row": 32, "column": 32}))
    assert {model.time for model in models} == {0.6}


def _in_pure_python(main: Coroutine[Any, Any, None]) -> None:
    """Run it as a notebook does whose loops may be nested (nest_asyncio): with tasks that are not of C."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_task_factory(lambda loop, main, **named: TASKS._PyTask(main, loop=loop, **named))
        runner.run(main)


@pytest.mark.parametrize("run", [asyncio.run, partial(asyncio.run, debug=True), _in_pure_python])
def test_a_world_may_go_on_in_another_loop(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    dist = Dist(2)
    models = [Model(rank, dist) for rank in range(2)]

    async def both_ways(model: Model) -> None:
        other = 1 - model.rank
        if model.rank:
            await model.receive(other)
        await model.pass_to(other, model.rank)
        if not model.rank:
            await model.receive(other)

    async def once() -> None:
        await asyncio.gather(*map(both_ways, models))

    run(once())
    run(once())
    assert [model.time for model in models] == pytest.approx([1.6, 1.4])


def test_a_rank_may_run_the_loop_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook with nest_asyncio, whose tasks are in Python: what it waits for must not wait for the rank."""
    monkeypatch.setattr(asyncio, "Task", TASKS._PyTask)
    monkeypatch.setattr(TASKS, "Task", TASKS._PyTask)
    loop, times = cast(Any, asyncio.new_event_loop()), list[float]()

    def run(task: asyncio.Task[Any]) -> None:
        while not task.done():
            assert loop._ready, "the loop has nothing to do"
            loop._ready.popleft()._run()

    async def total(model: Model) -> None:
        async def reduce() -> None:
            await model.allreduce(model.fake_grad(0), 0)

        for turn in range(8):
            if model.rank == 1 and turn % 2:
                inner, outer = loop.create_task(reduce()), asyncio.current_task()
                TASKS._leave_task(loop, outer)
                run(inner)
                TASKS._enter_task(loop, outer)
            else:
                await reduce()
        times.append(model.time)

    asyncio._set_running_loop(loop)
    try:
        run(loop.create_task(gather(total, ranks=3, layers=1, batches=1)))
    finally:
        asyncio._set_running_loop(None)
        loop.close()
    assert times == pytest.approx([2.4] * 3)


def test_others_have_their_turn_while_ranks_hand_over_to_each_other() -> None:
    turns: list[int] = []

    async def many(model: Model) -> None:
        for turn in range(10 * AT_ONCE):
            if (model.rank, turn) == (0, AT_ONCE):
                turns.append(turn)
                asyncio.get_running_loop().call_later(0, lambda: turns.append(len(model.program.events) // 2))
            await model.allreduce(model.fake_grad(0), 0)

    asyncio.run(gather(many, ranks=2, layers=1, batches=1))
    assert 0 < turns[1] - turns[0] < 3 * AT_ONCE


@pytest.mark.parametrize("driver", DRIVERS)
def test_of_several_waits_of_a_rank_the_first_is_told(driver: str) -> None:
    async def work(model: Model) -> None:
        waits = [model.allreduce(model.fake_grad(layer, []), layer) for layer in range(12 - 11 * model.rank)]
        await asyncio.gather(*(wait(one) for one in waits), *(wait(one) for one in waits[:3]))

    async def wait(one: Work[Any]) -> None:
        await one

    with pytest.raises(DeadlockError) as caught:
        DRIVERS[driver](work, ranks=2, layers=12, batches=2)
    assert "rank 0 waits in all-reduce #2, layer 1" in str(caught.value)


async def test_the_same_model_twice_is_no_run() -> None:
    dist = Dist(1)
    models = [Model(0, dist), Model(0, dist)]
    with pytest.raises(ValueError, match=r"^the Models of one run have one Dist and different ranks; these do not$"):
        Trace.of(models)
    with pytest.raises(ValueError, match="one Dist and different ranks"):
        Trace.of([Model(0, Dist(2)), Model(1, Dist(2))])
    with pytest.raises(ValueError, match="a Trace needs at least one Model; got none"):
        Trace.of([])
