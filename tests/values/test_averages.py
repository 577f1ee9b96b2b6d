"""Numbers for a whole grid of which each rank has a part: weighted means, moments, and a norm by groups of features."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest

from lib import Activation, Layer, Model, PuzzleError, check, simulate
from lib.values.layers import Shape
from lib.values.rules import forward
from lib.values.values import made
from tests.support.said import Said
from tests.values.numbers import play

UNEVEN = [4, 8, 12, 16]


def parts(value: Any, sizes: Sequence[int]) -> list[Any]:
    ends = [0, *accumulate(sizes)]
    return [value.cut("rows", low, high) for low, high in pairwise(ends)]


def means(sizes: Sequence[int]) -> list[Any]:
    shape = Shape(1, 1, Layer("mean", 2, 2, sum(sizes)))
    whole = made(Activation, 0, 1, shape.activations[0].whole)
    return [forward(shape, 0, part) for part in parts(whole, sizes)]


def norm(sizes: Sequence[int], mean: str = "") -> Any:
    """Forward and backward of a convolution of single rows, a group norm, and a mean over all rows, perhaps a "mean
    of means"."""

    async def function(model: Model) -> None:
        weight, state = model.load_weights(0)
        x0 = parts(model.get_activation(range(model.BATCHES)), sizes)[model.rank]
        x1 = model.forward(0, x0, weight)
        moments = await model.allreduce(model.forward(1, x1), 1)
        x3 = model.forward(2, x1, moments)
        exchange = model.allreduce_mean if mean else model.allreduce
        g = model.loss(await exchange(model.forward(3, x3), 3))
        g = model.backward(3, x3, g)
        by_moments, g = model.backward(2, x1, g, moments)
        g = g + model.backward(1, x1, await model.allreduce(by_moments, 1))
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


@pytest.mark.parametrize(
    ("sizes", "mean"), [(UNEVEN, ""), ([5, 5, 5, 5], ""), ([3, 3, 3, 0], ""), ([5, 5, 5, 5], "mean of means")]
)
def test_in_numbers_every_value_that_is_done_is_its_part_of_the_whole(sizes: list[int], mean: str) -> None:
    models = simulate(norm(sizes, mean), layers=net(sum(sizes)), ranks=len(sizes), batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 10 * len(sizes)


def averaged(what: Callable[[Model, Any], Any]) -> str:
    """What is said of a mean over two ranks, each with a half of the weight, of something that is not a mean."""

    async def average(model: Model) -> None:
        weight, _ = model.load_weights(0, model.rank, 2)
        await model.allreduce_mean(what(model, weight), 0)

    return said(average, ranks=2, batches=2)


def taken(wrong: Callable[..., Any]) -> str:
    """What is said of a model with moments and a group norm where it is given what does not belong together."""

    async def function(model: Model) -> None:
        x = model.get_activation([0])
        moments = model.forward(0, x)
        g = model.loss(model.forward(1, x, moments))
        by_moments, _ = model.backward(1, x, g, moments)
        wrong(model, x, moments, g, by_moments)

    return said(
        function, layers=[Layer("moments", 4, 4, 4, columns=3), Layer("group_norm", 4, 4, 4, columns=3, of=(0, 1))]
    )


def said(function: Any, **sizes: Any) -> str:
    with pytest.raises(PuzzleError) as raised:
        simulate(function, **sizes)
    return "\n".join(line for line in str(raised.value).splitlines() if not line.startswith("  where:"))


test_what_is_no_mean_and_what_does_not_belong_together = Said(__file__, "averages").test(lambda: globals())
