"""What a replay measures, in flight included, is what was simulated: event by event, however the ranks hurry.

Of random training steps, see tests/adversary.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from lib import PUZZLES, Costs, Model, Trace, simulate
from lib.replay import ReplayResult, replay
from lib.suite.course.solutions import alternatives
from lib.trace.event import Event
from tests.replay.hooks import hooked
from tests.replay.schedules import answer, besides, compared, compute, fitting, trace
from tests.support.profiles import sample

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

SMALL: dict[str, Any] = {"hidden": 24, "length": 4, "timeout": 120}
SCHEDULES = [record for record in PUZZLES.values() if not record.is_function]
ALTERNATIVES = sample((record.id, path) for record in SCHEDULES for path in alternatives(record.id))


def exact(result: ReplayResult) -> ReplayResult:
    """A replay that is right, and where each event finds just the bytes that are alive according to the simulator."""
    assert result.ok, result.text()
    assert all(0 <= measured - alive <= besides(result, at[0]) for at, measured, alive in compared(result))
    return result


@pytest.mark.parametrize(("puzzle", "path"), ALTERNATIVES, ids=[path.stem for _, path in ALTERNATIVES])
def test_alternative_solutions(puzzle: str, path: Path) -> None:
    schedule = answer(puzzle, path.stem.removeprefix(f"{puzzle}_"))
    exact(replay(schedule, transport="local", **fitting(schedule, SMALL)))


def test_a_sender_that_is_ahead_waits_for_its_receiver() -> None:
    """In real time rank 1 comes late to everything; rank 0 holds what the Trace says all the same."""
    schedule = trace("ahead")

    def late(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if rank == 1 and event.op in ("forward", "receive"):
            time.sleep(0.1)

    result = exact(hooked(schedule, late, **SMALL))
    assert max(one.in_flight for one in result.ranks) == 0  # rank 0 still counts what is not received


async def late(model: Model) -> None:
    """What is summed up in the background is used meanwhile, so the sum needs a buffer of its own."""
    weight, state = model.load_weights(0)
    (grad,) = compute(model, [model.rank], {0: weight}).values()
    work = model.allreduce(grad, 0)
    half = grad.shard(0, 2)
    spare = model.allreduce(half.combine(grad.shard(1, 2)), 0)
    await spare
    model.set_final_weight(0, model.update(0, await work, weight, state)[0])


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_a_sum_in_the_background_is_not_in_place_where_its_input_is_used(transport: str) -> None:
    result = exact(replay(simulate(late, ranks=2, layers=1, batches=2), transport=transport, **SMALL))
    assert result.ranks[0].in_flight == 24 * 24 * 8


async def uneven(model: Model) -> None:
    """A broadcast in the background whose members' halves differ by a number; then training."""
    zero = model.fake_grad(0).shard(model.rank, 2)
    work = model.broadcast(zero, 0, root=1)
    del zero
    weight, state = model.load_weights(0)
    (grad,) = compute(model, [model.rank], {0: weight}).values()
    await work
    model.set_final_weight(0, model.update(0, await model.allreduce(grad, 0), weight, state)[0])


def test_a_broadcast_over_a_part_that_is_a_number_shorter() -> None:
    schedule = Trace.of(simulate(uneven, ranks=2, layers=1, batches=2))
    result = replay(schedule, transport="local", hidden=5, length=4)
    assert result.ok, result.text()
    assert all(abs(measured - alive) <= 8 for _, measured, alive in compared(result))


def test_what_was_sent_is_not_overwritten_before_it_is_received() -> None:
    """Rank 1 comes late to what rank 0 has added its own to, in the same memory."""

    def late(rank: int, index: int, event: Event, tensors: dict[int, Any]) -> None:
        if rank == 1 and event.op == "pass_to":
            time.sleep(0.2)

    assert hooked(trace("overwritten"), late, **SMALL).ok


def test_a_message_that_is_not_gone_in_time_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody waits for messages to be gone, more is in flight than simulated, and it is measured."""
    monkeypatch.setattr("lib.replay.plan._gone_before", lambda *_: None)
    result = replay(trace("ahead"), transport="local", **SMALL)
    assert result.ranks[0].in_flight == 2 * 24 * 4 * 8
    assert any(measured > alive for _, measured, alive in compared(result))


async def instant(model: Model) -> None:
    """Rank 1 asks for a message at the very moment at which rank 0 does two things."""
    here = model.rank
    weight, state = model.load_weights(here)
    data = [model.get_activation([batch]) for batch in range(2)]
    if here == 0:
        await model.pass_to(1, model.forward(0, data[0], weight))
        model.forward(0, data[0], weight)
        await model.allreduce(model.fake_grad(0), 0, group=[0])
        model.forward(0, data[0], weight)
        await model.pass_to(1, model.forward(0, data[1], weight))
        grads = [model.backward(0, one, await model.receive(1), weight)[0] for one in data]
    else:
        spare, _ = model.load_weights(0)
        for _ in range(2):
            model.forward(0, data[0], spare)
        grads = []
        for _ in data:
            x = await model.receive(0)
            grad, back = model.backward(1, x, model.loss(model.forward(1, x, weight)), weight)
            grads.append(grad)
            await model.pass_to(0, back)
    model.set_final_weight(here, model.update(here, grads[0] + grads[1], weight, state)[0])


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_what_ranks_do_at_the_same_time(transport: str) -> None:
    """From the very instant of its receive a message is not its sender's, in whatever order ranks get there."""
    costs = Costs(p2p=0, collective=0)
    schedule = Trace.of(simulate(instant, ranks=2, layers=2, batches=2, costs=costs))
    (asked,) = {event.issued for event in schedule.programs[1].events if event.op == "receive"} & {
        event.issued for event in schedule.programs[0].events if event.op == "allreduce"
    }
    assert sum(event.issued == asked for event in schedule.programs[0].events) >= 2
    exact(replay(schedule, transport=transport, **SMALL))
