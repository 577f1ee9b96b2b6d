"""Tensor parallel on a mesh: rows of data along one axis, and along the other each layer cut among the ranks.

Layers come in pairs: the first of a pair is cut into columns, the second into rows (Shoeybi et al. 2019, arXiv
1909.08053), so that a pair owes one all-reduce forward and one backward.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lib.schedules.steps import step
from lib.simulator.model import Model
from lib.values.values import Activation

__all__ = ["PLACEMENTS", "tensor_parallel"]

PLACEMENTS = ("full", "batch", "replicated")
"""Which batches a device is given: a part of those of its row of data, those of its row, or all."""


def tensor_parallel(
    placement: str = "batch", data: str = "data", model_axis: str = "model", first_input: bool = False
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Each row of data takes its share of the batches. `first_input`: also sums the gradient of the data, which nobody
    needs."""

    async def cut(model: Model) -> None:
        member, members = model.coord[model_axis], len(model.group(model_axis))
        weights, opt_states, activations, grads, sums = model.storage()
        for layer in range(model.LAYERS):
            dim = "in" if layer % 2 else "out"
            weights[layer], opt_states[layer] = model.load_weights(layer, member, members, dim)
        activations[0] = await _take(model, placement, data, model_axis)
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            if layer % 2:
                activations[layer + 1] = await model.allreduce(activations[layer + 1], layer, model_axis)
        grads[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            sums[layer], grads[layer] = model.backward(
                layer, activations.pop(layer), grads.pop(layer + 1), weights[layer]
            )
            if layer % 2 == 0 and (layer or first_input):
                grads[layer] = await model.allreduce(grads[layer], layer, model_axis)
        del grads[0]
        for layer in range(model.LAYERS):
            sums[layer] = await model.allreduce(sums[layer], layer, data)
            step(model, layer)

    return cut


async def _take(model: Model, placement: str, data: str, model_axis: str) -> Activation:
    """The batches of this rank's row of data."""
    rows = len(model.group(data))
    each = model.BATCHES // rows
    first = model.coord[data] * each
    if placement == "batch":
        return model.get_activation(range(first, first + each))
    if placement == "replicated":
        return model.get_activation(range(model.BATCHES)).shard(model.coord[data], rows)
    assert placement == "full", f"there are the placements {PLACEMENTS}"
    mine = each // len(model.group(model_axis))
    first += model.coord[model_axis] * mine
    return await model.allgather(model.get_activation(range(first, first + mine)), 0, model_axis)
