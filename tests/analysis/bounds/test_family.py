"""What a run is told when a bound does not speak of it. Every run here is correct, unless it says so."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import Mesh, Model, Trace, Weight, check, simulate
from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import bound_of, lower_bound
from lib.schedules import data_parallel
from tests.replay.schedules import compute as _train
from tests.support import schedules
from tests.support.puzzles import way
from tests.support.said import Said
from tests.support.schedules import fsdp

Function = Callable[[Model], Any]


def _trace(function: Function, family: Family, mesh: Mesh | None = None) -> Trace:
    return Trace.of(simulate(function, ranks=family.ranks, layers=family.layers, batches=family.batches, mesh=mesh))


def said(function: Function, family: Family, mesh: Mesh | None = None) -> str:
    """Why a bound does not speak of a correct run."""
    trace = _trace(function, family, mesh)
    verdict = check(trace)
    assert verdict.correct, verdict.faults
    return excuse(trace, family) or "of the family"


ONE = Family(1, 2, 2)
DDP = Family(2, 2, 2)
FSDP = Family(2, 2, 2, sharded=True)
PIPE = Family(2, 4, 3, stages=2, grouping="one")
GPIPE = way("gpipe")


def test_fsdp_in_the_puzzle_of_the_pipeline() -> None:
    trace = Trace.of(simulate(fsdp, puzzle="gpipe"))
    assert check(trace, "gpipe").correct
    assert lower_bound("gpipe").excuse(trace) == "rank 0 computes layers of several stages"
    assert lower_bound("fsdp").excuse(trace) == "it has 4 ranks, 8 layers and 4 batches"


def computing(model: Model, *, again: bool = False, turns: list[list[int]] | None = None) -> None:
    weights, states = {}, {}
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    total: dict[int, Any] = {}
    for batches in turns or [list(range(model.BATCHES))]:
        made = _train(model, batches, weights)
        total = {layer: total[layer] + made[layer] if total else made[layer] for layer in made}
    if again:
        model.forward(0, model.get_activation([0]), weights[0])
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.update(layer, total.pop(layer), weights[layer], states[layer])[0])


def ddp(share: Callable[[int], list[int]]) -> Function:
    async def run(model: Model) -> None:
        held = {layer: model.load_weights(layer) for layer in range(model.LAYERS)}
        mine = share(model.rank)
        weights = {layer: held[layer][0] for layer in held}
        made = _train(model, mine, weights) if mine else {layer: model.fake_grad(layer) for layer in held}
        for layer in held:
            grad = await model.allreduce(made.pop(layer), layer)
            model.set_final_weight(layer, model.update(layer, grad, *held[layer])[0])

    return run


async def state_lent(model: Model) -> None:
    weights, states, *_ = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    if model.rank == 0:
        await model.pass_to(1, states.pop(0))
    kept = await model.receive(0) if model.rank == 1 else None
    made = _train(model, [model.rank], dict(weights))
    if model.rank == 0:
        states[0] = await model.receive(1)
    else:
        await model.pass_to(0, kept)
    for layer in range(model.LAYERS):
        grad = await model.allreduce(made.pop(layer), layer)
        weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])


async def layer_lent(model: Model) -> None:
    if model.rank == 1:
        weight, _ = model.load_weights(0)
        work = model.pass_to(0, weight)
        await work
    if model.rank == 0:
        await model.receive(1)
    await GPIPE(model)


async def told(model: Model) -> None:
    await ddp(lambda rank: [rank])(model)
    await model.broadcast(model.final_weights[0], 0)


async def parked(model: Model) -> None:
    other = 1 - model.rank
    await ddp(lambda rank: [rank])(model)
    await model.pass_to(other, model.get_activation([model.rank]))
    await model.receive(other)


async def gathered(model: Model) -> None:
    await ddp(lambda rank: [rank])(model)
    await model.allgather(model.get_activation([model.rank]), 0)


def passing(send: Callable[[Model, Any], Awaitable[Any]], receive: Callable[[Model], Awaitable[Any]]) -> Function:
    """Two stages of one layer, one batch; how the activation gets from the first to the second is up to the caller."""

    async def run(model: Model) -> None:
        weight, state = model.load_weights(model.rank)
        if model.rank == 0:
            act = model.get_activation([0])
            await send(model, model.forward(0, act, weight))
            grad = await model.receive(1)
            made, _ = model.backward(0, act, grad, weight)
        else:
            act = await receive(model)
            made, grad = model.backward(1, act, model.loss(model.forward(1, act, weight)), weight)
            await model.pass_to(0, grad)
        model.set_final_weight(model.rank, model.update(model.rank, made, weight, state)[0])

    return run


async def _send(model: Model, value: Any) -> None:
    await model.pass_to(1, value)


async def _take(model: Model) -> Any:
    return await model.receive(0)


async def send_tuple(model: Model, value: Any) -> None:
    await model.pass_to(1, (value, model.fake_grad(0)))


async def take_tuple(model: Model) -> Any:
    return (await model.receive(0))[0]


async def send_twice(model: Model, value: Any) -> None:
    first, second = model.pass_to(1, value), model.pass_to(1, value)
    await first
    await second


async def take_second(model: Model) -> Any:
    await model.receive(0)
    return await model.receive(0)


async def send(model: Model, value: Any) -> None:
    await _send(model, value)
    await model.pass_to(1, model.fake_grad(0))


async def take(model: Model) -> Any:
    value = await _take(model)
    await model.receive(0)
    return value


async def sharded_over_all(model: Model) -> None:
    await way("pipeline_fsdp")(model)
    await model.allreduce(model.fake_grad(0), 0)


def test_runs_that_are_not_correct() -> None:
    def lazy(model: Model) -> None:
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)

    assert excuse(_trace(lazy, Family(1, 1, 2)), Family(1, 1, 2)) == "it leaves out batches"
    trace = replace(_trace(computing, ONE), error="deadlock")
    assert excuse(trace, ONE) == "it did not end"


@pytest.mark.parametrize("what", ["a layer that is not there", "a message that nobody gets"])
def test_a_trace_that_is_no_program(what: str) -> None:
    trace = _trace(GPIPE, PIPE)
    wanted = "forward" if "layer" in what else "pass_to"
    event = next(event for event in trace.programs[0].events if event.op == wanted)
    if wanted == "forward":
        event.layer = 99
    else:
        event.peer = 0
    assert excuse(trace, PIPE) == "it is not one correct training step"


STATES = Family(2, 2, 2, sharded=True, copies=2)


def _zero(model: Model, kept: bool = True) -> tuple[dict[int, Weight], dict[int, Any]]:
    weights = {layer: model.load_weights(layer)[0] for layer in range(model.LAYERS)}
    place = (model.rank, model.RANKS) if kept else (0, 1)
    return weights, {layer: model.load_weights(layer, *place)[1] for layer in range(model.LAYERS)}


async def _finish(model: Model, made: dict[int, Any], weights: dict[int, Weight], states: dict[int, Any]) -> None:
    place = model.rank, model.RANKS
    for layer in range(model.LAYERS):
        grad = await model.scatterreduce(made.pop(layer), layer)
        shard, model.opt_states[layer] = model.update(layer, grad, weights[layer].shard(*place), states[layer])
        model.set_final_weight(layer, await model.allgather(shard, layer))


async def state_sent(model: Model) -> None:
    weights, states = _zero(model)
    other = 1 - model.rank
    model.pass_to(other, states[0])
    await model.receive(other)
    await _finish(model, _train(model, [model.rank], weights), weights, states)


async def state_gathered(model: Model) -> None:
    weights, states = _zero(model)
    await model.allgather(states[0], 0)
    await _finish(model, _train(model, [model.rank], weights), weights, states)


async def late(model: Model) -> None:
    place = model.rank, model.RANKS
    held = {layer: model.load_weights(layer, *place) for layer in range(model.LAYERS)}
    weights = {layer: await model.allgather(held[layer][0], layer) for layer in held}
    made = _train(model, [model.rank], weights)
    for layer in held:
        grad = await model.scatterreduce(made.pop(layer), layer)
        model.set_final_weight(layer, model.update(layer, grad, *held[layer])[0])


test_what_is_said = Said(__file__, "family").test(lambda: vars(data_parallel) | vars(schedules) | globals())


def test_least_memory_of_the_stages_of_zero() -> None:
    """What is alive at the first backward, or when it is over, in closed form for other sizes."""
    weight, batch = 512 * 512, 512 * 256
    first = bound_of(Family(4, 6, 4, sharded=True, copies=4)).memory.value
    assert first == 6 * weight + 6 * weight / 4 + 7 * batch
    # Of two ranks each has half of a state, and of the layer that is through half of the weight beside its gradient.
    two = bound_of(Family(2, 3, 2, sharded=True, copies=2)).memory.value
    assert (
        two == 2 * weight + weight / 2 + 3 * weight / 2 + weight + 3 * batch == 3 * weight + 3 * weight / 2 + 4 * batch
    )
    second = bound_of(Family(4, 6, 8, sharded=True, copies=4)).memory.value
    assert second == 6 * weight + 2 * 6 * weight / 4 + 7 * batch
