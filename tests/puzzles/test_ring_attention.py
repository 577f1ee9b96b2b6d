"""Ring attention over contiguous rows, in the figures of an independent timing model: 256 tokens, on which our price of
attention is its cheap one."""

from dataclasses import replace
from typing import Any

import pytest

from lib import PUZZLES, Links, Model, Trace, simulate
from lib.cluster.costs import units
from lib.suite.grade.sizes.draws import draw_sizes
from lib.trace.event import Program
from tests.support.puzzles import way

LAYERS = [replace(layer, rows=256) for layer in PUZZLES["ring_attention"].last]


async def keys_awaited_before_the_block(model: Model) -> None:
    """Forward, in the order of that model's `awaited`: the next keys are there before a block is begun."""
    x = model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS)
    keys = model.forward(0, x, model.load_weights(0)[0])
    for number in range(model.RANKS):
        coming = await model.shift(keys, 1) if number < model.RANKS - 1 else keys
        model.forward(1, x, keys)
        keys = coming


def phase(program: Program, op: str) -> float:
    """From the moment before attention, forward or backward, until all of it is done and the gradients are home."""
    events = program.events
    mine = [index for index, event in enumerate(events) if event.op == op and event.layer == 1]
    home = [index for index, event in enumerate(events) if event.op == "shift"]
    began = [event.end for event in events[: mine[0]] if event.op in ("forward", "allreduce")][-1]
    ended = events[(home if op == "backward" else mine)[-1]].end
    assert began is not None
    assert ended is not None
    return round(units(ended - began), 7)


@pytest.mark.parametrize(
    ("step", "op", "ends"),
    [
        (keys_awaited_before_the_block, "forward", [0.3942383, 0.3942383, 0.4567383, 0.5192383]),
        ("await_all", "forward", [0.4567383, 0.4567383, 0.4567383, 0.5192383]),  # after the block, all wait for rank 3
        ("own_block_first", "forward", [0.3, 0.3, 0.3, 0.3625]),
        ("", "forward", [0.3, 0.3, 0.3, 0.3625]),
        ("await_all", "backward", [0.9192383] * 4),
    ],
)
def test_attention_takes_what_another_model_says(step: Any, op: str, ends: list[float]) -> None:
    function = way("ring_attention", step) if isinstance(step, str) else step
    models = simulate(function, layers=LAYERS, ranks=4, batches=1, costs=Links())
    assert [phase(program, op) for program in Trace.of(models).programs] == ends


def test_a_net_of_its_own_has_no_more_layers_and_no_fewer() -> None:
    with pytest.raises(ValueError, match="ring_attention has 3 layers, each of its own kind: leave out layers="):
        simulate(way("ring_attention"), puzzle="ring_attention", layers=6)
    assert {size[:3] for size in draw_sizes("ring_attention", 9, 0)} == {(2, 3, 1), (2, 3, 2), (4, 3, 2)}
