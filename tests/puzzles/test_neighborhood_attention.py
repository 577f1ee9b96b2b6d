"""Windows of neighbours, in the figures of an independent timing model, which has attention alone.

With prices 49 times that model's, attention of a batch takes 49, and the linear layers 4 and 8.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from lib import PUZZLES, Links, Model, Trace, simulate
from lib.analysis.figures import end, traffic
from lib.schedules.given import by_chunk
from lib.suite.submissions.load import function_of
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source
from tests.support.puzzles import in_parts, way
from tests.support.said import Said

FOUR = [16] * 4
AS_THE_MODEL = Links(latency=0.98, p2p=9.8, forward=256, backward=256, update=0)
SUM = 6 * Fraction("0.98") + Fraction(3, 2) * 256 * Fraction("9.8") / 131_072
"""Of the gradient of the queries' weight; that of keys and values has twice as many elements."""
REFUSAL = "if len(parts) > 1 and (min(parts) < 3 or parts[0] < 4 or parts[-1] < 4)"
REFUSED = [[3, 20, 20, 21], [20, 2, 20, 22], [20, 20, 21, 3], [20, 3, 1, 40], [61, 3, 0, 0], [0, 3, 61]]


def run(name: str, sizes: list[int], costs: Links = AS_THE_MODEL) -> Trace:
    return in_parts("neighborhood_attention", name, {"sizes": sizes}, costs=costs)


@pytest.mark.parametrize(
    ("name", "figure"), [("gathered", "4.52"), ("one_by_one", "2.69"), ("await_all", "2.38"), ("queries_meanwhile", "")]
)
def test_awaited_exchanges_take_what_another_model_says(name: str, figure: str) -> None:
    sums = 12 * Fraction("0.98") + 3 * (SUM - 6 * Fraction("0.98"))
    exchanges = 49 * (Fraction(figure) - 2) if figure else 2 * (49 * Fraction("0.19") - 4)
    assert end(run(name, FOUR)) == pytest.approx(float(98 + 24 + exchanges + sums), abs=1e-8)


@pytest.mark.parametrize("name", ["", "await_all"])
def test_of_hidden_exchanges_nothing_is_left(name: str) -> None:
    free = Links(latency=0, p2p=0, forward=256, backward=256, update=0)
    hidden = end(run("", FOUR)) - 6 * 0.98 - 2 * 1.5 * 256 * 9.8 / 131_072  # the last sum
    assert end(run(name, FOUR, free)) == pytest.approx(98 + 24) == pytest.approx(hidden, abs=1e-8)


@pytest.mark.parametrize(
    ("name", "rows"), [("await_all", 3 * 64), ("", 3 * 64), ("one_by_one", 3 * 96), ("queries_meanwhile", 3 * 64)]
)
def test_each_rank_sends_its_edges(name: str, rows: int) -> None:
    """Of 64 points and 4 batches each, forward and backward; the weights' gradients besides."""
    once, sums = rows * 64 * 4, Fraction(3, 2) * 3 * 256
    sent = [elements for elements, _ in traffic(run(name, FOUR))]
    assert sent == [2 * once + sums, *[4 * once + sums] * 2, 2 * once + sums]


@pytest.mark.parametrize(
    "sizes",
    [[64], [32, 32], [4, 3, 3, 54], [54, 3, 3, 4], [4, 56, 4], [7, 50, 7], [5, 54, 5], [20, 0, 40, 4], [60, 4, 0]],
)
def test_parts_for_which_a_neighbour_is_enough(sizes: list[int]) -> None:
    for name in ("", "await_all", "one_by_one", "queries_meanwhile"):
        run(name, sizes)


@pytest.mark.parametrize("name", ["", "await_all", "one_by_one", "queries_meanwhile"])
@pytest.mark.parametrize("sizes", REFUSED)
def test_parts_for_which_it_is_not_are_refused_by_all_ranks(sizes: list[int], name: str) -> None:
    refused: list[int] = []

    async def trying(model: object) -> None:
        with pytest.raises(ValueError, match="reach past the neighbours"):
            await way("neighborhood_attention", name)(model, sizes)
        refused.append(model.rank)  # pyright: ignore[reportAttributeAccessIssue]

    simulate(trying, layers=list(PUZZLES["neighborhood_attention"].last), ranks=len(sizes), batches=1)
    assert refused == [*range(len(sizes))]


def refusing(rule: Callable[[list[int], int], bool], *, late: bool = False) -> Any:
    """The reference, where this rule says which parts a rank refuses."""
    text = reference("neighborhood_attention").read_text("utf-8")
    assert text.count(REFUSAL) == 1
    careless = function_of(Source.of("careless.py", text.replace(REFUSAL, "if False")), "neighborhood_attention")

    async def step(model: Model, sizes: list[int] | None = None) -> None:
        if rule(sizes or by_chunk(64, model.RANKS), model.rank):
            if late:
                await model.allreduce(model.fake_grad(0), 0)
            raise ValueError("too few rows")
        await careless(model, sizes)

    return step


def checked(function: Any) -> None:
    Model.check(simulate(function, puzzle="neighborhood_attention"), puzzle="neighborhood_attention")


def too_few(sizes: list[int], least: int = 3, at_ends: int = 4) -> bool:
    some = [size for size in sizes if size]
    return len(some) > 1 and (min(some) < least or min(some[0], some[-1]) < at_ends)


test_refusals = Said(__file__, "refusals").test(lambda: globals())
