"""Exploring schedules: the settings, the points, and what nothing beats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Trace, check, simulate
from lib.analysis import figures
from lib.schedules.gallery import Point, Setting, explore, front, measure
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.program import program_of


@pytest.fixture(scope="module")
def points() -> tuple[Point, ...]:
    return explore(ranks=(2, 4), batches=(4, 8), chunks=(1, 2), limit=(None, 2.0), messages=("posted", "awaited"))


def test_every_schedule_is_tried_with_the_stages_that_it_can_have(points: tuple[Point, ...]) -> None:
    assert {point.setting.schedule for point in points} == set(SCHEDULES)
    assert {point.setting.chunks for point in points if point.setting.schedule == "one_f_one_b"} == {1}
    assert {point.setting.chunks for point in points if point.setting.schedule == "zb_v"} == {2}
    assert len(points) == len(set(points)) == len(SCHEDULES) * 2 * 2 * 2 * 2


def test_what_is_impossible_says_why(points: tuple[Point, ...]) -> None:
    refused = [point for point in points if point.why]
    assert refused
    assert all(point.time == 0 for point in refused)
    gpipe = next(point for point in refused if point.setting.schedule == "gpipe")
    assert gpipe.why.startswith("limit=2 microbatches of activations are too few: GPipe needs")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_point_is_what_the_simulator_makes_of_it(name: str) -> None:
    """The end, but for the updates, and the messages, where a stage is a layer and costs what a layer does."""
    each = SCHEDULES[name].chunks
    point = measure(Setting(name, 4, 8, each, None, "posted", 8, each, each / 2, each / 2, latency=0.4))
    program = program_of(SCHEDULES[name].order(4, 8), messages="posted")
    trace = Trace.of(simulate(program, ranks=4, layers=4 * each, batches=8))
    assert check(trace).correct
    assert point.time + 0.5 * each == pytest.approx(figures.end(trace)), "a stage is one layer; its rank updates each"
    assert point.sent == max(sum(event.op == "pass_to" for event in program.events) for program in trace.programs)


def test_the_same_examples_in_more_microbatches() -> None:
    """A smaller microbatch takes less time: the bubble shrinks, and GPipe holds everything. Messages go both ways."""
    few, many = (measure(Setting("gpipe", 4, batches, examples=64)) for batches in (8, 32))
    assert few.memory == many.memory == 64
    assert few.sent == many.sent == 2 * 64
    assert (few.time, many.time) == (64 / 8 * 33, 64 / 32 * (32 + 3) * 3)


AIMS = ("time", "memory", "sent")
FIGURES = st.integers(0, 5).map(float)


@given(st.lists(st.builds(Point, st.just(Setting("gpipe")), FIGURES, FIGURES, FIGURES), max_size=30))
def test_the_front_is_what_nothing_beats(some: list[Point]) -> None:
    best = front(some)

    def beats(one: Point, other: Point) -> bool:
        mine, theirs = ([getattr(point, aim) for aim in AIMS] for point in (one, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    assert not any(beats(one, other) for one in some for other in best)
    for point in some:
        assert (
            point in best
            or any(beats(one, point) for one in best)
            or any(all(getattr(one, aim) == getattr(point, aim) for aim in AIMS) for one in best)
        )
