"""Readers: each process reads an example once, in the order of simulated time, and every device copies its own."""

from dataclasses import replace
from typing import Any

import pytest

from lib import UNIT, Costs, Mesh, Model, PuzzleError, RuleError, Trace, check, simulate
from lib.analysis.feeding import examples_read, on_device, rows_of, words
from lib.analysis.figures import samples
from lib.analysis.waiting.gaps import gaps
from lib.cluster.costs import ticks, units
from lib.cluster.reader import Readers, Reading
from lib.schedules.steps import backward, forward, load, loss, mine, step
from lib.trace.retiming import retime
from lib.values.values import HIDDEN, LENGTH

PAIR = Mesh({"data": 2}, processes=2)
COSTS = Costs(read=0.5, to_device=0.1)


def of(*times: float, number: int, fresh: tuple[int, ...], after: int | None) -> Reading:
    start, length, until = map(ticks, times)
    return Reading(number, start, length, fresh, after, until)


def test_a_process_reads_an_example_once() -> None:
    readers = Readers(COSTS, PAIR)
    assert readers.read(0, [1, 0], 0) == of(0, 1.2, 1, number=0, fresh=(0, 1), after=None)
    assert readers.read(1, [1], 0) == of(1, 0.1, 1, number=1, fresh=(), after=0)
    assert readers.read(1, [1, 2], ticks(0.2)) == of(1, 0.7, 1.5, number=2, fresh=(2,), after=0)
    assert readers.read(0, [0], ticks(5)) == of(5, 0.1, 5, number=3, fresh=(), after=None)


def test_devices_of_other_processes_pay_for_themselves() -> None:
    readers = Readers(COSTS, None)
    assert [readers.read(rank, [0], 0).number for rank in range(3)] == [0, 0, 0]
    assert [readers.read(rank, [0], 0).fresh for rank in range(3)] == [(), (), ()]
    assert readers.read(3, [0], 0).fresh == (0,)


def test_the_link_of_a_device_carries_one_copy_after_the_other() -> None:
    readers = Readers(Costs(to_device=2), PAIR)
    first, other, again = readers.read(0, [0], 0), readers.read(1, [0], 0), readers.read(0, [0], 0)
    assert [units(one.start) for one in (first, other, again)] == [0, 0, 2]
    assert (again.after, other.after) == (0, None)


def test_who_asks_first_in_simulated_time_is_served_first_whoever_is_stepped_first() -> None:
    async def step(model: Model) -> None:
        if model.rank == 0:
            model.forward(0, await model.read([0]), model.load_weights(0)[0])
        await model.read([1 + model.rank])

    def run(order: list[int]) -> Trace:
        rank = {rank: place for place, rank in enumerate(order)}
        models = simulate(
            step, layers=1, batches=3, mesh=PAIR, costs=COSTS, order=lambda ready: sorted(ready, key=rank.__getitem__)
        )
        return models[0].trace

    text = run([0, 1]).text()
    assert run([1, 0]).text() == text
    assert text.splitlines()[-2:] == ["0| D:0@0>0 W0@0.1>1,2 F0:0/0,1>3 D:1@2>4", "1| D:2@1>0"]
    assert Trace.parse(text).text() == text


def test_what_is_read_ahead_costs_no_time_and_has_memory_from_the_call_on() -> None:
    async def ahead(model: Model) -> None:
        weight, _ = model.load_weights(0)
        here = await model.read([0])
        work = model.read([1])
        model.forward(0, here, weight)
        model.forward(0, await work, weight)

    (model,) = simulate(ahead, layers=1, batches=2, costs=COSTS)
    trace = model.trace
    assert model.time == 0.6 + 2
    activations = [sample.by_kind.get("activation", 0) for sample in samples(trace, 0)]
    assert activations == [0, LENGTH * HIDDEN, 2 * LENGTH * HIDDEN, LENGTH * HIDDEN]


