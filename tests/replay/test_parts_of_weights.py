"""Real tensors of parts of weights: the same gradients as one process, whatever is cut along which dim."""

import pytest

from lib import Trace, simulate
from lib.replay import replay
from lib.replay.plan.sizes import Sizes, length
from lib.values.layers import Layer, Shape, by_hand
from lib.values.values import Activation, Weight, value_of
from tests.support.schedules import OTHERS, Case

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

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
    assert sizes.ranges(right) == ((2, 4), (6, 8), (10, 12), (14, 16))
    both = value_of(Weight, by_hand(), 0, 1, 0, frozenset([1]), 2, [("out", [1], 2)])
    assert sizes.ranges(both) == ((10, 12), (14, 16))
    third = value_of(Weight, by_hand(), 0, 1, 0, frozenset([1]), 3, [("out", [1], 2)])
    assert sizes.ranges(third) == ((6, 8), (10, 11))  # of a line of 8: from 2 to 5
    features = value_of(Activation, tensors, 0, 1, frozenset([1]), 2, [("features", [0], 2)])
    assert sizes.ranges(features) == ((8, 10), (12, 14))
    for value in (right, both, third, features):
        assert sizes.numel(value) == length(sizes.ranges(value))
        assert length(list(sizes.parts(value).values())[-1]) == 2
