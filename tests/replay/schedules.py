"""Schedules to replay: the reference solutions of the classic eight, and some that no textbook has."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

from lib import PUZZLES, Mesh, Model, Trace, Weight, WeightGrad, simulate
from lib.analysis.figures import alive_at
from lib.replay import ReplayResult
from lib.replay.sizes import Sizes
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.values.kinds.kind import USUAL
from tests.adversary.plans import training_step
from tests.adversary.programs import programs
from tests.support.puzzles import way
from tests.support.schedules import buckets, ddp_fed, two_of_a_row

CLASSIC = ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")


class Case(NamedTuple):
    """A schedule of ours and a size to run it at."""

    function: Callable[[Model], Any]
    ranks: int
    layers: int
    batches: int
    mesh: Mesh | None = None


def answer(puzzle: str, name: str = "") -> Trace:
    """The Trace of a reference, or of another way by its name. Layers of a puzzle's own are made smaller, as a replay
    of these takes seconds: 64 rows at most, of more than 64 features an eighth, and fewer columns to attend to."""
    record, function = PUZZLES[puzzle], way(puzzle, name)
    if not record.last:
        return Trace.of(simulate(function, puzzle=puzzle))
    narrower = 8 if puzzle == "neighborhood_attention" else 1  # the answers to others name their columns
    small = [
        replace(
            layer,
            inputs=_fewer(layer.inputs),
            outputs=_fewer(layer.outputs),
            rows=min(layer.rows, 64),
            columns=layer.columns // narrower,
        )
        for layer in record.described(record.layers)
    ]
    return Trace.of(simulate(function, ranks=record.ranks, layers=small, batches=record.batches, mesh=record.mesh))


def _fewer(features: int) -> int:
    return features if features <= 64 else features // 8


@cache
def trace(name: str) -> Trace:
    """The Trace of a reference, or of a schedule of ours."""
    if name in PUZZLES:
        return answer(name)
    function, ranks, layers, batches, mesh = CASES[name]
    return Trace.of(simulate(function, ranks=ranks, layers=layers, batches=batches, mesh=mesh))


def compared(result: ReplayResult) -> Iterator[tuple[tuple[int, int], int, int]]:
    """By rank and event, the bytes that a replay measured, and those that are alive according to the simulator, where
    every value has the size of its tensor."""
    sizes = Sizes.of(result.simulated, result.options)
    for one in result.ranks:
        for event, _, measured in one.by_event:
            alive = alive_at(result.simulated, one.rank, event)
            yield (one.rank, event), measured, sum(sizes.numel(value) for value, _, _ in alive) * sizes.bytes


def besides(result: ReplayResult, rank: int) -> int:
    """What may be held beside values: where softmaxes are summed what all have brought, as no transport adds them."""
    softmaxes = any(kind.output.running for kind in result.simulated.shape.kinds)
    return result.ranks[rank].in_flight if softmaxes else 0


def fitting(schedule: Trace, options: dict[str, Any]) -> dict[str, Any]:
    """The options, without the sizes of layers where a schedule has its own."""
    own = {"hidden", "length"} if schedule.descriptions != USUAL else set[str]()
    return {name: option for name, option in options.items() if name not in own}


def compute(model: Model, batches: Any, weights: dict[int, Weight]) -> dict[int, WeightGrad]:
    """Forward and backward of some batches, with everything in local variables."""
    activations = [model.get_activation(batches)]
    for layer in range(model.LAYERS):
        activations.append(model.forward(layer, activations[-1], weights[layer]))
    grad = model.loss(activations.pop())
    grads: dict[int, WeightGrad] = {}
    for layer in reversed(range(model.LAYERS)):
        grads[layer], grad = model.backward(layer, activations.pop(), grad, weights[layer])
    return grads


def by_chance(seed: int) -> Callable[[Model], Any]:
    """A training step of 3 ranks, 3 layers and 4 batches that no textbook has. With 159: uneven shards, groups of
    some in another order, an all-to-all, a broadcast, messages of several values, a collective that nobody awaits."""
    draw = Random(seed)
    return programs(training_step(draw, 3, 3, 4), draw)


async def overlapped(model: Model) -> None:
    """DDP whose all-reduces all run behind backward; receives and gathers are asked for long before they are needed."""
    weights, opt_states, activations, _, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    after, before = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    early = model.receive(before)
    activations[0] = model.get_activation([model.rank])
    sent = model.pass_to(after, activations[0])
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad = model.loss(activations.pop(model.LAYERS))
    works: list[Awaitable[WeightGrad]] = []
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad = model.backward(layer, activations.pop(layer), grad, weights[layer])
        works.append(model.allreduce(grad_weights[layer], layer))
    activations["of a neighbour"] = await early
    await sent
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await works.pop(0)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])


async def ahead(model: Model) -> None:
    """A pipeline whose first rank has sent two messages before the second rank asks for one, and works on meanwhile."""
    here, other = model.rank, 1 - model.rank
    weight, state = model.load_weights(here)
    if here == 0:
        inputs = [model.get_activation([batch]) for batch in range(2)]
        for one in inputs:
            await model.pass_to(1, model.forward(0, one, weight))
        for _ in range(8):
            model.forward(0, inputs[0], weight)
        grads = [model.backward(0, one, await model.receive(1), weight)[0] for one in inputs]
    else:
        busy = model.get_activation(range(2))
        spare, _ = model.load_weights(0)
        model.forward(0, busy, spare)
        model.forward(0, busy, spare)
        grads = []
        for _ in range(2):
            x = await model.receive(0)
            grad, back = model.backward(1, x, model.loss(model.forward(1, x, weight)), weight)
            grads.append(grad)
            await model.pass_to(other, back)
            del grad, back, x
    model.set_final_weight(here, model.update(here, grads[0] + grads[1], weight, state)[0])


async def overwritten(model: Model) -> None:
    """What rank 0 has sent is summed up in its own memory, long before rank 1 comes to receive it, in real time."""
    weight, state = model.load_weights(0)
    (grad,) = compute(model, [model.rank], {0: weight}).values()
    if model.rank == 0:
        await model.pass_to(1, grad)
        other = await model.receive(1)
        spare = model.get_activation([1])
        for _ in range(4):
            model.forward(0, spare, weight)
        total = grad + other
    else:
        spare = model.get_activation([0])
        await model.pass_to(0, grad)
        model.forward(0, spare, weight)
        total = grad + await model.receive(0)
    model.set_final_weight(0, model.update(0, total, weight, state)[0])


async def loose(model: Model) -> None:
    """Three ranks train, one does nothing; beside that, whatever nobody waits for, or ever receives."""
    team = (2, 0, 1)
    if model.rank == 3:
        return
    place = team.index(model.rank)
    held = [model.load_weights(layer) for layer in range(2)]
    whole = {layer: weight for layer, (weight, _) in enumerate(held)}
    model.allgather(model.fake_grad(0).shard(place, 3), 0, group=team)
    model.alltoall([model.fake_grad(1).shard(i, 3) for i in range(3)], 1, group=team)
    model.allreduce(model.fake_grad(1), 1, group=team)
    model.broadcast(held[0][0], 0, root=1, group=team)
    if model.rank == 0:
        model.pass_to(1, {"nested": [(held[1][0],), {"deep": model.fake_grad(0)}], "and": "words"})
        model.pass_to(2, held[0][0])
        model.pass_to(3, held[1][1])  # which nobody ever receives
    elif model.rank == 1:
        kept = await model.receive()  # from whoever was first
        assert kept["nested"][0][0].layer == 1
        del kept
    else:
        model.receive(0)
        model.receive(1)  # which nobody ever sends
    grads = compute(model, [model.rank], whole)
    for layer in (1, 0):
        grad = await model.allreduce(grads.pop(layer), layer, group=team)
        model.set_final_weight(layer, model.update(layer, grad, *held[layer])[0])


TURNED = Mesh({"replica": 2, "shard": 3}, ranks=[3, 0, 5, 1, 4, 2])
"""A mesh whose ranks are not in order."""
ROWS = Mesh({"data": 4, "model": 2}, ranks=[0, 3, 2, 1, 7, 6, 5, 4], processes=2)
"""A mesh on which two processes share two rows of data, and two have one each."""
CASES = {
    "odd": Case(by_chance(159), 3, 3, 4),
    "overlapped": Case(overlapped, 4, 3, 4),
    "hybrid": Case(fully_sharded("shard", "replica"), 6, 2, 6, TURNED),
    "turned": Case(fully_sharded("shard", "replica"), 4, 2, 4, Mesh({"replica": 2, "shard": 2}, ranks=[3, 0, 2, 1])),
    "fed": Case(ddp_fed, 4, 2, 8, Mesh({"data": 4}, ranks=[2, 0, 3, 1], processes=2)),
    "fed_in_rows": Case(two_of_a_row, 8, 2, 8, ROWS),
    "ahead": Case(ahead, 2, 2, 2),
    "overwritten": Case(overwritten, 2, 1, 2),
    "loose": Case(loose, 4, 2, 3),
    "buckets": Case(buckets, 3, 3, 3),
    "one_f_one_b": Case(program_of(one_f_one_b(4, 6)), 4, 8, 6),
}
