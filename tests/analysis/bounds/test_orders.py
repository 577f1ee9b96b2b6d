"""Random schedules within the families: none is below the bound, and of pipelines none is better than the optimum."""

import random
from collections.abc import Awaitable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Mesh, Model, Trace, WeightGrad, check, simulate
from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import bound_of
from lib.analysis.bounds.optima import Size
from lib.analysis.figures import end, peak, traffic
from tests.support.optima import find
from tests.support.pipeline_orders import figures, merges, random_orders, run
from tests.support.profiles import sample
from tests.support.puzzles import way

DUST = 1e-9
SEEDS = st.integers(0, 2**32 - 1)


def _holds(trace: Trace, family: Family) -> None:
    """The run is correct, is of the family, and is not below its bound."""
    verdict = check(trace)
    assert verdict.correct, verdict.faults
    assert excuse(trace, family) is None
    bound = bound_of(family)
    assert end(trace) >= bound.time.value - DUST
    assert peak(trace).elements >= bound.memory.value
    assert max(sent for sent, _ in traffic(trace)) >= bound.sent.value - DUST * bound.sent.value


@given(st.integers(2, 4), st.integers(1, 2), st.integers(1, 4), st.booleans(), SEEDS)
def test_a_random_pipeline(stages: int, each: int, batches: int, overlap: bool, seed: int) -> None:
    size = Size(stages, stages * each, batches, overlap)
    trace = run(size, random_orders(size, random.Random(seed)))
    assert trace is not None
    _holds(trace, Family(stages, size.layers, batches, stages, grouping="one"))
    last, top = figures(trace)
    quick, lean = find(size, "fastest"), find(size, "leanest")
    assert last >= quick.end
    assert top >= lean.peak
    assert last > quick.end or top >= quick.peak
    assert top > lean.peak or last >= lean.end


Group = tuple[int, ...]


