"""The steps that most schedules have in common: load, forward, loss, backward, add up, update. Each is one layer's.

Values lie in the rank's stores under the number of their layer and are freed as soon as they are used up: the input of
layer i is activations[i], the gradient of its output grad_activations[i].
"""

from __future__ import annotations

from collections.abc import Iterable

from lib.simulator.model import Model
from lib.values.values import Weight, WeightGrad

__all__ = ["accumulate", "backward", "compute", "forward", "load", "loss", "mine", "step", "update"]


def load(model: Model, layers: Iterable[int] | None = None, shard: int = 0, total: int = 1) -> None:
    """Weights and optimizer states of some layers, or of all: whole, or a shard of each."""
    for layer in range(model.LAYERS) if layers is None else layers:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, total)


def mine(model: Model) -> range:
    """The batches of a rank that takes every n-th."""
    return range(model.rank, model.BATCHES, model.RANKS)


def forward(model: Model, layer: int, weight: Weight | None = None) -> None:
    """One layer forward; its input stays for the backward. `weight` is used instead of the stored one."""
    model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight or model.weights[layer])


def loss(model: Model) -> None:
    """The gradient of the last layer's output, in place of that output."""
    model.grad_activations[model.LAYERS - 1] = model.loss(model.activations.pop(model.LAYERS))


def backward(model: Model, layer: int, weight: Weight | None = None) -> WeightGrad:
    """Uses up the activation and the gradient; the first layer's gradient of the data is dropped."""
    activation, grad = model.activations.pop(layer), model.grad_activations.pop(layer)
    weight_grad, before = model.backward(layer, activation, grad, weight or model.weights[layer])
    if layer:
        model.grad_activations[layer - 1] = before
    return weight_grad


def accumulate(model: Model, layer: int, grad: WeightGrad) -> None:
    """Adds a gradient to the sum of its layer, or begins that sum."""
    if layer in model.grad_weights:
        grad = model.grad_weights[layer] + grad
    model.grad_weights[layer] = grad


def update(model: Model, layer: int) -> None:
    """The new weight and optimizer state in place of the old ones; uses up the gradient."""
    grad = model.grad_weights.pop(layer)
    weight, state = model.weights.pop(layer), model.opt_states.pop(layer)
    model.weights[layer], model.opt_states[layer] = model.update(layer, grad, weight, state)


def step(model: Model, layer: int) -> None:
    """Updates a layer and hands it in."""
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
