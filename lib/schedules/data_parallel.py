"""Data parallel schedules, from one device to every rank with a shard; they free as early as they can.

Rank r takes batches r, r + n, ... of n ranks. What differs is what is sharded (ZeRO, Rajbhandari et al. 2020,
arXiv 1910.02054) and what waits for communication.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import student_place
from lib.errors.wording import described
from lib.schedules.steps import accumulate, backward, forward, load, loss, mine, step, update
from lib.simulator.model import Model
from lib.values.values import Weight, WeightGrad, describe


def segments(layers: int, k: int) -> list[range]:
    """Return the layers in k segments, none of which is longer than another by more than one. Of more segments than
    layers there are as many as layers."""
    if type(k) is not int or k < 1:
        raise PuzzleError(
            f"segments({layers}, {k!r}) makes no segments",
            expected="a whole number of segments, 1 or more",
            got=described(k, describe),
            where=[(None, found)] if (found := student_place(2)) is not None else [],
            fix="round it: k = round(...)" if isinstance(k, float) else "give k a number such as 2",
        )
    borders = [-(-number * layers // k) for number in range(k + 1)]
    return [range(first, end) for first, end in pairwise(borders) if first < end]


def checkpointed(k: int, *, whole: bool = False) -> Callable[[Model], None]:
    """Keep only the inputs of k segments; backward runs each again, from the last (Chen et al. 2016, arXiv 1604.06174):
    `whole`, or without its last layer, whose output nothing needs. On one device, all batches together."""

    def run(model: Model) -> None:
        load(model)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        every = segments(model.LAYERS, k)
        for segment in every:
            for layer in segment:
                forward(model, layer)
            for layer in segment[1:] if segment != every[-1] else ():
                del model.activations[layer]
        loss(model)
        for segment in reversed(every):
            if segment != every[-1]:
                for layer in segment if whole else segment[:-1]:
                    forward(model, layer)
                model.activations.pop(segment[-1] + 1, None)
            for layer in reversed(segment):
                model.grad_weights[layer] = backward(model, layer)
                step(model, layer)

    return run


async def ddp(model: Model) -> None:
    """Reduce and update every layer as soon as its gradient is there. It calls Model alone: benchmarks count it."""
    weights, opt_states, activations, grads, sums = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(mine(model))
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grads[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad, grads[layer] = model.backward(layer, activations.pop(layer), grads.pop(layer + 1), weights[layer])
        if layer == 0:
            del grads[0]  # the gradient of the data is not needed
        sums[layer] = await model.allreduce(grad, layer)
        weights[layer], opt_states[layer] = model.update(layer, sums.pop(layer), weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])


def zero(stage: int) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Make a stage of ZeRO with microbatches of one batch, every collective awaited at once. At 0 nothing is sharded
    (DDP), at 1 the optimizer states are, at 2 the sums of gradients too, and at 3 the weights, which are gathered and
    dropped for each use (FSDP)."""

    async def run(model: Model) -> None:
        weights, _, _, _, sums = model.storage()
        place, batches = (model.rank, model.RANKS), mine(model)
        for layer in range(model.LAYERS):
            whole, of_all = model.load_weights(layer)
            shard, of_mine = model.load_weights(layer, *place)
            weights[layer] = shard if stage == 3 else whole
            model.opt_states[layer] = of_mine if stage else of_all
            del whole, of_all, shard, of_mine

        async def at_work(layer: int) -> Weight:
            return await model.allgather(weights[layer], layer) if stage == 3 else weights[layer]

        for b in batches:
            model.activations[0] = model.get_activation([b])
            for layer in range(model.LAYERS):
                forward(model, layer, weight=await at_work(layer))
            loss(model)
            for layer in reversed(range(model.LAYERS)):
                grad = backward(model, layer, await at_work(layer))
                if 0 < stage < 3 and b == batches[-1]:
                    weights[layer] = weights[layer].shard(*place)  # the rest of the old weight is not needed
                accumulate(model, layer, await model.scatterreduce(grad, layer) if stage > 1 else grad)
                del grad
        for layer in reversed(range(model.LAYERS)):
            if stage < 2:
                total = sums.pop(layer)
                sums[layer] = await (model.scatterreduce if stage else model.allreduce)(total, layer)
                del total
            update(model, layer)
            if 0 < stage < 3:
                weights[layer] = await model.allgather(weights[layer], layer)
            model.set_final_weight(layer, weights[layer])

    return run


def fully_sharded(shard: str | None = None, replica: str | None = None) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """FSDP over the axis `shard` of the mesh, or over all ranks; each weight is gathered twice and not kept in
    between. With `replica` it is HSDP: the shards' gradients are all-reduced over that axis."""

    async def sharded(model: Model) -> None:
        members, weights = model.group(shard), model.weights
        load(model, shard=model.rank if shard is None else members.index(model.rank), total=len(members))
        model.activations[0] = model.get_activation(mine(model))
        for layer in range(model.LAYERS):
            forward(model, layer, weight=await model.allgather(weights[layer], layer, shard))
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            gradient = backward(model, layer, await model.allgather(weights[layer], layer, shard))
            total = await model.scatterreduce(gradient, layer, shard)
            model.grad_weights[layer] = total if replica is None else await model.allreduce(total, layer, replica)
        for layer in range(model.LAYERS):
            step(model, layer)

    return sharded


fsdp = fully_sharded()


def fetching(ahead: int, behind: int = 0, *, keep: bool = True) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """FSDP with up to `ahead` gathers on their way or waiting while a layer is computed, all in one queue; a
    reduce-scatter runs behind up to `behind` later backwards. `keep`: the last layer stays whole for its backward."""

    async def fetching_ahead(model: Model) -> None:
        load(model, shard=model.rank, total=model.RANKS)
        weights, last = model.weights, model.LAYERS - 1
        to_come = [*range(model.LAYERS), *reversed(range(model.LAYERS - keep))]
        coming: list[Awaitable[Weight]] = []
        leaving: list[tuple[int, Awaitable[WeightGrad]]] = []

        def fetch(most: int) -> None:
            while to_come and len(coming) < most:
                layer = to_come.pop(0)
                coming.append(model.allgather(weights[layer], layer))

        async def whole() -> Weight:
            fetch(1)
            weights["whole"] = await coming.pop(0)
            fetch(ahead)
            return weights["whole"]

        async def settle(most: int) -> None:
            while len(leaving) > most:
                layer, work = leaving.pop(0)
                model.grad_weights[layer] = await work
                step(model, layer)

        model.activations[0] = model.get_activation(mine(model))
        for layer in range(model.LAYERS):
            forward(model, layer, weight=await whole())
            if layer < last or not keep:
                del weights["whole"]
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            gradient = backward(model, layer, weights["whole"] if layer == last and keep else await whole())
            del weights["whole"]
            leaving.append((layer, model.scatterreduce(gradient, layer)))
            del gradient
            await settle(behind)
        await settle(0)

    return fetching_ahead
