"""The schedules of puzzle moe_pipeline, and some between them, in the figures of an independent timing model."""

from typing import Any

import pytest

from lib import Layer, Links, Mesh, Model, check, route_by_loads, simulate
from lib.analysis.figures import traffic
from lib.cluster.costs import units
from tests.support.inside import exchange

BLOCK = [
    Layer(),
    Layer("dispatch", experts=2, route=route_by_loads([1, 1])),
    Layer("experts", experts=2),
    Layer("combine"),
]


def pipeline(one_f_one_b: bool, posted: bool = False, behind: bool = False) -> Any:
    """Two stages, each a dense layer and a layer of experts. `posted`: nobody waits until a message is sent, but for
    the last one; `behind`: gradients are summed behind the last backward and the updates."""

    async def step(model: Model) -> None:
        stage, place = model.coord["stage"], 2 * model.coord["data"] + model.coord["expert"]
        before, after = model.group("stage")
        dense, dispatch, experts, combine = range(4 * stage, 4 * stage + 4)
        weights = {dense: model.load_weights(dense), experts: model.load_weights(experts, model.coord["expert"], 2)}
        groups: dict[int, Any] = {dense: [4 * stage + rank for rank in range(4)], experts: "data"}
        mine = range(place, model.BATCHES, 4)
        kept, gradients, sums, on_the_way = dict[Any, Any](), dict[int, Any](), dict[int, Any](), list[Any]()

        async def send(rank: int, value: Any, last: bool = False) -> None:
            on_the_way.append(model.pass_to(rank, value))
            if not posted or last:
                await on_the_way.pop()

        def add(layer: int, gradient: Any) -> None:
            gradients[layer] = gradients[layer] + gradient if layer in gradients else gradient

        async def forward(b: int) -> None:
            kept[dense, b] = await model.receive(before) if stage else model.get_activation([b])
            tokens = model.forward(dispatch, model.forward(dense, kept[dense, b], weights[dense][0]))
            kept[experts, b] = await exchange(model, tokens, "experts", "expert")
            results = model.forward(experts, kept[experts, b], weights[experts][0])
            out = model.forward(combine, await exchange(model, results, "batch", "expert"))
            if stage:
                kept["gradient", b] = model.loss(out)
            else:
                await send(after, out)

        async def backward(b: int, last: bool) -> None:
            grad = kept.pop(("gradient", b)) if stage else await model.receive(after)
            grad = await exchange(model, model.backward(combine, None, grad), "experts", "expert")
            made, grad = model.backward(experts, kept.pop((experts, b)), grad, weights[experts][0])
            add(experts, made)
            grad = await exchange(model, grad, "batch", "expert")
            if last and behind:
                sums[experts] = model.allreduce(gradients[experts], experts, group=groups[experts])
            grad = model.backward(dispatch, None, grad)
            made, grad = model.backward(dense, kept.pop((dense, b)), grad, weights[dense][0])
            add(dense, made)
            if stage:
                await send(before, grad, last)

        ahead = 2 - stage if one_f_one_b else len(mine)
        for b in mine[:ahead]:
            await forward(b)
        for number, b in enumerate(mine):
            await backward(b, b == mine[-1])
            for later in mine[number + ahead : number + ahead + 1]:
                await forward(later)
        for layer in (experts, dense):
            if not behind:
                gradients[layer] = await model.allreduce(gradients[layer], layer, group=groups[layer])
            elif layer not in sums:
                sums[layer] = model.allreduce(gradients[layer], layer, group=groups[layer])
        for layer in (experts, dense):
            gradient = await sums[layer] if behind else gradients[layer]
            weight, _ = model.update(layer, gradient, *weights[layer])
            model.set_final_weight(layer, weight)
        for work in on_the_way:
            await work

    return step


@pytest.mark.parametrize(
    ("step", "ends", "memory"),
    [
        (pipeline(one_f_one_b=False), [26.0, 23.6], 2_883_584),
        (pipeline(one_f_one_b=True), [26.0, 23.6], 2_228_224),
        (pipeline(one_f_one_b=True, posted=True), [25.8, 23.4], 2_752_512),
        (pipeline(one_f_one_b=True, posted=True, behind=True), [24.9, 22.5], 2_752_512),
    ],
)
def test_experts_in_a_pipeline_take_what_another_model_says(step: Any, ends: list[float], memory: int) -> None:
    """The second stage's last message shares its link with a sum here, and ends 0.2 later than there. And messages that
    are on their way take memory here."""
    mesh = Mesh({"stage": 2, "data": 2, "expert": 2})
    models = simulate(step, layers=BLOCK * 2, mesh=mesh, batches=16, costs=Links())
    verdict = check(models)
    assert verdict.correct, verdict.faults
    assert verdict.memory == memory
    over = [units(max(event.end or 0 for event in program.events)) for program in models[0].trace.programs]
    assert over == [end for end in ends for _ in range(4)]
    assert [elements for elements, _ in traffic(models[0].trace)] == [2_228_224] * 8
