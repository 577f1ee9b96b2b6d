"""Halves of backward with real tensors."""

from typing import Any

import pytest

from lib import Model, Trace, simulate
from lib.cluster.mesh import Mesh
from lib.replay import replay
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.pipelines.generators import one_f_one_b, zb_h1
from lib.schedules.pipelines.program import program_of
from lib.schedules.tensor_parallel import tensor_parallel
from lib.values.layers import Shape

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.layers.layers import REAL_LAYERS, Held  # noqa: E402


def test_the_halves_are_what_backward_and_autograd_say() -> None:
    one = REAL_LAYERS["linear"](Shape(1, 1).kinds[0], torch.zeros)
    sizes = ((3, 4, 6), (3, 4, 5), (6, 5))
    x, grad, weight = (Held(torch.randn(*form, dtype=torch.float64), {}) for form in sizes)
    true = one.differentiated(x, grad, weight, (True, True))
    halves = [one.backward(x, grad, weight, wanted) for wanted in ((True, False), (False, True))]
    assert halves[0][1] is halves[1][0] is None
    for mine in (one.backward(x, grad, weight, (True, True)), (halves[0][0], halves[1][1])):
        for found, theirs in zip(mine, true, strict=True):
            assert found is not None
            assert theirs is not None
            torch.testing.assert_close(found.view(theirs.shape), theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backward", ["explicit", "autograd"])
@pytest.mark.parametrize("name", ["pipeline", "sharded", "parts", "zero bubble"])
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
