"""What is sent follows from the row of a collective: figures, replay and calibration all say the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import pytest

from lib import Links, Model, Trace, check, retime, simulate
from lib.analysis.figures import end, traffic
from lib.replay import ReplayResult, calibrate, replay
from lib.schedules.formats.timelines.perfetto import perfetto
from lib.values.kinds.kind import PRICED
from tests.replay.schedules import compute

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

HIDDEN, LENGTH = 48, 24
WEIGHT = HIDDEN * HIDDEN
"""Divides into halves, thirds and quarters: all figures are exact."""
ORDERS = {"as they are": (0, 1, 2), "turned": (2, 0, 1), "reversed": (2, 1, 0)}


class Exchanged(NamedTuple):
    """A collective of three ranks beside a training step, by place in the group; and what all members send together,
    in weights."""

    act: Callable[[Model, int, tuple[int, ...]], Any]
    sent: Fraction


def pieces(model: Model, *shards: int, total: int = 4) -> Any:
    """Some shards of a gradient of nothing."""
    zero = model.fake_grad(0)
    found = zero.shard(shards[0], total)
    for shard in shards[1:]:
        found = found.combine(zero.shard(shard, total))
    return found


async def even_gather(model: Model, place: int, group: tuple[int, ...]) -> None:
    await model.allgather(pieces(model, place, total=3), 0, group)


async def uneven_gather(model: Model, place: int, group: tuple[int, ...]) -> None:
    """A half, a quarter and a quarter, and not in order."""
    await model.allgather(pieces(model, *((1, 3), (0,), (2,))[place]), 0, group)


async def sum_up(model: Model, place: int, group: tuple[int, ...]) -> None:
    await model.allreduce(model.fake_grad(0), 0, group)


async def scatter(model: Model, place: int, group: tuple[int, ...]) -> None:
    await model.scatterreduce(model.fake_grad(0), 0, group)


async def even_exchange(model: Model, place: int, group: tuple[int, ...]) -> None:
    await model.alltoall([pieces(model, i, total=3) for i in range(3)], 0, group)


async def uneven_exchange(model: Model, place: int, group: tuple[int, ...]) -> None:
    """Member 0 keeps a whole and sends halves, member 1 sends quarters, member 2 sends a whole and keeps a quarter."""
    half, quarter, whole = pieces(model, 0, 2), pieces(model, 3), model.fake_grad(0)
    rows = [[whole, half, half], [quarter, quarter, quarter], [quarter, whole, quarter]]
    found = await model.alltoall(rows[place], 0, group)
    assert [value.elements() for value in found] == [row[place].elements() for row in rows]


def broadcast(root: int) -> Callable[[Model, int, tuple[int, ...]], Any]:
    async def act(model: Model, place: int, group: tuple[int, ...]) -> None:
        await model.broadcast(model.fake_grad(0), 0, root=group[root], group=group)

    return act


async def message(model: Model, place: int, group: tuple[int, ...]) -> None:
    """One of a whole weight and a half."""
    if place == 0:
        await model.pass_to(group[2], (model.fake_grad(0), [pieces(model, 0, 1)]))
    elif place == 2:
        await model.receive(group[0])


CASES = {
    # In a ring every member sends (n - 1)/n of the whole in each round.
    "even all-gather": Exchanged(even_gather, Fraction(2)),
    "uneven all-gather": Exchanged(uneven_gather, Fraction(2)),
    "all-reduce": Exchanged(sum_up, Fraction(4)),
    "reduce-scatter": Exchanged(scatter, Fraction(2)),
    "even all-to-all": Exchanged(even_exchange, Fraction(2)),
    "uneven all-to-all": Exchanged(uneven_exchange, Fraction(1) + Fraction(1, 2) + Fraction(5, 4)),
    "broadcast from 0": Exchanged(broadcast(0), Fraction(2)),
    "broadcast from 1": Exchanged(broadcast(1), Fraction(2)),
    "broadcast from 2": Exchanged(broadcast(2), Fraction(2)),
    "message": Exchanged(message, Fraction(3, 2)),
}


@cache
def trained(case: str | None, order: str) -> Trace:
    """A training step of three ranks on their own, with the collective before it. (None: without.)"""
    group = ORDERS[order]

    async def function(model: Model) -> None:
        if case is not None:
            await CASES[case].act(model, group.index(model.rank), group)
        held = [model.load_weights(layer) for layer in range(2)]
        grads = compute(model, [model.rank], {layer: weight for layer, (weight, _) in enumerate(held)})
        for layer in (1, 0):
            grad = await model.allreduce(grads.pop(layer), layer)
            model.set_final_weight(layer, model.update(layer, grad, *held[layer])[0])

    found = Trace.of(simulate(function, ranks=3, layers=2, batches=3))
    assert check(found).correct
    return found


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("case", list(CASES))
def test_figures_and_replay_say_what_the_row_says(case: str, order: str) -> None:
    trace = trained(case, order)
    figures = [elements * WEIGHT / PRICED.weight for elements, _ in traffic(trace)]
    without = sum(elements for elements, _ in traffic(trained(None, order)))
    assert sum(elements for elements, _ in traffic(trace)) - without == CASES[case].sent * PRICED.weight
    result = replay(trace, transport="local", hidden=HIDDEN, length=LENGTH)
    assert result.ok, result.text()
    assert [one.sent for one in result.ranks] == [one.simulated_sent for one in result.ranks]
    assert [one.sent for one in result.ranks] == [8 * elements for elements in figures]


@pytest.mark.parametrize("order", list(ORDERS))
def test_processes_send_it_to_whom_it_belongs(order: str) -> None:
    """Groups of the same ranks in three orders are one process group, and each order says who is member number i."""
    group = ORDERS[order]

    async def function(model: Model) -> None:
        for case in CASES.values():
            for members in (group, (0, 1, 2), (1, 2, 0)):
                await case.act(model, members.index(model.rank), members)
        shards = [model.load_weights(layer, group.index(model.rank), 3) for layer in range(2)]
        whole = {layer: await model.allgather(weight, layer, group) for layer, (weight, _) in enumerate(shards)}
        grads = compute(model, [model.rank], whole)
        for layer in (1, 0):
            total = await model.scatterreduce(grads.pop(layer), layer, group)
            weight, _ = model.update(layer, total, *shards[layer])
            back = await model.alltoall([weight] * 3, layer, (1, 0, 2))
            first, second, third = (back[(1, 0, 2).index(rank)] for rank in group)
            model.set_final_weight(layer, first.combine(second).combine(third))

    schedule = Trace.of(simulate(function, ranks=3, layers=2, batches=3))
    for hidden, transport in ((HIDDEN, "local"), (5, "local"), (5 if order == "turned" else HIDDEN, "gloo")):
        result = replay(schedule, transport=transport, hidden=hidden, length=LENGTH, timeout=120)
        assert result.ok, result.text()


def test_groups_of_the_same_ranks_are_one_stream_of_the_timeline() -> None:
    names = set()
    for order in ORDERS:
        events = perfetto(simulated=trained("all-reduce", order))["traceEvents"]
        names |= {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"compute", "group 0, 1, 2"}


def priced(case: str, costs: Links) -> ReplayResult:
    """A replay whose times are those of exact links."""
    result = replay(trained(case, "turned"), transport="local", hidden=8, length=4)
    timed = retime(result.simulated, costs)
    lengths = tuple(tuple(event.length / 1e9 * 0.002 for event in program.events) for program in timed.programs)
    return replace(result, measured=timed, lengths=lengths, unit=0.002, seconds=(end(timed) * 0.002,))


@pytest.mark.parametrize("case", list(CASES))
def test_what_links_price_is_what_calibration_fits(case: str) -> None:
    """The links come out, whatever was sent. (A message beside it tells latency from bandwidth.)"""
    truth = Links(forward=1.0, backward=2.5, update=0.3, loss=0.1, p2p=0.7, latency=0.05)
    found = calibrate([priced(case, truth), priced("message", truth)]).costs
    assert (found.p2p, found.latency) == pytest.approx((truth.p2p, truth.latency), rel=1e-6)
