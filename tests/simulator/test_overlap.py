"""Calling starts a communication, `await` waits for it. What overlaps with what: tests/adversary, by the oracle."""

from typing import Any

import pytest
from hypothesis import given

from lib import ForgottenAwait, Model, Work, simulate
from lib.cluster.costs import ticks
from lib.trace.event import Event
from tests.support.drivers import Run, encoded
from tests.support.random_programs import Schedule, Step, run, schedules


def test_a_work_says_what_it_is_and_awaiting_twice_brings_the_same_and_waits_once(run: Run) -> None:
    async def twice(model: Model) -> None:
        coming = model.allreduce(model.fake_grad(0), 0)
        assert isinstance(coming, Work)
        assert repr(coming) == "<allreduce, to be awaited>"
        assert not hasattr(coming, "layer")
        assert getattr(coming, "batches", None) is None
        first = await coming
        assert await coming is first
        assert model.time == 0.3

    (model, _) = run(twice, ranks=2)
    assert [event.op for event in model.program.events] == ["fake_grad", "allreduce"]


PLACES: dict[str, Any] = {
    "store": lambda model, work: model.weights.__setitem__(0, work),
    "store.update": lambda model, work: model.weights.update({0: work}),
    "store |=": lambda model, work: model.weights.__ior__({0: work}),
    "store.setdefault": lambda model, work: model.weights.setdefault(0, work),
    "attribute": lambda model, work: work.layer,
    "method": lambda model, work: work.is_complete(),
    "memory": lambda model, work: work.memory(),
    "combine": lambda model, work: work.combine(model.fake_grad(0)),
    "shard": lambda model, work: work.shard(0, 2),
    "forward": lambda model, work: model.forward(0, model.get_activation([0]), work),
    "forward, input": lambda model, work: model.forward(0, work, model.load_weights(0)[0]),
    "loss": lambda model, work: model.loss(work),
    "update": lambda model, work: model.update(0, work, *model.load_weights(0)),
    "set_final_weight": lambda model, work: model.set_final_weight(0, work),
    "allreduce": lambda model, work: model.allreduce(work, 0),
    "allgather": lambda model, work: model.allgather(work, 0),
    "scatterreduce": lambda model, work: model.scatterreduce(work, 0),
    "broadcast": lambda model, work: model.broadcast(work, 0),
    "alltoall, one value": lambda model, work: model.alltoall([work, work], 0),
    "alltoall": lambda model, work: model.alltoall(work, 0),
    "pass_to": lambda model, work: model.pass_to(1 - model.rank, work),
    "pass_to, in a tuple": lambda model, work: model.pass_to(1 - model.rank, (0, work)),
    "sum from the left": lambda model, work: work + model.fake_grad(0),
    "sum from the right": lambda model, work: model.fake_grad(0) + work,
    "combine from the right": lambda model, work: model.fake_grad(0).shard(0, 2).combine(work),
    "item": lambda model, work: work[0],
    "loop": lambda model, work: list(work),
    "unpacking": lambda model, work: (lambda a, b: None)(*work),
    "len": lambda model, work: len(work),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_forgotten_await_is_called_that(place: str) -> None:
    async def forget(model: Model) -> None:
        coming = model.allreduce(model.fake_grad(0), 0)
        with pytest.raises(ForgottenAwait) as raised:
            PLACES[place](model, coming)
        assert str(raised.value).startswith(f"rank {model.rank}: ")
        assert "\n  got:      a call of model.allreduce, not awaited yet\n" in str(raised.value)
        assert ": coming = await model.allreduce(model.fake_grad(0), 0)" in str(raised.value.fix)

    simulate(forget, ranks=2)


def test_what_is_under_way_is_read_as_it_stands_and_once_over_as_one_event() -> None:
    seen: list[Event] = []

    async def look(model: Model) -> None:
        work = model.pass_to(0, model.fake_grad(0)) if model.rank else model.receive(1)
        seen.extend(model.program.events[-1:])
        await work

    program = simulate(look, ranks=2, layers=1)[0].program
    assert [(event.op, event.start, event.outputs, event.peer) for event in (seen[0], *program.events)] == [
        ("receive", None, (), 1),
        ("receive", ticks(0.2), (0,), 1),
    ]
    assert program.events[0] is program.events[0] is not seen[0]


@given(schedules())
def test_a_run_that_is_read_on_the_way_is_the_same_and_says_what_it_says_at_the_end(schedule: Schedule) -> None:
    so_far: list[tuple[Model, list[tuple[str, int]], list[Any]]] = []

    class Read(Schedule):
        def start(self, model: Model, step: Step, place: int) -> Any:
            so_far.append((model, [(event.op, event.issued) for event in model.program.events], model.log))
            return super().start(model, step, place)

    reading = run(Read(schedule.ranks, schedule.steps, schedule.costs, schedule.bare, schedule.mesh))
    assert encoded(reading) == encoded(run(schedule))
    for model, did, log in so_far:
        assert did == [(event.op, event.issued) for event in model.program.events[: len(did)]]
        assert {(one.typ, one.time) for one in log} <= {(one.typ, one.time) for one in model.log}
