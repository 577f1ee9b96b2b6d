"""The groups of one rank as a picture: a colour for each, the rank itself, and five axes that all have a place."""

import pytest

from drawing import draw_mesh, picture_of
from drawing.canvas.scene import text_width
from lib import Mesh
from lib.cluster.holdings import Neighbours
from tests.drawing.marks import cards, texts, written

DIMS = Mesh({"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 1, "tp": 2}, host_size=8)
FIVE = Neighbours(DIMS, 0, wrong=[3], title="The groups of rank 0")


def test_groups_of_other_names_may_share_ranks() -> None:
    shown = Neighbours(Mesh({"a": 2, "b": 2}), 3, {"shards": (0, 1, 2, 3), "copies": (1, 3), "alone": (3,)})
    assert shown.named() == {"shards": (0, 1, 2, 3), "copies": (1, 3)}
    picture = picture_of(shown)
    assert cards(picture)[0].fill == cards(picture)[1].fill
    assert "shards + copies" in texts(picture) or "shards" in texts(picture)
    assert "The groups of rank 3: shards: [0, 1, 2, 3]; copies: [1, 3]." in picture.words


def test_what_is_not_right_has_room_beside_a_small_mesh() -> None:
    scene = picture_of(Neighbours(Mesh({"a": 2}), 0, wrong=[1])).scene
    (words,) = written(scene, text="not right")
    assert words.x + text_width(words.text, words.size) < scene.width


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1), (1, 1, 1, 1, 3), (2, 1, 1, 1, 1), (9, 2, 5, 12, 9), (1, 2, 1, 2, 1)]
)
def test_any_five_axes_have_room(sizes: tuple[int, ...]) -> None:
    mesh = Mesh(zip(DIMS.axes, sizes, strict=True))
    picture = draw_mesh(mesh, groups_of=0)
    assert picture.scene.width <= 840
    assert 0 in cards(picture)
    assert len(mesh) - 1 in cards(picture)
    assert picture.scene.height < 2200
