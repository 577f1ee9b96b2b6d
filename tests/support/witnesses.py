"""Schedules that reach a lower bound: for each puzzle and figure one of which the figure is exactly the bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import Model
from lib.analysis.bounds.optima import Size
from lib.puzzles.records import PUZZLES
from lib.schedules import pipelines
from lib.schedules.data_parallel import ddp_overlap
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from tests.support.optima import find

Function = Callable[[Model], Any]


def sharded(*, keep: bool = False, ahead: bool = False, sum_up: str = "scatterreduce") -> Function:
    """FSDP in which a gathered weight takes the place of the rank's shard, which is cut out of it again: least memory.

    `keep` keeps what was gathered until backward: least elements sent. `ahead` gathers the next layer while one is
    computed and sums up in the background: least time.
    """

    async def run(model: Model) -> None:
        weights, states, acts, grads, _ = model.storage()
        layers, last = range(model.LAYERS), model.LAYERS - 1

        def shrink(layer: int) -> None:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)

        for layer in layers:
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        acts[0] = model.get_activation([model.rank])
        coming: dict[int, Any] = {}

        def gather(layer: int) -> None:
            coming[layer] = model.allgather(weights[layer], layer)

        gather(0)
        for layer in layers:
            weights[layer] = await coming.pop(layer)
            if ahead and layer < last:
                gather(layer + 1)
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if layer < last:
                if not keep:
                    shrink(layer)
                if not ahead:
                    gather(layer + 1)
        grads[last + 1] = model.loss(acts.pop(last + 1))
        sums: dict[int, Any] = {}
        for layer in reversed(layers):
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            if ahead and layer > 0 and not keep:
                gather(layer - 1)
            made, before = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
            if layer > 0:
                grads[layer] = before
            del before
            shrink(layer)
            sums[layer] = getattr(model, sum_up)(made, layer)
            del made
            if not ahead:
                await finish(model, layer, sums)
                if layer > 0 and not keep:
                    gather(layer - 1)
        for layer in list(sums):
            await finish(model, layer, sums)

    async def finish(model: Model, layer: int, sums: dict[int, Any]) -> None:
        weights, states = model.weights, model.opt_states
        weights[layer], states[layer] = model.update(layer, await sums.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])

    return run


async def sharded_best(model: Model) -> None:
    """FSDP of the least memory that hides what communication it can: the next gather behind a forward or an update,
    and a reduce-scatter behind the next backward where the activations that are gone leave room for it."""
    weights, states, acts, grads, sums = model.storage()
    last = model.LAYERS - 1

    def gather(layer: int) -> Any:
        return model.allgather(weights[layer], layer)

    def shrink(layer: int) -> None:
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    def step(layer: int) -> None:
        weights[layer], states[layer] = model.update(layer, sums.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])

    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    acts[0] = model.get_activation([model.rank])
    coming = gather(0)
    for layer in range(model.LAYERS):
        weights[layer] = await coming
        if layer < last:
            coming = gather(layer + 1)
        acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
        if layer < last:
            shrink(layer)
    grads[last + 1] = model.loss(acts.pop(last + 1))
    summing: dict[int, Any] = {}
    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            weights[layer] = await coming
        ahead = layer == last - 2 and layer > 0  # just enough room for one more weight
        if ahead:
            coming = gather(layer - 1)
        sums[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
        shrink(layer)
        if layer == 0:
            del grads[0]
        if layer > last - 2:  # the memory is full: sum up at once, and gather behind the update
            sums[layer] = await model.scatterreduce(sums[layer], layer)
            coming = gather(layer - 1) if layer > 0 else coming
            step(layer)
            continue
        if layer + 1 in summing:
            sums[layer + 1] = await summing.pop(layer + 1)
        if layer > 0 and not ahead:
            coming = gather(layer - 1)
        summing[layer] = model.scatterreduce(sums[layer], layer)
        if layer + 1 in sums:
            step(layer + 1)
    for layer in list(summing):
        sums[layer] = await summing.pop(layer)
        step(layer)


async def pipeline_fsdp_lean(model: Model) -> None:
    """As the reference, but the gathered weight takes the place of the shard: least memory, least time, least sent."""
    weights, states, acts, grads, sums = model.storage()
    stage, batch = model.coord["stage"], model.coord["data"]
    pipeline, shards = model.group("stage"), len(model.group("data"))
    weights[stage], states[stage] = model.load_weights(stage, batch, shards)
    weights[stage] = await model.allgather(weights[stage], stage, group="data")
    acts[stage] = model.get_activation([batch]) if stage == 0 else await model.receive(pipeline[stage - 1])
    acts[stage + 1] = model.forward(stage, acts[stage], weights[stage])
    if stage == len(pipeline) - 1:
        grads[stage + 1] = model.loss(acts.pop(stage + 1))
    else:
        await model.pass_to(pipeline[stage + 1], acts.pop(stage + 1))
        grads[stage + 1] = await model.receive(pipeline[stage + 1])
    sums[stage], grads[stage] = model.backward(stage, acts.pop(stage), grads.pop(stage + 1), weights[stage])
    weights[stage] = weights[stage].shard(batch, shards)
    if stage > 0:
        await model.pass_to(pipeline[stage - 1], grads[stage])
    del grads[stage]
    sums[stage] = await model.scatterreduce(sums[stage], stage, group="data")
    weights[stage], states[stage] = model.update(stage, sums.pop(stage), weights[stage], states[stage])
    model.set_final_weight(stage, weights[stage])


def _reference(puzzle: str) -> Function:
    return load_function(reference(puzzle), puzzle)


def _pipeline() -> Size:
    record = PUZZLES["gpipe"]
    return Size(record.ranks, record.layers, record.batches, overlap=True)


def witness(puzzle: str, figure: str) -> Function:
    """A schedule that reaches the bound of a puzzle: of its "time", "memory" or "sent"."""
    if puzzle == "ddp":
        return ddp_overlap
    if puzzle in ("wsdp", "fsdp"):
        return sharded(ahead=figure == "time", keep=figure == "sent")
    if puzzle == "pipeline_fsdp":
        return pipeline_fsdp_lean
    if puzzle == "gpipe" and figure != "sent":
        return pipelines.witness(find(_pipeline(), "fastest" if figure == "time" else "leanest"))
    return _reference(puzzle)


TOGETHER = {
    "basic": (17.0, 2_621_440),
    "grad_accum": (17.0, 1_966_080),
    "ddp": (5.0, 1_572_864),
    "wsdp": (15.9, 1_900_544),
    "fsdp": (15.9, 1_900_544),
    "pipeline": (67.4, 2_621_440),
    "gpipe": (31.4, 2_490_368),
    "pipeline_fsdp": (11.5, 589_824),
}
"""The best time and memory that we know of one run that is of the family."""


def together(puzzle: str) -> Function:
    """The run that has the figures of TOGETHER."""
    return sharded_best if puzzle in ("wsdp", "fsdp") else witness(puzzle, "time")
