"""Real tensors of parts of weights, and of halves of backward: the same gradients as one process has."""

from itertools import product
from typing import Any

import pytest

from lib import Mesh, Model, Trace, simulate
from lib.replay import replay
from lib.replay.sizes import Sizes
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.mesh_parallel import tensor_parallel
from lib.schedules.pipelines.generators import one_f_one_b, zb_h1
from lib.schedules.pipelines.program import program_of
from lib.values.layers import Layer, Shape, by_hand
from lib.values.values import Activation, Weight, value_of
from tests.support.schedules import OTHERS, Case

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

BACKWARDS = ("explicit", "autograd")
CASES = [case for case in OTHERS if case.name.startswith(("tensor", "split"))]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_gradients_are_those_of_one_process(case: Case) -> None:
    trace = Trace.of(case.run(simulate))
    for transport in ("local", "gloo") if case.name == "tensor_parallel" else ("local",):
        result = replay(trace, transport=transport, hidden=24, length=3)
        assert result.ok, result.text()


def test_where_columns_and_features_lie() -> None:
    sizes, tensors = Sizes(Shape(1, 2, Layer("linear", 4, 4, 2))), by_hand(2)
    right = value_of(Weight, by_hand(), 0, 1, 0, frozenset([0]), 1, [("out", [1], 2)])
    assert sizes.elements(right).runs == ((2, 4), (6, 8), (10, 12), (14, 16))
    both = value_of(Weight, by_hand(), 0, 1, 0, frozenset([1]), 2, [("out", [1], 2)])
    assert sizes.elements(both).runs == ((10, 12), (14, 16))
    third = value_of(Weight, by_hand(), 0, 1, 0, frozenset([1]), 3, [("out", [1], 2)])
    assert sizes.elements(third).runs == ((6, 8), (10, 11))  # of a line of 8: from 2 to 5
    features = value_of(Activation, tensors, 0, 1, frozenset([1]), 2, [("features", [0], 2)])
    assert sizes.elements(features).runs == ((8, 10), (12, 14))
    for value in (right, both, third, features):
        assert sizes.numel(value) == len(sizes.elements(value))
        assert len(list(sizes.parts(value).values())[-1]) == 2


@pytest.mark.parametrize(
    ("name", "backward"),
    [("pipeline", "autograd"), ("zero bubble", "explicit"), ("sharded", "explicit"), *product(["parts"], BACKWARDS)],
)
def test_a_step_in_halves_trains_what_ordinary_training_trains(
    name: str, backward: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(model: Model, layer: int, inp: Any, grad: Any, weight: Any) -> Any:
        made = model.backward_weight(layer, inp, grad)
        return made, model.backward_input(layer, inp, grad, weight)

    monkeypatch.setattr(Model, "backward", halves)
    function: Any = {
        "pipeline": program_of(one_f_one_b(2, 4)),
        "zero bubble": program_of(zb_h1(2, 4)),
        "sharded": fully_sharded(),
        "parts": tensor_parallel("full"),
    }[name]
    mesh = Mesh({"data": 2, "model": 2}) if name == "parts" else None
    ranks = 2 if mesh is None else 4
    trace = Trace.of(simulate(function, ranks=ranks, layers=4, batches=4, mesh=mesh))
    result = replay(trace, transport="local", backward=backward, hidden=32, length=16, timeout=120)
    assert result.ok, result.text()
    assert {"backward_input", "backward_weight"} <= {event.op for _, event in trace.events()}
