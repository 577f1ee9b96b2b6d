"""A mean over uneven parts, in the figures of an independent model: what it is, and what its exchange takes."""

from fractions import Fraction

import pytest

from lib import Trace
from lib.analysis.figures import end
from lib.cluster.costs import as_written, ticks
from tests.support.puzzles import in_parts

LATENCY, EACH = Fraction("0.02"), Fraction("0.2") / 131_072
FORWARD, HEAD, MEAN, UPDATE = Fraction("0.5"), Fraction("0.03125"), Fraction("0.00390625"), Fraction("0.03125")
"""What rank 3 computes: a linear layer of 16 of 40 rows, one of a single row, the mean, and an update."""


def ring(numbers: int, ranks: int = 4) -> Fraction:
    return 2 * (ranks - 1) * (LATENCY + Fraction(numbers, ranks) * EACH)


COMPUTED = 4 * FORWARD + 2 * HEAD + 2 * MEAN
MEANS, GRADIENT = ring(64 * 129), ring(128 * 128)


def run(name: str, sizes: list[int] | None = None, batches: int = 64) -> Trace:
    return in_parts("weighted_mean", name, {"sizes": sizes}, batches)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("await_all", COMPUTED + MEANS + 2 * GRADIENT + 3 * UPDATE),
        ("sums_behind", COMPUTED + MEANS + GRADIENT + UPDATE),
        ("", COMPUTED + GRADIENT + UPDATE),
    ],
)
def test_each_way_waits_for_what_it_says(name: str, expected: Fraction) -> None:
    assert abs(ticks(as_written(end(run(name)))) - ticks(expected)) <= 3


@pytest.mark.parametrize(
    "sizes", [[0, 20, 20], [40, 0], [0, 0, 0, 39, 1], [14, 13, 13, 0], [1] * 40, [8] * 5, [0] * 5 + [4] * 10]
)
@pytest.mark.parametrize("name", ["", "await_all", "gathered"])
def test_parts_of_any_size_will_do(sizes: list[int], name: str) -> None:
    if name == "gathered" or sum(map(bool, sizes)) > 1:
        run(name, sizes, batches=3)
