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

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.layers import layers  # noqa: E402


def test_the_halves_are_what_backward_and_autograd_say() -> None:
    x, grad = torch.randn(12, 6, dtype=torch.float64), torch.randn(12, 5, dtype=torch.float64)
    weight = torch.randn(6, 5, dtype=torch.float64)
    by_weight, by_input = layers.autograd(x, grad, weight)
    inner = torch.tanh(x)
    for mine, theirs in (
        (layers.weight_gradient(inner, grad), by_weight),
        (layers.input_gradient(inner, grad, weight), by_input),
        (layers.autograd_weight(x, grad), by_weight),
        (layers.autograd_input(x, grad, weight), by_input),
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


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
