"""What is sent goes to whom it belongs, whatever the order of the group, and is as much as the figures say."""

from typing import Any

import pytest

from lib import Model, Trace, simulate
from lib.replay import replay
from lib.schedules.formats.chrome import perfetto
from tests.replay.schedules import compute

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

HIDDEN, LENGTH = 48, 24
"""Divides into halves, thirds and quarters: all figures are exact."""
ORDERS = {"as they are": (0, 1, 2), "turned": (2, 0, 1), "reversed": (2, 1, 0)}


def pieces(model: Model, *shards: int, total: int = 4) -> Any:
    zero = model.fake_grad(0)
    found = zero.shard(shards[0], total)
    for shard in shards[1:]:
        found = found.combine(zero.shard(shard, total))
    return found


async def everything(model: Model, place: int, group: tuple[int, ...]) -> None:
    """Every kind of traffic once, from member number `place` of a group of three."""
    whole, half, quarter = model.fake_grad(0), pieces(model, 0, 2), pieces(model, 3)
    await model.allgather(pieces(model, place, total=3), 0, group)
    unequal = pieces(model, *((1, 3), (0,), (2,))[place])  # a half, a quarter and a quarter, and not in order
    await model.allgather(unequal, 0, group)
    await model.allgather_padded(unequal, 0, group)
    await model.allreduce(model.fake_grad(0), 0, group)
    await model.scatterreduce(model.fake_grad(0), 0, group)
    await model.alltoall([pieces(model, i, total=3) for i in range(3)], 0, group)
    # Member 0 keeps a whole and sends halves, member 1 sends quarters, member 2 sends a whole and keeps a quarter.
    rows = [[whole, half, half], [quarter, quarter, quarter], [quarter, whole, quarter]]
    for exchange in (model.alltoall, model.alltoall_padded):
        found = await exchange(rows[place], 0, group)
        assert [value.elements() for value in found] == [row[place].elements() for row in rows]
    for root in group:
        await model.broadcast(model.fake_grad(0), 0, root=root, group=group)
    if place == 0:
        await model.pass_to(group[2], (model.fake_grad(0), [pieces(model, 0, 1)]))
    elif place == 2:
        await model.receive(group[0])


@pytest.mark.parametrize("order", list(ORDERS))
def test_processes_send_it_to_whom_it_belongs(order: str) -> None:
    """Groups of the same ranks in three orders are one process group, and each order says who is member number i."""
    group = ORDERS[order]

    async def function(model: Model) -> None:
        for members in (group, (0, 1, 2), (1, 2, 0)):
            await everything(model, members.index(model.rank), members)
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
        assert hidden == 5 or [one.sent for one in result.ranks] == [one.simulated_sent for one in result.ranks]


def test_groups_of_the_same_ranks_are_one_stream_of_the_timeline() -> None:
    async def function(model: Model) -> None:
        for group in ORDERS.values():
            await model.allreduce(model.fake_grad(0), 0, group)

    events = perfetto(simulated=Trace.of(simulate(function, ranks=3)))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"group 0, 1, 2"}
