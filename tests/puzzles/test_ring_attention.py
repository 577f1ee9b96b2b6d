"""Attention over a text that is cut among ranks, in the figures of an independent timing model: 256 tokens.

Our price of attention is its cheap one. With links that are 16 times as fast everything takes a sixteenth of
its other one.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Links, Model, Trace, simulate
from lib.analysis.figures import most_sent
from lib.cluster.costs import units
from lib.suite.grade.judging import draw_sizes
from tests.diagnosis.corpus import changed, code_of
from tests.support.inside import exchange
from tests.support.puzzles import way, with_rows

LAYERS = with_rows("ring_attention", 256)


def keys_awaited_before_the_block(zigzag: bool) -> Callable[[Model], Any]:
    """Forward, in the order of that model's `awaited`: the next keys are there before a block is begun."""

    async def step(model: Model) -> None:
        x, pieces = model.get_activation([0]), model.RANKS * (2 if zigzag else 1)
        mine = model.shard(x, "rows", model.rank, pieces)
        x = mine.combine(model.shard(x, "rows", pieces - 1 - model.rank, pieces)) if zigzag else mine
        keys = model.forward(0, x, model.load_weights(0)[0])
        for number in range(model.RANKS):
            coming = await model.shift(keys, 1) if number < model.RANKS - 1 else keys
            model.forward(1, x, keys)
            keys = coming

    return step


def phase(trace: Trace, op: str) -> list[float]:
    """From the moment when all may begin with attention, forward or backward, until a rank is done with all of it, and
    its gradients are home."""
    began, ended = list[int](), list[int]()
    for program in trace.programs:
        timed = [event for event in program.events if event.start is not None]
        mine = [event for event in timed if event.op == op and event.layer == 1]
        home = [event for event in timed if event.op == "shift" and op == "backward"]
        first = mine[0].start if home else next(event.end for event in timed if event.op == "forward")
        began.append(first or 0)
        ended.append(max(event.end or 0 for event in mine[-1:] + home[-1:]))
    return [units(end - max(began)) for end in ended]


SUM_LATER = """
-    sums = {2: model.allreduce(grad_weights.pop(2), 2)}
+    sums = {}
@@
-    sums[0] = model.allreduce(grad_weights.pop(0), 0)
+    sums = {layer: model.allreduce(grad_weights.pop(layer), layer) for layer in (0, 2)}
"""


def alone(puzzle: str, name: str) -> Any:
    """One of our ways, in which no all-reduce is in the way of what attention sends."""
    found: dict[str, Any] = {"Model": Model}
    exec(changed(code_of(puzzle, f"{puzzle}_{name}"), SUM_LATER.strip("\n")), found)
    return found[puzzle]


CONTIGUOUS = ([0.3942383, 0.3942383, 0.4567383, 0.5192383], [1.8078125, 1.8078125, 2.8078125, 3.8078125])
AFTER = [0.4567383, 0.4567383, 0.4567383, 0.5192383]
HIDDEN = ([0.3, 0.3, 0.3, 0.3625], [1.6078125, 1.6078125, 2.5078125, 3.5078125])


@pytest.mark.parametrize(
    ("puzzle", "step", "op", "cheap", "dear", "passes"),
    [
        ("ring_attention", keys_awaited_before_the_block(False), "forward", *CONTIGUOUS, 3),
        ("ring_attention", "await_all", "forward", AFTER, None, 10),  # after the block, all wait for rank 3
        ("ring_attention", "own_block_first", "forward", *HIDDEN, 10),
        ("ring_attention", "", "forward", *HIDDEN, 9),
        ("ring_attention", "await_all", "backward", [0.9192383] * 4, [4.2078125] * 4, 10),
        ("ring_attention", alone("ring_attention", "own_block_first"), "backward", [0.7] * 4, [3.6078125] * 4, 10),
        ("zigzag", keys_awaited_before_the_block(True), "forward", [0.4254883] * 4, [2.3078125] * 4, 3),
        ("zigzag", "own_block_first", "forward", [0.33125] * 4, [2.0078125] * 4, 10),
        ("zigzag", "await_all", "backward", [0.8254883] * 4, [2.7078125] * 4, 10),
        ("zigzag", alone("zigzag", "own_block_first"), "backward", [0.7] * 4, [2.1078125] * 4, 10),
        ("zigzag", alone("zigzag", "own_block_last"), "backward", None, [2.0078125] * 4, 9),
        ("zigzag", "", "forward", [0.33125] * 4, [2.0078125] * 4, 10),
    ],
)
def test_attention_takes_what_another_model_says(
    puzzle: str, step: Any, op: str, cheap: list[float] | None, dear: list[float] | None, passes: int
) -> None:
    function = way(puzzle, step) if isinstance(step, str) else step
    for ends, price in ((cheap, 1), (dear, 16)):
        trace = Trace.of(simulate(function, layers=LAYERS, ranks=4, batches=1, costs=Links(p2p=0.2 / price)))
        assert ends in (None, pytest.approx([time * price for time in phase(trace, op)], abs=1e-6))
        for program in trace.programs:
            moved = program.values_of([event.inputs[0] for event in program.events if event.op == "shift"])
            assert sum(value.elements() for value in moved) == 65536 * passes


@pytest.mark.parametrize(("ends", "price"), [(0.2754883, 1), (2.1578125, 16)])
def test_heads_for_rows_take_what_another_model_says(ends: float, price: int) -> None:
    """That model counts a number more for each row and head of a result (256), which backward may need; we do not."""

    async def step(model: Model) -> None:
        x = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
        keys, began = model.forward(0, x, model.load_weights(0)[0]), model.time
        queries, keys = await exchange(model, x, "features"), await exchange(model, keys, "features")
        result = model.forward(1, queries, keys)
        held = queries.elements() + keys.elements() + result.elements()
        result = await exchange(model, result, "rows")
        took = model.time - began
        weight, _ = model.load_weights(2)
        _, back = model.backward(2, result, model.loss(model.forward(2, result, weight)), weight)
        began = model.time
        grads = model.backward(1, queries, await exchange(model, back, "features"), keys)
        for grad in grads:
            await exchange(model, grad, "rows")
        found.append((held, took * price, (model.time - began) * price))

    found: list[Any] = []
    trace = Trace.of(simulate(step, layers=LAYERS, ranks=4, batches=1, costs=Links(p2p=0.2 / price)))
    assert found == [(131328 - 256, pytest.approx(ends, abs=1e-6), pytest.approx(ends, abs=1e-6))] * 4
    assert most_sent(trace) == 98304 * 2


def test_a_net_of_its_own_has_no_more_layers_and_no_fewer() -> None:
    with pytest.raises(ValueError, match="ring_attention has 3 layers, each of its own kind: leave out layers="):
        simulate(way("ring_attention"), puzzle="ring_attention", layers=6)
    assert {size[:3] for size in draw_sizes("ring_attention", 9, 0)} == {(2, 3, 1), (2, 3, 2), (4, 3, 2)}
