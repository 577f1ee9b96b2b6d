"""The gallery of schedules: what its sliders make, and that its data are those of the order timer."""

import json
import re

import pytest

from lib.schedules.gallery import Gallery, Piece, gallery
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.generators import gpipe, in_turn
from lib.schedules.pipelines.timing import time_order


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


def test_costs_are_of_a_whole_rank() -> None:
    made = gallery(2, 2, chunks=(1,), forward=2, input_half=3, weight_half=1)
    timed = named(made, "gpipe").timed
    assert timed is not None
    alone = time_order(in_turn(2, 2, group=2, ahead=None), forward=2, input_half=3, weight_half=1)
    assert timed.end == alone.end
    assert made.work == 12


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
