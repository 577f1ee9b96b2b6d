"""A verdict on a puzzle asks plain data: nothing of a run that student code has had in its hands can lie to it."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import Activation, ActivationGrad, Layer, Mesh, Model, Weight, check, simulate
from lib.puzzles.records import PUZZLES
from tests.support.puzzles import way
from tests.support.said import Said


def models_of(puzzle: str) -> list[Model]:
    models = simulate(way(puzzle), puzzle=puzzle)
    assert isinstance(models, list)
    return models


class Anything(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class OneHost(Mesh):
    """A mesh that says of itself that all its ranks share a host."""

    def host(self, rank: int) -> int:
        return 0

    @property
    def machines(self) -> str:
        return "one"


def lying_layer(models: list[Model]) -> None:
    next(event for event in models[0].program.events if event.op == "forward").layer = Anything(7)


def lying_time(models: list[Model]) -> None:
    models[0].program.events[0].length = Anything(0)


def lying_operation(models: list[Model]) -> None:
    class Text(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    models[0].program.events[2].op = Text("nothing of ours")


def moves_from_nowhere(models: list[Model]) -> None:
    models[0].program.moves.append((len(models[0].program.events), 0, 10**6, 1))


def no_events(models: list[Model]) -> None:
    del models[0].program.events  # pyright: ignore[reportAttributeAccessIssue]


def moves_of_what_is_not_there(models: list[Model]) -> None:
    models[0].program.moves.insert(0, (0, 0, 0, -1))


def after(lie: Callable[[list[Model]], None], puzzle: str | None = "basic") -> str:
    """The faults of a run that somebody has touched up, judged for a puzzle or alone."""
    models = models_of("basic")
    lie(models)
    told = "\n".join(check(models, puzzle).faults)
    return told.replace("lib.simulator.recorder.Recorder", "Recorder")  # Python 3.13 says the module, too


def elsewhere(puzzle: str, **sizes: Any) -> str:
    """The faults of our own answer, run on another world than its puzzle's."""
    record = PUZZLES[puzzle]
    world = {**record.size._asdict(), "mesh": record.mesh, "costs": record.costs, **sizes}
    return "\n".join(check(simulate(way(puzzle), **world), puzzle).faults)


SAID = Said(__file__, "door")


@pytest.mark.parametrize("call", SAID.texts)
def test_what_is_no_plain_run_of_the_puzzle_is_told(call: str) -> None:
    SAID.check(call, globals() | {"Layer": Layer})


def halves(whole: bool, made_up: bool) -> Callable[[Model], None]:
    """A step in halves; without the input half of the first layer, and with one of values made by hand before."""

    def basic(model: Model) -> None:
        weights, opt_states, activations, grad_activations, grad_weights = model.storage()
        if made_up:
            batches = frozenset(range(model.BATCHES))
            given = Activation(0, model.LAYERS, batches, model.BATCHES)
            grad = ActivationGrad(0, model.LAYERS, batches, model.BATCHES)
            model.backward_input(0, given, grad, Weight(0, model.LAYERS, 0))
        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer] = model.backward_weight(layer, activations[layer], grad_activations[layer])
            if layer or whole:
                before = model.backward_input(layer, activations[layer], grad_activations[layer], weights[layer])
                if layer:
                    grad_activations[layer - 1] = before
            del grad_activations[layer], activations[layer]
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights[layer], weights[layer], opt_states[layer]
            )
            del grad_weights[layer]
            model.set_final_weight(layer, weights[layer])

    return basic


@pytest.mark.parametrize(
    ("whole", "made_up", "counts"), [(True, False, True), (False, False, False), (False, True, False)]
)
def test_half_a_backward_of_made_up_values_is_none(whole: bool, made_up: bool, counts: bool) -> None:
    verdict = check(simulate(halves(whole, made_up), puzzle="basic"), "basic")
    assert verdict.correct
    assert ("goals are for whole backwards" not in "".join(verdict.notes)) == counts
