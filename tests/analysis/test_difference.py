"""Two runs in words: how far apart they are, whether their sizes are equal, and what there is to learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lib import Model, Trace, simulate
from lib.analysis.difference import apart, lesson, unequal
from lib.schedules.data_parallel import ddp, ddp_overlap
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from tests.drawing.runs import RUNS


def traced(function: Callable[[Model], Any], ranks: int = 4, layers: int = 6, batches: int = 4) -> Trace:
    return Trace.of(simulate(function, ranks=ranks, layers=layers, batches=batches))


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (4, 4, "the same"),
        (4, 3, "25% less"),
        (3, 4, "33% more"),
        (1000, 1011, "1.1% more"),
        (2, 6, "200% more"),
        (0, 1500, "1,500 more"),
        (8, 0, "100% less"),
    ],
)
def test_how_far_apart_two_figures_are(one: float, other: float, words: str) -> None:
    assert apart(one, other) == words


def test_the_lesson_of_sharded_gradients() -> None:
    runs = [(name, traced(load_function(reference(name), name))) for name in ("wsdp", "fsdp")]
    assert lesson(runs) == (
        "fsdp takes 16% less time, holds 13% more at its peak and sends 29% less: 6 reduce-scatters in place of "
        "6 all-reduces and 1 all-gather."
    )


def test_the_lesson_of_overlap() -> None:
    words = lesson([("ddp", traced(ddp)), ("overlap", traced(ddp_overlap))])
    assert words is not None
    assert words.startswith("ddp and overlap send the same.")
    assert "overlap takes 1" in words
    assert "in place of" not in words


def test_runs_that_are_alike_and_runs_that_cannot_be_compared() -> None:
    one = traced(ddp)
    assert (
        lesson([("a", one), ("b", traced(ddp))]) == "a and b take the same time, have the same peak and send the same."
    )
    assert lesson([("a", one)]) is None
    assert lesson([("a", one), ("b", traced(ddp, batches=8, ranks=8))]) is None
    assert lesson([("a", RUNS["deadlock"]), ("b", RUNS["deadlock"])]) is None


def test_sizes_that_differ_are_named() -> None:
    one, two = traced(ddp), traced(ddp, layers=1)
    assert unequal([("a", one), ("b", one)]) is None
    assert unequal([("a", one), ("b", two)]) == (
        "These runs have different sizes, so their figures are not those of one task: a has 4 ranks, 6 layers, "
        "4 batches; b has 4 ranks, 1 layer, 4 batches."
    )
