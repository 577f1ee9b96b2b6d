"""What the adversary has found, each as small as it gets."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lib import ActivationGrad, Model, RuleError, Trace, TraceError, check, simulate
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.steps import mine
from lib.trace.json_format import encode
from tests.adversary.judging import agree, judged, puzzle_of, read, ready, replayed
from tests.adversary.oracle import opinion


def data_of(function: Any, ranks: int = 1) -> dict[str, Any]:
    return copy.deepcopy(encode(Trace.of(simulate(function, ranks=ranks, layers=1, batches=2))))


def gradient(model: Model, batches: Any, weight: Any) -> Any:
    inp = model.get_activation(batches)
    return model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)[0]


# -- a whole optimizer state that was updated by a part ---------------------------------------------


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


# -- a file that waits for the same thing twice -----------------------------------------------------


def test_a_communication_that_is_waited_for_twice() -> None:
    """In a file (the check ended with a KeyError), in a text, and in this process."""
    data = data_of(ddp_lean, ranks=2)
    trace = Trace.of(simulate(ddp_lean, ranks=2, layers=1, batches=2))
    events = data["programs"][0]["events"]
    at = next(n for n, event in enumerate(events) if event[0] == "allreduce")
    events.append(["wait", 0, "", [], [], *events[at][5:8], -1, [at], -1, None, False])
    with pytest.raises(TraceError, match="so nothing waits for it again"):
        read(data)
    with pytest.raises(TraceError, match="so nothing waits for it again"):
        Trace.parse(f"{trace.text().rstrip()} ={at}\n")
    program = trace.programs[0]
    program.events.append(program.events[-1].copy())
    program.events[-1].op, program.events[-1].arg, program.events[-1].inputs = "wait", (at,), ()
    (fault, *_) = check(trace).faults
    assert "waits twice for one allreduce" in fault


# -- results of what nobody waited for --------------------------------------------------------------


def test_a_result_of_a_communication_that_nobody_waited_for() -> None:
    """What it brought had no memory, since somebody seemed to have it."""

    async def run(model: Model) -> None:
        weight, state = model.load_weights(0, 0, 1)
        await model.allgather(weight, 0)
        model.set_final_weight(0, model.update(0, gradient(model, [0, 1], weight), weight, state)[0])

    data = data_of(run)
    event = next(event for event in data["programs"][0]["events"] if event[0] == "allgather")
    event[12] = False
    with pytest.raises(TraceError, match="allgather has results, and nobody waits for it"):
        read(data)


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


# -- a collective that brings two values ------------------------------------------------------------


def test_a_collective_that_brings_two_values() -> None:
    """The second one was not looked at."""
    data = data_of(ddp_lean, ranks=2)
    event = next(event for event in data["programs"][0]["events"] if event[0] == "allreduce")
    event[3] = [0, *event[3]][::-1]
    with pytest.raises(TraceError, match="allreduce brings one value"):
        read(data)


def test_a_model_never_brings_two() -> None:
    async def run(model: Model) -> None:
        weight, _ = model.load_weights(0)
        await model.allgather([weight, weight], 0)  # type: ignore[type-var]

    with pytest.raises(RuleError, match="the first argument of allgather is not a value"):
        simulate(run, layers=1)
