"""rebuild: what a Trace says of its values is not believed, and one that is no program says where it is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lib import Activation, Model, Trace, TraceError, Weight, check, simulate
from lib.program import Event
from lib.rebuild import rebuild
from tests.lib.schedules import EVERYTHING, Case, basic


def of_basic() -> Trace:
    """A small run, whose program has room for values that nobody makes."""
    trace = Trace.of(simulate(basic, layers=1, batches=1))
    trace.programs[0].values.extend([None] * 9)
    return trace


def event(trace: Trace, op: str) -> Event:
    return next(event for _, event in trace.events() if event.op == op)


def uses_the_future(trace: Trace) -> None:
    event(trace, "forward").inputs = (2, 9)


def has_one_result_more(trace: Trace) -> None:
    event(trace, "loss").outputs += (3,)


def has_no_layer(trace: Trace) -> None:
    event(trace, "forward").layer = None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (uses_the_future, "rank 0 uses value 9 before it exists"),
        (has_one_result_more, "rank 0: loss has 1 results, the Trace says 2"),
        (has_no_layer, "an operation that needs a layer has none"),
    ],
)
def test_a_trace_that_is_no_program(damage: Callable[[Trace], None], message: str) -> None:
    trace = of_basic()
    damage(trace)
    with pytest.raises(TraceError) as raised:
        rebuild(trace)
    assert str(raised.value) == message
    assert check(trace).faults[0] == message


def test_nobody_waits_twice() -> None:
    async def later(model: Model) -> None:
        work = model.allreduce(model.fake_grad(0, []), 0)
        model.get_activation([0])
        await work

    trace = Trace.of(simulate(later, ranks=1, layers=1, batches=1))
    program = trace.programs[0]
    program.events.append(program.events[-1].copy())
    with pytest.raises(TraceError) as raised:
        rebuild(trace)
    assert str(raised.value) == "rank 0 waits twice for one allreduce"


def test_what_a_run_that_failed_did_not_do_is_not_made() -> None:
    trace = of_basic()
    trace.error = "it failed"
    uses_the_future(trace)
    made: list[Any] = rebuild(trace).run.programs[0].values
    assert made[:3] == trace.programs[0].values[:3]
    assert made[3:] == [None] * len(made[3:])


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
def test_what_an_event_is_about_follows_from_its_values(case: Case) -> None:
    """Times depend on it, so a Trace is not believed; only of the data are batches what was asked for."""
    trace = Trace.of(case.run(simulate))
    said = [(event.op, event.layer, event.batches) for _, event in trace.events()]
    for _, one in trace.events():
        if one.op not in ("get_activation", "fake_grad"):
            one.batches = frozenset([77])
        if one.op in ("loss", "get_activation", "add", "combine", "shard", "pass_to", "receive", "wait"):
            one.layer = 77
    assert [(event.op, event.layer, event.batches) for _, event in rebuild(trace).run.events()] == said


def test_that_goes_for_values_made_by_hand_and_for_messages_of_none_too() -> None:
    async def hands(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, Weight(1, 2, 0).shard(0, 2))
            await model.pass_to(1, "nothing")
            model.forward(0, Activation(0, 2, [1], 2), model.load_weights(0)[0])
            await model.pass_to(1, model.fake_grad(1, [0, 1]))
        else:
            for _ in range(3):
                await model.receive(0)

    trace = Trace.of(simulate(hands, ranks=2, layers=2, batches=2))
    said = [(event.op, event.layer, event.batches) for _, event in trace.events()]
    for _, one in trace.events():
        if one.op in ("foreign", "pass_to", "receive"):
            one.layer, one.batches = 77, frozenset([77])
    assert [(event.op, event.layer, event.batches) for _, event in rebuild(trace).run.events()] == said
