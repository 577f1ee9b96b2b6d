"""Numbers for a whole grid of which each rank has a part: weighted means, moments, and a norm by groups of features."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest

from lib import Activation, Layer, Links, Model, PuzzleError, check, simulate
from lib.cluster.costs import ticks
from lib.values.layers import Shape
from lib.values.rules import forward
from lib.values.values import made
from tests.values.numbers import play

UNEVEN = [4, 8, 12, 16]
LATENCY = Links(latency=0.02)


def parts(value: Any, sizes: Sequence[int]) -> list[Any]:
    """A value cut into so many rows each."""
    ends = [0, *accumulate(sizes)]
    return [value.cut("rows", low, high) for low, high in pairwise(ends)]


def means(sizes: Sequence[int]) -> list[Any]:
    """The means of parts of a grid, by a layer of two features."""
    shape = Shape(1, 1, Layer("mean", 2, 2, sum(sizes)))
    whole = made(Activation, 0, 1, shape.activations[0].whole)
    return [forward(shape, 0, part) for part in parts(whole, sizes)]


def norm(sizes: Sequence[int], mistake: str = "") -> Any:
    """Forward and backward of a convolution of single rows, a group norm, and a mean over all rows."""

    async def function(model: Model) -> None:
        weight, state = model.load_weights(0)
        x0 = parts(model.get_activation(range(model.BATCHES)), sizes)[model.rank]
        x1 = model.forward(0, x0, weight)
        moments = model.forward(1, x1)
        if mistake != "own moments":
            moments = await model.allreduce(moments, 1)
        x3 = model.forward(2, x1, moments)
        mean = model.forward(3, x3)
        exchange = model.allreduce_mean if mistake == "mean of means" else model.allreduce
        g = model.loss(await exchange(mean, 3))
        g = model.backward(3, x3, g)
        by_moments, g = model.backward(2, x1, g, moments)
        if mistake != "own gradient":
            by_moments = await model.allreduce(by_moments, 1)
        g = g + model.backward(1, x1, by_moments) if mistake != "moments forgotten" else g
        gradient, _ = model.backward(0, x0, g, weight)
        gradient = await model.allreduce(gradient, 0)
        model.set_final_weight(0, model.update(0, gradient, weight, state)[0])

    return function


def net(rows: int) -> list[Layer]:
    return [
        Layer("convolution", 3, 6, rows, kernel=1),
        Layer("moments", 6, 4, rows),
        Layer("group_norm", 6, 6, rows, of=(1, 2)),
        Layer("mean", 6, 6, rows),
    ]


@pytest.mark.parametrize("sizes", [UNEVEN, [5, 5, 5, 5], [3, 3, 3, 0]])
def test_in_numbers_every_value_that_is_done_is_its_part_of_the_whole(sizes: list[int]) -> None:
    models = simulate(norm(sizes), layers=net(sum(sizes)), ranks=len(sizes), batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 10 * len(sizes)


def test_equal_parts_may_be_averaged() -> None:
    models = simulate(norm([5] * 4, "mean of means"), layers=net(20), ranks=4, batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 40


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("mean of means", "a mean of means is not the mean: the one is over 4 rows, the other over 8"),
        ("own moments", "it knows nothing of the other rows"),
        ("own gradient", "it knows nothing of the other rows"),
        ("moments forgotten", "several layers take this activation"),
    ],
)
def test_a_mistake_is_named(mistake: str, said: str) -> None:
    with pytest.raises(PuzzleError) as raised:
        simulate(norm(UNEVEN, mistake), layers=net(40), ranks=4, batches=2)
    assert said in str(raised.value)


def test_a_mean_of_means_names_the_ranks() -> None:
    with pytest.raises(PuzzleError) as raised:
        simulate(norm([4, 4, 4, 8], "mean of means"), layers=net(20), ranks=4, batches=2)
    assert "rank 0" in str(raised.value)
    assert "rank 3" in str(raised.value)


@pytest.mark.parametrize("what", ["gradient", "activation", "partial"])
def test_what_is_no_mean_is_not_averaged(what: str) -> None:
    async def average(model: Model) -> None:
        weight, _ = model.load_weights(0, model.rank, 2)
        x = model.get_activation([0])
        other = {"gradient": model.fake_grad(0, [model.rank]), "activation": x}
        partial = model.forward(0, model.shard(x, "features", model.rank, 2), weight) if what == "partial" else None
        await model.allreduce_mean(other.get(what, partial), 0)

    with pytest.raises(PuzzleError, match="that is no mean cannot be averaged") as raised:
        simulate(average, ranks=2, batches=2)
    assert {"gradient": "divide by nothing", "activation": "take it as it is", "partial": "model.allreduce"}[
        what
    ] in str(raised.value)


@pytest.mark.parametrize(
    ("layers", "end"),
    [
        ([Layer("mean", 1, 1, 40)], "0.12000457763671875"),
        ([Layer("moments", 16, 16, 40)], "0.1202197265625"),
    ],
)
def test_one_all_reduce_of_a_few_numbers_takes_what_another_model_says(layers: list[Layer], end: str) -> None:
    """A mean with its count, of one batch; and of 8 groups and 4 batches three numbers each."""
    batches = 1 if layers[0].kind == "mean" else 4

    async def summed(model: Model) -> None:
        x = parts(model.get_activation(range(batches)), UNEVEN)[model.rank]
        await model.allreduce(model.forward(0, x), 0)

    events = simulate(summed, layers=layers, ranks=4, batches=batches, costs=LATENCY)[3].program.events
    reduce = next(event for event in events if event.op == "allreduce")
    assert reduce.start is not None
    assert reduce.end is not None
    assert abs(reduce.end - reduce.start - ticks(float(end))) <= 1


def test_the_gradients_of_the_moments_are_two_numbers_a_group() -> None:
    async def summed(model: Model) -> None:
        moments = await model.allreduce(
            model.forward(0, model.get_activation(range(4)).shard(model.rank, 4, "rows")), 0
        )
        x = model.get_activation(range(4)).shard(model.rank, 4, "rows")
        by_moments, _ = model.backward(1, x, model.loss(model.forward(1, x, moments)), moments)
        await model.allreduce(by_moments, 1)

    layers = [Layer("moments", 16, 16, 40), Layer("group_norm", 16, 16, 40, of=(0, 1))]
    events = simulate(summed, layers=layers, ranks=4, batches=4, costs=LATENCY)[0].program.events
    reduce = [event for event in events if event.op == "allreduce"][1]
    assert reduce.start is not None
    assert reduce.end is not None
    assert abs(reduce.end - reduce.start - ticks(0.120146484375)) <= 1


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([Layer("mean", 4, 2, 8)], "mean gives as many features as it takes"),
        ([Layer("moments", 6, 8, 8)], "which share the 6 features equally; got outputs=8"),
        ([Layer("moments", 6, 3, 8)], "twice the number of groups"),
        ([Layer("linear", 4, 4, 8), Layer("group_norm", 4, 4, 8, of=(1, 0))], "takes an activation and its moments"),
        ([Layer("moments", 4, 4, 8), Layer("group_norm", 4, 2, 8, of=(0, 1))], "gives as many features as it takes"),
        ([Layer("mean", 4, 4, 8), Layer("linear", 4, 4, 8)], "takes 8 rows of 4 features, and is given 1 rows of 4"),
    ],
)
def test_what_is_no_such_layer_is_refused_before_any_rank_runs(layers: list[Layer], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(norm([4, 4]), layers=layers, ranks=2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("other features", "features"),
        ("no point", "grid columns"),
        ("other rows", "rows"),
        ("half a group", "group"),
    ],
)
def test_backward_takes_what_belongs_together(wrong: str, said: str) -> None:
    async def function(model: Model) -> None:
        x = model.get_activation([0])
        moments = model.forward(0, x)
        g = model.loss(model.forward(1, x, moments))
        by_moments, _ = model.backward(1, x, g, moments)
        if wrong == "other features":
            model.backward(0, model.shard(x, "features", 0, 2), model.shard(by_moments, "features", 1, 2))
        elif wrong == "no point":
            model.backward(0, x, by_moments.cut("columns", 0, 0))
        elif wrong == "other rows":
            model.backward(1, x.cut("rows", 0, 2), g.cut("rows", 2, 4), moments)
        else:
            model.forward(1, model.shard(x, "features", 0, 4), model.shard(moments, "features", 0, 4))

    layers = [Layer("moments", 4, 4, 4, columns=3), Layer("group_norm", 4, 4, 4, columns=3, of=(0, 1))]
    with pytest.raises(PuzzleError, match=said):
        simulate(function, layers=layers)
