"""What the adversary has found, each as small as it gets (what was wrong with files: trace/said/damage.txt)."""

from typing import Any

import pytest

from lib import ActivationGrad, Model, Trace, check, simulate
from lib.schedules.steps import mine
from tests.adversary.judging import agree, judged, puzzle_of, ready, replayed
from tests.adversary.oracle import opinion
from tests.support.version_1 import encode


def gradient(model: Model, batches: Any, weight: Any) -> Any:
    inp = model.get_activation(batches)
    return model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)[0]


async def whole_states(model: Model) -> None:
    """Each rank updates its half of the weight with a whole state: the other half of that state stays as it was."""
    weight, state = model.load_weights(0)
    grad = await model.scatterreduce(gradient(model, mine(model), weight), 0)
    half, model.opt_states[0] = model.update(0, grad, weight.shard(model.rank, 2), state)
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
    model.opt_states[0], model.opt_states[1] = parts[0][1], parts[1][1]
    model.set_final_weight(0, parts[0][0].combine(parts[1][0]))


def test_a_state_that_is_updated_in_parts_is_all_there() -> None:
    trace = Trace.of(simulate(in_halves, layers=1, batches=2))
    assert ready(judged(trace))
    assert [str(value) for value in trace.programs[0].values if value is not None and value.kind == "optimizer state"][
        1:
    ] == [f"optimizer state of layer 0, shard {i} of 2, step 1" for i in range(2)]
    pytest.importorskip("torch")
    replayed(trace)


def test_a_send_that_is_awaited_later_still_reads_what_a_collective_would_write_over() -> None:
    """The oracle let the collective work in place, since the receive was there before."""

    async def run(model: Model) -> None:
        weight, state = model.load_weights(0)
        if model.rank == 0:
            await model.receive(1)
            grad = gradient(model, [0, 1], weight)
            sent, total = model.pass_to(1, grad), model.allreduce(grad, 0)
            await sent
        else:
            received = model.receive(0)
            await model.pass_to(0, 1)
            total = model.allreduce(model.fake_grad(0), 0)
            await received
        model.backward_weight(0, model.get_activation([0]), ActivationGrad(0, 1, frozenset([0]), 2))
        model.weights[0], model.opt_states[0] = model.update(0, await total, weight, state)
        model.set_final_weight(0, model.weights[0])

    trace = Trace.of(simulate(run, ranks=2, layers=1, batches=2))
    agree(trace, judged(trace), opinion(encode(trace)))
