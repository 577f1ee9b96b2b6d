"""An operation and collectives that nobody has heard of: a row and a kernel each, and a schedule with them replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib import Trace, check, simulate
from lib.replay import replay
from lib.values import rules
from lib.values.collectives import COLLECTIVES, STEP, Collective
from lib.values.laws import reduce, renew
from lib.values.operations import OPERATIONS
from lib.values.values import WeightGrad

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install 'llm-training-puzzles[replay]'")

from lib.replay.layers import layers  # noqa: E402
from lib.replay.rank.communication import COLLECTIVE_KERNELS, CollectiveCall, Started  # noqa: E402
from lib.replay.rank.context import Call  # noqa: E402
from lib.replay.rank.kernels import KERNELS  # noqa: E402

SMALL: dict[str, Any] = {"hidden": 24, "length": 8, "timeout": 30}


def to_one(values: Sequence[Any], root: int) -> list[Any]:
    """The sum for the root, nothing for the others."""
    total = reduce(*values)
    return [renew(total) if place == root else None for place in range(len(values))]


def one_on(values: Sequence[Any], root: int) -> list[Any]:
    """What the member before brought."""
    return [renew(values[place - 1]) for place in range(len(values))]


ROWS = (
    Collective(
        name="reduce",
        word="RT",
        title="reduce",
        signature="await model.reduce(gradient, layer, root)",
        results=to_one,
        law=reduce,
        root=("that gets the sum", "that gets the sum"),
        whole=lambda values, root, size: size(values[:1]),
    ),
    Collective(
        name="permute",
        word="PM",
        title="permute",
        signature="await model.permute(value, layer)",
        results=one_on,
        law=lambda *values: None,
        whole=lambda values, root, size: max(size([value]) for value in values),
        travel=STEP,
        sends=lambda values, root, size: [size([value]) for value in values],
    ),
)


def reduce_kernel(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
    """All to the root, which adds them up."""
    mine, root = inputs[0], call.me == call.root
    numel, members = mine.numel(), range(len(call.group))
    out = call.empty(numel * len(members) if root else 0)
    parts = [mine if member == call.root else mine[:0] for member in members]
    handle = call.transport.all_to_all(call.group, out, parts, [numel if root else 0 for _ in members])
    return Started(handle, [out], lambda: [out.view(len(members), numel).sum(0)] if root else [])


def permute_kernel(call: CollectiveCall, inputs: Sequence[Any]) -> Started:
    """An exchange in which all parts but one are empty."""
    members, mine = range(len(call.group)), inputs[0]
    to, source = (call.me + 1) % len(members), (call.me - 1) % len(members)
    arriving = call.numel(call.brought[source][0])
    out = call.empty(arriving)
    parts = [mine if member == to else mine[:0] for member in members]
    handle = call.transport.all_to_all(call.group, out, parts, [arriving if m == source else 0 for m in members])
    return Started(handle, [out])


def weight_half(call: Call, inputs: Sequence[Any]) -> Sequence[Any]:
    """The gradient by the weight alone."""
    x, grad, _ = map(call.matrix, inputs)
    return [layers.weight_gradient(torch.tanh(x), grad).view(-1)]


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rows and kernels, and how a student calls them."""
    half = replace(
        OPERATIONS["backward"],
        name="backward_weight",
        word="V",
        signature="model.backward_weight(layer, activation, gradient, weight)",
        rule=lambda shape, layer, *values: rules.backward(shape, layer, *values)[0],
        gives=(WeightGrad,),
    )
    OPERATIONS["backward_weight"] = half
    for row in ROWS:
        COLLECTIVES[row.name] = row
    monkeypatch.setitem(KERNELS, "backward_weight", weight_half)
    monkeypatch.setitem(COLLECTIVE_KERNELS, "reduce", reduce_kernel)
    monkeypatch.setitem(COLLECTIVE_KERNELS, "permute", permute_kernel)
    yield
    del OPERATIONS["backward_weight"]
    for row in ROWS:
        del COLLECTIVES[row.name]


async def train(model: Any) -> None:
    """Data goes one rank on round a ring; gradients are summed on rank 1, which updates and tells the others."""
    held = [model.load_weights(layer) for layer in range(model.LAYERS)]
    mine = model.get_activation([model.rank])
    activations = [await model._communicate("permute", mine, 0, None)]
    del mine
    for layer, (weight, _) in enumerate(held):
        activations.append(model.forward(layer, activations[-1], weight))
    grad = model.loss(activations.pop())
    for layer in reversed(range(model.LAYERS)):
        weight, state = held[layer]
        if layer:
            by_weight, grad = model.backward(layer, activations.pop(), grad, weight)
        else:
            by_weight = model._compute("backward_weight", layer, activations.pop(), grad, weight)
        total = await model._communicate("reduce", by_weight, layer, None, 1)
        if total is not None:
            weight, state = model.update(layer, total, weight, state)
        del by_weight, total
        held[layer] = None
        model.set_final_weight(layer, await model.broadcast(weight, layer, root=1))


@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_a_schedule_with_made_up_operations_replays(transport: str) -> None:
    schedule = Trace.of(simulate(train, ranks=3, layers=2, batches=3))
    assert check(schedule).correct, check(schedule).text()
    result = replay(schedule, transport=transport, **SMALL)
    assert result.ok, result.text()
    assert {"backward_weight", "reduce", "permute"} <= {one.op for one in result.spreads}
    for one in result.ranks:
        assert one.sent == one.simulated_sent
        assert all(measured == simulated for _, simulated, measured in one.by_event), one.rank