def test_reading_that_nobody_awaits_is_in_memory_to_the_end() -> None:
    async def forgets(model: Model) -> None:
        model.read([0])
        model.forward(0, await model.read([1]), model.load_weights(0)[0])

    (model,) = simulate(forgets, layers=1, batches=2, costs=COSTS)
    lives = model.trace.lifetimes()[0]
    assert lives.last[-1] == len(model.program.events)
    assert "did not await its read" in " ".join(check(model).notes)


async def whole(model: Model, batches: list[int], *, read: bool = True) -> Model:
    load(model)
    model.activations[0] = await model.read(batches) if read else model.get_activation(batches)
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    for layer in reversed(range(model.LAYERS)):
        model.grad_weights[layer] = await model.allreduce(backward(model, layer), layer)
        step(model, layer)
    return model


def test_data_that_was_read_is_honest() -> None:
    async def ddp(model: Model) -> Model:
        return await whole(model, [*mine(model)])

    models = simulate(ddp, mesh=PAIR, layers=2, batches=4, costs=COSTS)
    assert check(models).correct
    trace = models[0].trace
    assert examples_read(trace) == {0: 4}
    assert on_device(trace) == [2 * LENGTH * HIDDEN] * 2
    assert words(trace) == "one process read 4 examples, and each device got 262,144 elements of them"
    assert {gap.kind for gap in gaps(trace)} >= {"reader", "communication"}
    assert examples_read(retime(trace, UNIT)) == {0: 4}


def test_data_for_nothing_is_refused_where_reading_has_its_price() -> None:
    async def takes(model: Model) -> Model:
        return await whole(model, [model.rank], read=False)

    with pytest.raises(RuleError) as raised:
        simulate(takes, ranks=2, batches=2, costs=COSTS)
    assert "get_activation takes data that nobody has read" in str(raised.value)
    assert "await model.read(batches)" in str(raised.value)
    free = simulate(takes, ranks=2, batches=2, costs=Costs(to_device=0.1))
    assert check(free).correct
    assert examples_read(free[0].trace) == {0: 1, 1: 1}
    # A Trace that says that reading costs something, and takes its data for nothing:
    verdict = check(replace(free[0].trace, costs=COSTS))
    assert not verdict.correct
    assert "its data was taken with get_activation, for nothing" in verdict.faults[0]


def test_bad_batches_are_refused_at_the_call() -> None:
    wrong: list[Any] = [[], [7], 3, [[0]]]
    for batches in wrong:
        with pytest.raises(PuzzleError):
            simulate(lambda model, batches=batches: model.read(batches), batches=2, costs=COSTS)


def test_the_run_says_which_axes_cut_the_data() -> None:
    mesh = Mesh({"a": 2, "b": 2, "c": 2}, ranks=[3, 1, 0, 2, 7, 6, 5, 4])

    async def fed(model: Model) -> None:
        await model.read([model.coord["a"] * 2 + model.coord["c"]])

    rows = rows_of(simulate(fed, mesh=mesh, batches=4)[0].trace)
    assert rows.axes == ("a", "c")
    assert rows.ranks == mesh.rows("a", "c")
    assert rows.examples == tuple(frozenset([row]) for row in range(4))
    assert rows.shared(frozenset(range(4))) is None


def test_two_rows_that_hold_the_same_example() -> None:
    mesh = Mesh({"data": 4, "model": 2})

    async def fed(model: Model) -> None:
        await model.read([[0, 5, 2, 5][model.coord["data"]]])

    rows = rows_of(simulate(fed, mesh=mesh, batches=6)[0].trace)
    assert rows.shared(frozenset(range(6))) == "rows 1 and 3 hold the same example (batch 5)"
    assert rows.unread(frozenset(range(6))) == {1, 3, 4}
    alone = rows_of(simulate(fed, mesh=Mesh({"data": 4}), batches=6)[0].trace)
    assert alone.shared(frozenset(range(6))) == "ranks 1 and 3 hold the same example (batch 5)"
