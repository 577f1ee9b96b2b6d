"""The ways to hide an all-reduce and to shard the optimizer: their figures, and what cannot be had for nothing."""

from functools import partial
from itertools import pairwise, product
from typing import Any

import pytest

from lib import Links, Trace, Verdict, check, simulate
from lib.schedules.data_parallel import ddp, zero
from lib.suite.course.solutions import ways
from tests.support.schedules import buckets


def goals(puzzle: str, function: Any) -> list[str]:
    """The goals that a schedule reaches."""
    verdict = check(Trace.of(simulate(function, puzzle=puzzle)), puzzle)
    assert verdict.correct, verdict.faults
    return [goal.name for goal in verdict.goals if goal.reached]


def test_the_first_stage_cannot_be_reached_without_it() -> None:
    """Data parallelism holds too much, and with sharded weights more is sent."""
    assert goals("zero1", ddp) == goals("zero1", zero(0)) == goals("zero1", zero(3)) == []
    assert goals("zero1", zero(1)) == ["passes", "cuts used weights"]


def test_the_second_stage_cannot_be_reached_by_the_first() -> None:
    """Whole sums hold too much, and so does one large batch; FSDP sends too much."""
    for stage in (0, 1, 3):
        assert goals("zero2", zero(stage)) == []
    assert goals("zero2", zero(2)) == ["passes", "cuts used weights"]
    reached = {way.name: way.verdict.best for way in ways("zero2")[1:] if isinstance(way.verdict, Verdict)}
    assert [best for name, best in sorted(reached.items()) if best is not None] == ["cuts used weights"]


def ends(latency: float, *choices: tuple[int, ...]) -> list[float]:
    """When the step is over, by the sizes of buckets."""
    costs = Links(latency=latency)
    runs = [simulate(partial(buckets, sizes=sizes), ranks=4, layers=8, batches=4, costs=costs) for sizes in choices]
    return [verdict.time for verdict in map(check, runs) if verdict.correct]


def test_the_ends_in_the_texts_of_the_notebook() -> None:
    alike = [(1,) * 8, (2,) * 4, (3, 3, 2), (4, 4), (8,)]
    assert ends(0.15, *alike, (1, 2, 2, 2, 1)) == [21.5, 20.0, 20.0, 21.3, 25.7, 20.0]
    assert ends(0.3, (2,) * 4, (3, 3, 2)) == [23.0, 22.2]
    assert ends(0.0, *alike[:2]) == [20.0, 20.0]


@pytest.mark.thorough
def test_a_few_of_all_buckets_are_as_fast_as_can_be() -> None:
    """Of the 128 ways to cut eight layers into buckets, 27 end with what a rank has to compute; none is faster."""
    cuts = [(0, *(i + 1 for i, cut in enumerate(choice) if cut), 8) for choice in product((0, 1), repeat=7)]
    found = ends(0.15, *[tuple(b - a for a, b in pairwise(cut)) for cut in cuts])
    assert len(found) == 128
    assert min(found) == 20.0
    assert found.count(20.0) == 27
