"""The steps that most schedules have in common: load, forward, loss, backward, add up, update. Each is one layer's.

Values lie in the rank's stores under the number of their layer and are freed as soon as they are used up: the input of
layer i is activations[i], the gradient of its output grad_activations[i]. `one_collective` is a schedule of one
collective and nothing else, to see what it does to the values of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

from lib.schedules.given import accumulate, forward, update
from lib.simulator.model import Model
from lib.values.collectives import COLLECTIVES
from lib.values.laws import average, gather
from lib.values.values import Weight, WeightGrad

__all__ = ["accumulate", "backward", "compute", "forward", "load", "loss", "mine", "one_collective", "step", "update"]


def load(model: Model, layers: Iterable[int] | None = None, shard: int = 0, total: int = 1) -> None:
    """Load weights and optimizer states of some layers, or of all: whole, or a shard of each."""
    for layer in range(model.LAYERS) if layers is None else layers:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, total)


def mine(model: Model) -> range:
    """Return the batches of a rank that takes every n-th."""
    return range(model.rank, model.BATCHES, model.RANKS)


def loss(model: Model) -> None:
    """Make the gradient of the last layer's output, which that gives way to."""
    model.grad_activations[model.LAYERS - 1] = model.loss(model.activations.pop(model.LAYERS))


def backward(model: Model, layer: int, weight: Weight | None = None) -> WeightGrad:
    """Use up the activation and the gradient; the first layer's gradient of the data is dropped."""
    activation, grad = model.activations.pop(layer), model.grad_activations.pop(layer)
    weight_grad, before = model.backward(layer, activation, grad, weight or model.weights[layer])
    if layer:
        model.grad_activations[layer - 1] = before
    return weight_grad


def step(model: Model, layer: int) -> None:
    """Update a layer and hand it in."""
    update(model, layer)
    model.set_final_weight(layer, model.weights[layer])


def compute(model: Model, batches: Iterable[int]) -> None:
    """Forward, loss and backward of some batches on complete weights; gradients are summed up."""
    model.activations[0] = model.get_activation(batches)
    for layer in range(model.LAYERS):
        forward(model, layer)
    loss(model)
    for layer in reversed(range(model.LAYERS)):
        accumulate(model, layer, backward(model, layer))


def one_collective(name: str) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """Return the collective of that name (as Model's method is called) on layer 0, by all ranks.

    What gathers is given a shard of a weight by each rank. All others are given a gradient, for the batch with the
    rank's own number; where a rank has something for each of the others, that is a shard of its gradient. What averages
    is given a mean of some of the rows by each, of a model whose layer 0 is of the kind mean.
    """
    row = COLLECTIVES[name]

    async def alone(model: Model) -> None:
        store = cast("dict[Any, Any]", model.weights if row.law is gather else model.grad_weights)
        if row.law is gather:
            brought, model.opt_states["mine"] = model.load_weights(0, model.rank, model.RANKS)
        elif row.law is average:
            store = cast("dict[Any, Any]", model.activations)
            brought = model.forward(0, model.shard(model.get_activation([0]), "rows", model.rank, model.RANKS))
        else:
            brought = model.fake_grad(0, [model.rank])
        run = cast("Callable[..., Any]", getattr(model, name))
        if row.bucket:
            got = await run([model.fake_grad(layer, [model.rank]) for layer in range(model.LAYERS)])
        elif row.many:
            got = await run([brought.shard(n, model.RANKS) for n in range(row.takes(model.rank, model.RANKS))], 0)
        else:
            store["brings"] = brought
            store["gets"] = await run(brought, 0)
            return
        store.update((("gets", part), value) for part, value in enumerate(got))

    return alone
