"""The picture of a physical batch: every slot has a box, padding is hatched, and each device has its number below."""

import pytest

from drawing import Picture, picture_of
from drawing.canvas.palette import ALARM
from drawing.canvas.scene import Poly, Rect
from lib.cluster.batch import PhysicalBatch
from tests.drawing.marks import rects, texts


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
def test_it_is_as_wide_as_a_notebook_whatever_its_size(feeds: int, each: int, devices: int) -> None:
    picture = picture_of(PhysicalBatch.filled(feeds, each, 1, range(feeds), devices, notes=["a note"] * feeds))
    assert picture.scene.width == 840
    assert picture.scene.height < 1000
    boxes = [mark for mark in picture.scene.marks if isinstance(mark, Rect) and mark.title]
    assert all(0 < box.x < box.x + box.width < 840 and 0 < box.y < picture.scene.height for box in boxes)
