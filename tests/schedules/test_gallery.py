"""The gallery of schedules: what its sliders make, and its data; explored settings, and what nothing beats."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Trace, check, simulate
from lib.analysis import figures
from lib.schedules.gallery import Gallery, Piece, Point, Setting, explore, front, gallery, measure
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import gpipe, in_turn
from lib.schedules.pipelines.program import program_of


@pytest.fixture(scope="module")
def found() -> Gallery:
    return gallery(4, 8, chunks=(1, 2))


def named(found: Gallery, name: str) -> Piece:
    return next(piece for piece in found.pieces if piece.name == name)


def test_every_schedule_with_a_name_is_in_it(found: Gallery) -> None:
    orders = {piece.order for piece in found.pieces}
    for row in SCHEDULES.values():
        assert row.order(4, 8) in orders, row.name
    known = {name: row.order(4, 8) for name, row in SCHEDULES.items()}
    assert all(known.get(piece.name or "", piece.order) == piece.order for piece in found.pieces)


def test_what_the_sliders_say_is_what_is_shown(found: Gallery) -> None:
    for piece in found.pieces:
        for chunks, group, ahead, late in piece.sliders:
            assert in_turn(4, 8, chunks=chunks, group=group, ahead=ahead, late=late) == piece.order
    assert sum(len(piece.sliders) for piece in found.pieces) == len(found.to_json()["places"]) == 2 * 3 * 5 * 4


def test_ranks_that_wait_in_a_circle_say_so(found: Gallery) -> None:
    stuck = [piece for piece in found.pieces if piece.timed is None]
    assert stuck
    assert all("rank" in piece.why for piece in stuck)


WORD = re.compile(r"([\d.]*)&?([FBIW])(\d+),(\d+)")


@pytest.mark.parametrize("messages", ["posted", "awaited"])
def test_the_page_can_draw_the_times_from_its_texts(messages: str) -> None:
    """What the script computes from a row is what the timer says."""
    made = gallery(3, 4, chunks=(1, 2), message=0.4, messages="posted" if messages == "posted" else "awaited")
    costs = made.to_json()["costs"]
    for piece, data in zip(made.pieces, made.to_json()["pieces"], strict=True):
        if piece.timed is None:
            continue
        lengths = {kind: (costs["I"] + costs["W"] if kind == "B" else costs[kind]) / piece.chunks for kind in "FBIW"}
        for row, starts, actions in zip(data["rows"], piece.timed.starts, piece.order, strict=True):
            time, words = 0.0, row.split()
            for start, action in zip(starts, actions, strict=True):
                for number in range(len(action.parts) or 1):
                    match = WORD.fullmatch(words.pop(0))
                    assert match is not None
                    time += float(match[1] or 0)
                    if number == 0:
                        assert time == pytest.approx(start)
                    time += lengths[match[2]]
            assert not words


def test_it_is_the_same_every_time_and_json(found: Gallery) -> None:
    text = json.dumps(found.to_json(), allow_nan=False)
    assert text == json.dumps(gallery(4, 8, chunks=(1, 2)).to_json(), allow_nan=False)
    assert len(text) < 120_000


def test_what_is_proved_is_beaten_by_nothing_of_its_kind(found: Gallery) -> None:
    assert found.limits()
    for limit in found.limits():
        for piece in found.pieces:
            alike = (piece.chunks, piece.shape, piece.halves) == (limit["chunks"], limit["shape"], limit["halves"])
            if alike and piece.timed is not None and max(piece.timed.peaks) <= limit["peak"]:
                assert piece.timed.end >= limit["end"], piece
    assert gallery(4, 8, message=0.4).limits() == []


def test_an_order_of_ones_own_is_beside_the_others() -> None:
    twice = tuple((*half, *(a._replace(microbatch=a.microbatch + 4) for a in half)) for half in gpipe(4, 4))
    piece = gallery(4, 8, chunks=(1,), own={"yours": twice}).named()["yours"]
    assert piece.timed is not None
    assert piece.timed.end > 33


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
