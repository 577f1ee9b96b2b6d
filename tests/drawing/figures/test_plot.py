"""Time against memory: points where they belong, no label on another, and the region where nothing can be."""

import random

import pytest

from drawing.canvas.palette import MINE, TRACK
from drawing.canvas.scene import Scene
from drawing.comparing.plot import Limits, Plot, Point, plot
from lib.puzzles.records import Goal
from tests.drawing.marks import apart, corners, polys, rects, written


def painted(shown: Plot) -> Scene:
    scene = Scene(400, 260)
    plot(scene, shown, 10, 370, 0)
    return scene


def some(seed: int) -> Plot:
    draw = random.Random(seed)
    points = [Point("yours", draw.uniform(10, 30), draw.uniform(1e6, 3e6), "mine")]
    points += [Point(f"way {n}", draw.uniform(10, 30), draw.uniform(1e6, 3e6), "other") for n in range(4)]
    goals = [Goal("passes", 30, 3_000_000, True), Goal("as good as ours", draw.uniform(15, 25), 2_000_000, False)]
    return Plot(points, goals, Limits(9.0, 900_000.0, draw.choice([(), ((9.0, 2e6), (14.0, 1.5e6), (20.0, 9e5))])))


@pytest.mark.parametrize("seed", range(25))
def test_no_label_lies_on_another_or_leaves_the_paper(seed: int) -> None:
    labels = [mark for mark in written(painted(some(seed))) if not mark.turned]
    assert any(mark.text == "yours" for mark in labels)
    assert all(0 <= x <= 400 and 0 <= y <= 260 for mark in labels for x, y in corners(mark))
    assert apart(labels)


def test_less_is_left_and_below() -> None:
    shown = Plot([Point("yours", 10, 2e6, "mine"), Point("", 20, 1e6, "mine")])
    one, other = rects(painted(shown), fill=MINE)
    assert one.x < other.x
    assert one.y < other.y


@pytest.mark.parametrize("seed", range(10))
def test_where_nothing_can_be_is_left_of_and_below_the_steps(seed: int) -> None:
    shown = some(seed)
    scene = painted(shown)
    (region,) = polys(scene, fill=TRACK)
    across = [x for x, _ in region.points]
    assert len(region.points) == 4 + 2 + 2 * max(0, len(shown.limits.steps if shown.limits else ()) - 1)
    assert min(across) == pytest.approx(64)  # the left edge, with the numbers of the axis before it


def test_a_run_of_another_kind_is_hollow() -> None:
    points = [Point("yours", 10, 2e6, "mine"), Point("other", 5, 1e6, "other", inside=False)]
    rings = rects(painted(Plot(points)), stroke=MINE)
    assert [mark.fill for mark in rings] == ["none"]