def _alone(groups: list[Group], order: Iterable[tuple[str, int, int]], early: bool) -> Any:
    """One device that does operations (what, layer, group) in an order. `early` updates as soon as it can."""

    def function(model: Model) -> None:
        weights, states, acts, grads, sums = model.storage()
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)

        def update(layer: int) -> None:
            weights[layer], states[layer] = model.update(layer, sums.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

        for what, layer, group in order:
            if what == "F":
                if layer == 0:
                    acts[0, group] = model.get_activation(groups[group])
                acts[layer + 1, group] = model.forward(layer, acts[layer, group], weights[layer])
                continue
            if layer == model.LAYERS - 1:
                grads[layer + 1, group] = model.loss(acts.pop((layer + 1, group)))
            grad = grads.pop((layer + 1, group))
            made, before = model.backward(layer, acts.pop((layer, group)), grad, weights[layer])
            if layer > 0:
                grads[layer, group] = before
            del grad, before
            sums[layer] = sums[layer] + made if layer in sums else made
            del made
            if early and len(sums[layer].batches) == model.BATCHES:
                update(layer)
        for layer in sorted(sums):
            update(layer)

    return function


def _steps(layers: int, group: int) -> list[tuple[str, int, int]]:
    return [("F", layer, group) for layer in range(layers)] + [("B", layer, group) for layer in reversed(range(layers))]


@given(st.integers(1, 3), st.integers(1, 5), st.booleans(), SEEDS)
def test_one_device_in_any_groups_and_order(layers: int, batches: int, early: bool, seed: int) -> None:
    dice = random.Random(seed)
    place = [dice.randrange(batches) for _ in range(batches)]
    groups = [tuple(b for b in range(batches) if place[b] == g) for g in sorted(set(place))]
    left = [_steps(layers, group) for group in range(len(groups))]
    order = []
    while any(left):
        order.append(dice.choice([steps for steps in left if steps]).pop(0))
    trace = Trace.of(simulate(_alone(groups, order, early), ranks=1, layers=layers, batches=batches))
    _holds(trace, Family(1, layers, batches))
    assert end(trace) == pytest.approx(bound_of(Family(1, layers, batches)).time.value, abs=DUST)
    if len(groups) == 1:
        _holds(trace, Family(1, layers, batches, grouping="all"))


@pytest.mark.parametrize(
    ("layers", "groups"),
    sample(
        [
            (1, [(0,)]),
            (1, [(0,), (1,)]),
            (1, [(0,), (1,), (2,)]),
            (1, [(0,), (1, 2)]),
            (2, [(0,)]),
            (2, [(0,), (1,)]),
            (2, [(0,), (1, 2)]),
            (3, [(0,), (1,)]),
        ]
    ),
)
def test_one_device_in_all_orders(layers: int, groups: list[Group]) -> None:
    """The least peak of all orders is at or over the bound; and is the bound where batches are on their own."""
    batches = sum(map(len, groups))
    chains = [[(step,) for step in _steps(layers, group)] for group in range(len(groups))]
    tried = [
        int(peak(Trace.of(simulate(_alone(groups, order, early), ranks=1, layers=layers, batches=batches))).elements)
        for order in merges(chains)
        for early in (False, True)
    ]
    assert min(tried) >= bound_of(Family(1, layers, batches)).memory.value
    if all(len(group) == 1 for group in groups):
        single = bound_of(Family(1, layers, batches, grouping="one")).memory.value
        assert min(tried) == single


def _data_parallel(seed: int, *, sharded: bool, mine: int) -> Any:
    """DDP or FSDP that decides by chance, alike on all ranks, what it gathers when, how and when gradients are summed,
    what it waits for when, and when it updates."""

    async def function(model: Model) -> None:
        dice = random.Random(seed)
        weights, states, acts, grads, sums = model.storage()
        ranks, layers = model.RANKS, range(model.LAYERS)
        total = ranks if sharded else 1
        for layer in layers:
            weights[layer], states[layer] = model.load_weights(layer, model.rank % total, total)
        coming: dict[int, Awaitable[Any]] = {}
        summing: dict[int, Awaitable[WeightGrad]] = {}

        def gather(layer: int) -> None:
            if layer in layers and layer not in coming and not weights[layer].is_complete():
                coming[layer] = model.allgather(weights[layer], layer)

        async def need(layer: int) -> None:
            gather(layer)
            if layer in coming:
                weights[layer] = await coming.pop(layer)

        def done(layer: int) -> None:
            if sharded and dice.random() < 0.7:
                weights[layer] = weights[layer].shard(model.rank, ranks)

        async def finish(layer: int) -> None:
            total_ = await summing.pop(layer)
            weight = weights[layer]
            if sharded and weight.is_complete():
                weight = weights[layer] = weight.shard(model.rank, ranks)
            weights[layer], states[layer] = model.update(layer, total_, weight, states[layer])
            model.set_final_weight(layer, weights[layer])

        turns = [[model.rank + i * ranks] for i in range(mine)]
        if dice.random() < 0.5:
            turns = [[batch for turn in turns for batch in turn]]
        for turn, batches in enumerate(turns):
            acts[0] = model.get_activation(batches)
            for layer in layers:
                await need(layer)
                if dice.random() < 0.5:
                    gather(layer + 1)
                acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
                done(layer)
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in reversed(layers):
                await need(layer)
                if dice.random() < 0.5:
                    gather(layer - 1)
                made, before = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                done(layer)
                grads[layer] = before
                sums[layer] = sums[layer] + made if layer in sums else made
                del made, before
                if turn == len(turns) - 1:
                    op = model.scatterreduce if sharded and dice.random() < 0.7 else model.allreduce
                    summing[layer] = op(sums.pop(layer), layer)
                    while summing and dice.random() < 0.4:
                        await finish(next(iter(summing)))
            del grads[0]
        for layer in list(coming):
            await coming.pop(layer)
        for layer in dice.sample(sorted(summing), len(summing)):
            await finish(layer)

    return function


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 2), st.booleans(), SEEDS)
def test_random_data_parallel(ranks: int, layers: int, mine: int, sharded: bool, seed: int) -> None:
    function = _data_parallel(seed, sharded=sharded, mine=mine)
    trace = Trace.of(simulate(function, ranks=ranks, layers=layers, batches=ranks * mine))
    _holds(trace, Family(ranks, layers, ranks * mine, sharded=sharded))


@given(st.integers(1, 3), st.integers(2, 3), st.integers(1, 2))
def test_pipelines_of_shards(stages: int, data: int, each: int) -> None:
    function = way("pipeline_fsdp")
    mesh = Mesh({"data": data, "stage": stages})
    trace = Trace.of(simulate(function, layers=stages * each, batches=data, mesh=mesh))
    _holds(trace, Family(stages * data, stages * each, data, stages, sharded=True))
