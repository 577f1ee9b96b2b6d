"""Rows of boxes: the stages of a pipeline on the lanes of their ranks, and the slots of a physical batch."""

from __future__ import annotations

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ALARM
from drawing.canvas.scene import Poly, Rect, Text
from lib.cluster.layouts import PhysicalBatch, Stages
from tests.drawing.marks import rects, texts

V = Stages([(0, 7), (1, 6), (2, 5), (3, 4)], title="A V")
CUT = Stages(
    [[0], [1], [2], [3]],
    [range(2), range(2, 5), range(5, 8), range(8, 10)],
    ("embedding", "head"),
    wrong=[2],
    title="10 layers",
)


def boxes(shown: Stages) -> dict[int, Rect]:
    return {int(box.title.split()[1]): box for box in rects(shown) if box.title.startswith("stage ")}


def test_stages_go_from_left_to_right_each_on_the_lane_of_its_rank() -> None:
    there = boxes(V)
    assert sorted(there) == list(range(8))
    assert [there[stage].x for stage in range(8)] == sorted(box.x for box in there.values())
    for one, other in ((0, 7), (1, 6), (2, 5), (3, 4)):
        assert there[one].y == there[other].y
    assert there[0].y < there[1].y < there[2].y < there[3].y
    assert {"A V", "rank 3", "stage 7"} <= {*texts(V)}


def test_messages_are_arrows_and_who_keeps_a_microbatch_sends_none() -> None:
    marks = picture_of(V).scene.marks
    titles = [mark.title for mark in marks if not isinstance(mark, Text)]
    assert titles.count("a message") == V.messages() == 6
    assert titles.count("stays on its rank: no message") == 1
    assert "a microbatch goes through all stages, from left to right: 6 messages forward" in texts(V)
    assert Stages([(0, 4), (1, 5), (2, 6), (3, 7)]).messages() == 7
    assert repr(V) == "<8 stages on 4 ranks: rank 0: 0, 7; rank 1: 1, 6; rank 2: 2, 5; rank 3: 3, 4>"


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 1), (1, 9), (2, 30), (16, 2), (64, 1), (40, 8)])
def test_it_is_as_wide_as_a_notebook_whatever_its_size(ranks: int, rounds: int) -> None:
    shown = Stages([range(rank, ranks * rounds, ranks) for rank in range(ranks)])
    picture = picture_of(shown)
    assert picture.scene.width == 840
    assert picture.scene.height < 800
    there = boxes(shown)
    assert all(0 < box.x < box.x + box.width < 840 for box in there.values())
    assert {0, ranks * rounds - 1} <= set(there)
    many = Stages([[stage] for stage in range(ranks)], [range(9 * stage, 9 * stage + 9) for stage in range(ranks)])
    assert all(box.x + box.width < 840 for box in boxes(many).values())


def slots(picture: Picture) -> list[str]:
    return [mark.title for mark in picture.scene.marks if isinstance(mark, Rect) and mark.title]


def test_every_slot_has_a_box_and_every_device_its_number() -> None:
    batch = PhysicalBatch.filled(4, 4, 4, [1, 3], 8, notes=["one", "two", "three", "four"], title="A title")
    picture = picture_of(batch)
    assert len(slots(picture)) == 16
    assert "feed 1, slot 2, device 3: example 2" in slots(picture)
    assert "feed 2, slot 0, device 4: padding" in slots(picture)
    assert sum(isinstance(mark, Poly) for mark in picture.scene.marks) == batch.padding  # hatched
    assert {"A title", *(f"feed {n}" for n in range(4)), *(f"device {n}" for n in range(8))} <= set(texts(picture))
    assert {"one", "two", "three", "four", *map(str, range(8))} <= set(texts(picture))
    assert repr(picture) == f"<A title. {batch.words()}>"


def test_what_is_wrong_is_framed() -> None:
    picture = picture_of(PhysicalBatch.filled(2, 2, 2, [0, 1], 2, notes=["a", "b"], wrong=[1]))
    assert len(rects(picture, stroke=ALARM)) == 1
    assert texts(picture, fill=ALARM) == ["feed 1", "b"]


def test_ranks_that_bring_rows_are_called_so() -> None:
    picture = picture_of(PhysicalBatch([[0, 1], [2, None]], None, title="Rows", names=("rank", "row")))
    assert slots(picture) == [*(f"rank {n // 2}, slot {n % 2}: row {n}" for n in range(3)), "rank 1, slot 1: padding"]
    assert {"Rows", "rank 0", "rank 1", "4 slots from 2 ranks: 3 with a row, 1 padding"} <= set(texts(picture))


@pytest.mark.parametrize(
    ("feeds", "each", "devices"), [(1, 1, 1), (40, 1, 8), (2, 400, 8), (30, 64, 1), (3, 8, 24), (16, 4, 64)]
)
def test_a_batch_is_as_wide_as_a_notebook_whatever_its_size(feeds: int, each: int, devices: int) -> None:
    picture = picture_of(PhysicalBatch.filled(feeds, each, 1, range(feeds), devices, notes=["a note"] * feeds))
    assert picture.scene.width == 840
    assert picture.scene.height < 1000
    boxes = [mark for mark in picture.scene.marks if isinstance(mark, Rect) and mark.title]
    assert all(0 < box.x < box.x + box.width < 840 and 0 < box.y < picture.scene.height for box in boxes)
