"""What the adversary has found, each as small as it gets (what was wrong with files: trace/said/damage.txt)."""

from __future__ import annotations

from typing import Any

import pytest

from lib import Model, Trace, check, simulate
from lib.schedules.steps import mine
from tests.adversary.judging import judged, puzzle_of, ready, replayed


def gradient(model: Model, batches: Any, weight: Any) -> Any:
    inp = model.get_activation(batches)
    return model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)[0]


# -- a whole optimizer state that was updated by a part ---------------------------------------------


async def whole_states(model: Model) -> None:
    """Each rank updates its half of the weight with a whole state: the other half of that state stays as it was."""
    weight, state = model.load_weights(0)
    grad = await model.scatterreduce(gradient(model, mine(model), weight), 0)
    half, _ = model.update(0, grad, weight.shard(model.rank, 2), state)
    model.set_final_weight(0, await model.allgather(half, 0))


def test_a_state_is_updated_where_its_weight_is_and_nowhere_else() -> None:
    """It was called up to date as a whole, when a part of it had seen a gradient."""
    trace = Trace.of(simulate(whole_states, ranks=2, layers=1, batches=2))
    with puzzle_of(trace) as puzzle:
        (fault,) = check(trace, puzzle).faults
    assert fault.startswith("ranks 0 and 1 are not ready for the next training step: the optimizer state of layer 0")
    assert "rank 0 ends with only a part of it updated" in fault


def in_halves(model: Model) -> None:
    """One update for each half of the weight, and of the state."""
    weight, state = model.load_weights(0)
    grad = gradient(model, range(model.BATCHES), weight)
    parts = [model.update(0, grad, weight.shard(i, 2), state) for i in range(2)]
    model.set_final_weight(0, parts[0][0].combine(parts[1][0]))


def test_a_state_that_is_updated_in_parts_is_all_there() -> None:
    trace = Trace.of(simulate(in_halves, layers=1, batches=2))
    assert ready(judged(trace))
    assert [str(value) for value in trace.programs[0].values if value is not None and value.kind == "optimizer state"][
        1:
    ] == [f"optimizer state of layer 0, shard {i} of 2, step 1" for i in range(2)]
    pytest.importorskip("torch")
    replayed(trace)
