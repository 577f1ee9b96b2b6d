"""Layers of experts in the figures of an independent timing model: who sends what, who computes how long."""

from typing import Any

import pytest

from lib import Layer, Links, Model, check, route_by_loads, simulate
from lib.analysis.figures import traffic
from lib.cluster.costs import units
from tests.support.puzzles import way

Value = Any
FAIR, HOT = route_by_loads([1, 1, 1, 1], top=2), route_by_loads([7, 3, 3, 3], top=2)


def send(model: Model, value: Value, dim: str, padded: bool = False) -> Any:
    exchange = model.alltoall_padded if padded else model.alltoall
    return exchange([model.shard(value, dim, rank, model.RANKS) for rank in range(model.RANKS)], value.layer)


async def arrived(work: Any) -> Value:
    whole, *parts = await work
    for part in parts:
        whole = whole.combine(part)
    return whole


def in_parts(parts: int, padded: bool = False) -> Any:
    """Forward, backward and update of a layer of experts; while the tokens of a part travel another is computed."""

    async def step(model: Model) -> None:
        weight, state = model.load_weights(1, model.rank, model.RANKS)
        data = model.get_activation([model.rank])
        rows = [model.shard(data, "rows", part, parts) for part in range(parts)]
        out = [send(model, model.forward(0, one), "experts", padded) for one in rows]
        here, home = list[Value](), list[Any]()
        for work in out:
            here.append(await arrived(work))
            home.append(send(model, model.forward(1, here[-1], weight), "batch", padded))
        back, gradients = list[Any](), list[Value]()
        for work in home:
            result = await arrived(work)
            back.append(send(model, model.backward(2, result, model.loss(model.forward(2, result))), "experts", padded))
        home.clear()
        for tokens, work in zip(here, back, strict=True):
            gradient, grad = model.backward(1, tokens, await arrived(work), weight)
            gradients.append(gradients[-1] + gradient if gradients else gradient)
            home.append(send(model, grad, "batch", padded))
        for one, work in zip(rows, home, strict=True):
            model.backward(0, one, await arrived(work))
        weight, state = model.update(1, gradients[-1], weight, state)
        model.set_final_weight(1, weight)

    return step


async def everywhere(model: Model) -> None:
    weight, state = model.load_weights(1)
    tokens = model.forward(0, data := model.get_activation([model.rank]))
    results = model.forward(1, tokens, weight)
    grad = model.backward(2, results, model.loss(model.forward(2, results)))
    gradient, grad = model.backward(1, tokens, grad, weight)
    model.backward(0, data, grad)
    weight, state = model.update(1, await model.allreduce(gradient, 1), weight, state)
    model.set_final_weight(1, weight)


EVEN = [786_432] * 4
UNEVEN = [983_040, 720_896, 720_896, 720_896]


@pytest.mark.parametrize(
    ("step", "route", "capacity", "latency", "end", "sent"),
    [
        (everywhere, FAIR, None, 0.0, 8.4, [1_572_864] * 4),
        (in_parts(1), FAIR, None, 0.0, 5.7, EVEN),
        (in_parts(2), FAIR, None, 0.0, 5.1, EVEN),
        (in_parts(4), FAIR, None, 0.0, 4.8, EVEN),
        (in_parts(1), FAIR, 128, 0.0, 5.7, EVEN),
        (in_parts(1), HOT, None, 0.0, 9.6, UNEVEN),
        (in_parts(2), HOT, None, 0.0, 8.55, UNEVEN),
        (in_parts(4), HOT, None, 0.0, 8.025, UNEVEN),
        (in_parts(1), HOT, 160, 0.0, 7.0, [786_432, 655_360, 655_360, 655_360]),
        (in_parts(1), HOT, 128, 0.0, 5.7, [688_128, 622_592, 622_592, 622_592]),
        (in_parts(1), FAIR, None, 0.02, 5.94, EVEN),
        (in_parts(1, padded=True), FAIR, 128, 0.0, 5.7, EVEN),
        (in_parts(1, padded=True), FAIR, 128, 0.02, 5.94, EVEN),
        (in_parts(1, padded=True), HOT, 160, 0.0, 7.0, [983_040] * 4),
        (in_parts(1, padded=True), HOT, 128, 0.0, 5.7, EVEN),
    ],
)
def test_a_layer_of_experts_takes_what_another_model_says(
    step: Any, route: Any, capacity: int | None, latency: float, end: float, sent: list[int]
) -> None:
    layers = [Layer("dispatch", experts=4, route=route, capacity=capacity), Layer("experts", experts=4)]
    models = simulate(step, layers=[*layers, Layer("combine")], ranks=4, batches=4, costs=Links(latency=latency))
    verdict = check(models)
    assert verdict.correct, verdict.faults
    assert verdict.time == end
    assert [elements for elements, _ in traffic(models[0].trace)] == sent


@pytest.mark.parametrize(("name", "ends"), [("await_all", [26.0, 23.6]), ("", [24.9, 22.5])])
def test_experts_in_a_pipeline_take_what_another_model_says(name: str, ends: list[float]) -> None:
    """The second stage's last message shares its link with a sum here, and ends 0.2 later than there."""
    trace = simulate(way("moe_pipeline", name), puzzle="moe_pipeline")[0].trace
    over = [units(max(event.end or 0 for event in program.events)) for program in trace.programs]
    assert over == [end for end in ends for _ in range(4)]
    assert [elements for elements, _ in traffic(trace)] == [2_228_224] * 8
