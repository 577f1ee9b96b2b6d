"""Functions for the puzzle `basic`, and one of our references, to be checked in tests."""

from typing import Any

from lib import Model, NotSolved, simulate
from tests.support.puzzles import way


def good(model: Model) -> None:
    """Passes, with more memory than the reference needs."""
    step(model, keep=False)


def fat(model: Model) -> None:
    """Correct, and keeps so much that it misses the first goal."""
    step(model, keep=True)


def step(model: Model, keep: bool) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        if not keep:
            del activations[layer + 1], grad_activations[layer + 1]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        if not keep:
            del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])


def wrong(model: Model) -> None:
    """Runs to its end, and is no training step."""
    model.get_activation(range(model.BATCHES))


def unsolved(model: Model) -> None:
    raise NotSolved("basic")


def run(function: Any, **sizes: Any) -> list[Model]:
    """The Models of a function at the size of `basic`, or at another."""
    return simulate(function, puzzle="basic", **sizes)


def official(puzzle: str) -> list[Model]:
    return simulate(way(puzzle), puzzle=puzzle)
