"""order: who meets whom, as it stands in the programs."""

from dataclasses import FrozenInstanceError, replace

import pytest

from lib import UNIT, Model, Trace, simulate
from lib.analysis.dependencies import causes_of
from lib.analysis.figures import peak, traffic
from lib.trace.order import meetings, messages
from tests.support.changes import changed


def test_a_collective_that_never_started_did_not_take_place() -> None:
    async def two(model: Model) -> None:
        for layer in range(2):
            await model.allreduce(model.fake_grad(layer, []), layer)

    trace = Trace.of(simulate(two, ranks=2, layers=2))
    assert meetings(trace) == [[(0, 1), (1, 1)], [(0, 3), (1, 3)]]
    for program in trace.programs:
        program.events[3].start = None
    assert meetings(replace(trace)) == [[(0, 1), (1, 1)]]
    assert meetings(changed(trace, 1, events=trace.programs[1].events[:1])) == []


def test_what_follows_from_a_run_is_worked_out_once_and_a_trace_does_not_change() -> None:
    async def one(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, []), 0)

    trace = Trace.of(simulate(one, ranks=2, layers=1))
    for ask in (messages, meetings, peak, traffic, causes_of, Trace.lifetimes, Trace.rebuilt, Trace.normalised):
        before = ask(trace)
        assert ask(trace) is before
        assert ask(replace(trace)) is not before
    with pytest.raises(FrozenInstanceError):
        trace.costs = UNIT  # type: ignore[misc]
    timed = trace.normalised()
    assert timed.normalised() is timed  # a review asks its own run, which has been rebuilt and timed already


def test_a_trace_is_a_run_as_it_was_when_somebody_asked() -> None:
    seen: list[Trace] = []

    def two(model: Model) -> None:
        model.load_weights(0)
        seen.append(model.trace)
        model.load_weights(0)

    (model,) = simulate(two, layers=1)
    assert [len(one.programs[0].events) for one in (*seen, model.trace)] == [1, 2]
