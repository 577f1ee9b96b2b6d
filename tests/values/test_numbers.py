"""Every value that is done is its box of the undivided computation: in programs by hand, and in those of chance."""

from typing import Any

import numpy as np
import pytest

from lib import UNIT, Layer, Trace, check, retime, simulate
from lib.values.layers import Shape
from lib.values.operations import OPERATIONS
from lib.values.rules import load_weights
from tests.support.inside import PROGRAMS
from tests.support.profiles import THOROUGH
from tests.values.fuzz import NETS, program
from tests.values.numbers import Undivided, play

SEEDS = 500 if THOROUGH else 36
"""Programs of each net."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_in_numbers_and_for_the_check(name: str) -> None:
    models = PROGRAMS[name].run()
    verdict = check(models)
    assert verdict.correct, verdict.faults
    assert play(models[0].trace) > 20


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_comes_back_from_a_file_and_from_text(name: str, tmp_path: Any) -> None:
    trace = PROGRAMS[name].run()[0].trace
    trace.save(tmp_path / "run.json")
    loaded, parsed = Trace.load(tmp_path / "run.json"), Trace.parse(trace.text())
    assert loaded.text() == parsed.text() == trace.text()
    assert check(loaded).time == check(parsed).time == check(trace).time
    assert check(loaded).correct
    assert check(parsed).correct


@pytest.mark.parametrize("net", NETS)
def test_whatever_is_accepted_is_right(net: str) -> None:
    gradients = sum(program(net, seed, steps=60)[2] for seed in range(SEEDS))
    assert gradients > SEEDS // 2


@pytest.mark.parametrize("net", NETS)
def test_the_gradients_of_the_undivided_computation_are_differences(net: str) -> None:
    shape = Shape(len(NETS[net]), 2, NETS[net])
    true = Undivided(shape)

    def loss(weights: dict[int, Any]) -> float:
        return float(-np.cos(Undivided(shape, weights=weights).x[shape.layers]).sum())

    for number, weight in true.weights.items():
        for at in np.random.default_rng(1).choice(weight.size, 4, replace=False):
            both: list[float] = []
            for step in (1e-5, -1e-5):
                moved = weight.copy()
                moved.flat[at] += step
                both.append(loss({**true.weights, number: moved}))
            assert (both[0] - both[1]) / 2e-5 == pytest.approx(true.dw[number].flat[at], rel=1e-4, abs=1e-6)


def test_a_layer_costs_what_its_description_says() -> None:
    async def step(model: Any) -> None:
        weight, state = model.load_weights(0)
        x = model.get_activation([0])
        y = model.forward(0, x, weight)
        gradient, _ = model.backward(0, x, model.loss(y), weight)
        model.update(0, gradient, weight, state)

    (usual,) = simulate(step, layers=1)
    (wide,) = simulate(step, layers=[Layer("linear", 512, 2048)])
    assert (usual.time, wide.time) == (2.5, 10)
    assert retime(wide.trace, UNIT).programs[0].events[-1].end == wide.program.clock


@pytest.mark.parametrize(("outputs", "parts", "time"), [(512, 1, 0.5), (512, 4, 0.5), (2048, 4, 0.5), (2048, 2, 1.0)])
def test_an_update_of_a_part_costs_what_the_usual_layer_does_or_what_it_is_larger(
    outputs: int, parts: int, time: float
) -> None:
    shape = Shape(1, 1, [Layer("linear", 512, outputs)])
    weight, _ = load_weights(shape, 0, 0, parts)
    assert OPERATIONS["update"].work(shape, 0, 0, [weight, weight]) * UNIT.update == time
