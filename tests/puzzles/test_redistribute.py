"""Rows that become columns, in the figures of an independent timing model. A swap takes ten times as long here."""

from fractions import Fraction

import pytest

from lib import Trace
from lib.analysis.figures import end, traffic
from lib.cluster.costs import ticks
from lib.values.collectives import COLLECTIVES
from tests.support.puzzles import in_parts

EVEN, UNEVEN = [16] * 4, [4, 8, 12, 40]
SUM = Fraction(3, 2) * 1024 * 2 / 131_072
"""Of the gradient of a weight."""
WAYS = ("", "gathered", "await_all", "all_in_flight", "one_at_a_time")


def run(name: str, rows: list[int], columns: list[int], batches: int = 4) -> Trace:
    return in_parts("redistribute", name, {"rows": rows, "columns": columns}, batches)


@pytest.mark.parametrize(
    ("name", "rows", "swap"),
    [
        ("gathered", EVEN, "0.15"),
        ("await_all", EVEN, "0.0375"),
        ("await_all", UNEVEN, "0.09375"),
        ("one_at_a_time", UNEVEN, "0.09375"),
    ],
)
def test_a_swap_takes_what_another_model_says(name: str, rows: list[int], swap: str) -> None:
    """Also the way back, in which the rank with the most rows gets what it gave before."""
    computing = 2 * Fraction(5, 4) * (max(rows) + 16) / 16
    expected = computing + 4 * 10 * Fraction(swap) + 2 * SUM + Fraction("0.2")
    assert ticks(Fraction(str(end(run(name, rows, EVEN, 1))))) == ticks(expected)


def test_a_gather_waits_for_the_largest_part_of_rows() -> None:
    """Of rows in two of four exchanges; of the other two the parts, of columns, are even."""
    expected = 2 * Fraction(5, 4) * (40 + 16) / 16 + 20 * (Fraction("0.375") + Fraction("0.15")) + 2 * SUM
    assert end(run("gathered", UNEVEN, EVEN, 1)) == pytest.approx(float(expected + Fraction("0.2")), abs=1e-8)


@pytest.mark.parametrize(("rows", "sent"), [(EVEN, [24_576] * 4), (UNEVEN, [6_144, 12_288, 18_432, 61_440])])
def test_each_rank_sends_the_pieces_of_others(rows: list[int], sent: list[int]) -> None:
    programs = run("one_at_a_time", rows, EVEN, 1).programs
    swaps = [next(event for event in program.events if event.op == "alltoall") for program in programs]
    values = [program.values_of(event.inputs) for program, event in zip(programs, swaps, strict=True)]
    assert COLLECTIVES["alltoall"].sent(values) == sent


def test_a_rank_sends_a_quarter_of_what_a_gather_does() -> None:
    sums = [2 * Fraction(3, 2) * 1024] * 4
    for name, elements in (("gathered", 98_304), ("await_all", 24_576), ("", 24_576)):
        sent = [moved for moved, _ in traffic(run(name, EVEN, EVEN))]
        assert sent == [4 * 4 * elements + each for each in sums]


@pytest.mark.parametrize("name", ["", "all_in_flight"])
@pytest.mark.parametrize(("rows", "columns"), [(EVEN, EVEN), (UNEVEN, EVEN), (UNEVEN, UNEVEN)])
def test_what_travels_is_hidden(name: str, rows: list[int], columns: list[int]) -> None:
    computing = 2 * 4 * Fraction(5, 4) * (max(rows) + max(columns)) / 16
    assert ticks(Fraction(str(end(run(name, rows, columns))))) == ticks(computing + Fraction("0.2"))


@pytest.mark.parametrize(
    ("rows", "columns"),
    [([64], [64]), ([22, 22, 20], [21, 0, 43]), ([0, 64], [64, 0]), ([4] * 16, [1] * 15 + [49]), ([40, 24], [1, 63])],
)
def test_parts_of_any_size(rows: list[int], columns: list[int]) -> None:
    for name in WAYS if len(rows) < 9 else WAYS[:1]:
        run(name, rows, columns, 3)
