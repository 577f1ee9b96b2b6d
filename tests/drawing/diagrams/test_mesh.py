"""A mesh as a picture: every rank at its coordinates, what devices hold, and the groups of one rank."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import draw_mesh, picture_of
from drawing.canvas.palette import ALARM, PAPER
from drawing.canvas.scene import text_width
from lib import Mesh
from lib.cluster.layouts import Holdings, Neighbours
from tests.drawing.diagrams.exchanges import EXCHANGES
from tests.drawing.marks import cards, rects, texts, written


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    sizes = draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=4) | st.lists(st.integers(1, 2), max_size=6, min_size=5)
    )
    count = prod(sizes)
    ranks = draw(st.permutations(range(count)))
    host = draw(st.one_of(st.none(), st.integers(1, count)))
    return Mesh({f"axis{number}": size for number, size in enumerate(sizes)}, ranks=ranks, host_size=host)


def directions(mesh: Mesh) -> list[str]:
    """The axes that have a direction in the picture: of more than three only those with several places."""
    several = [name for name, size in mesh.axes.items() if size > 1]
    return (several or [*mesh.axes][-1:]) if len(mesh.axes) > 3 else [*mesh.axes]


@given(meshes(), st.data())
def test_a_group_has_one_colour_and_its_ranks_stand_where_their_coordinates_say(
    mesh: Mesh, data: st.DataObject
) -> None:
    axis = data.draw(st.sampled_from(sorted(mesh.axes)))
    shown, names = cards(draw_mesh(mesh, axis)), directions(mesh)
    assert len(shown) == len(mesh) or len(names) >= 4  # more blocks than are shown
    groups = {mesh.group(rank, axis) for rank in shown}
    for group in groups:
        assert len({shown[rank].fill for rank in group if rank in shown}) == 1
    assert len({shown[rank].fill for rank in shown}) == len(groups)
    for rank, card in shown.items():
        for other, there in shown.items():
            mine, its = mesh.coordinates(rank), mesh.coordinates(other)
            if [mine[name] for name in names[:-3]] < [its[name] for name in names[:-3]]:
                assert card.y < there.y  # another block, below
            elif all(mine[name] == its[name] for name in names[:-3]):
                if len(names) > 1 and mine[names[-2]] < its[names[-2]]:
                    assert card.y < there.y
                if len(names) > 2 and mine[names[-3]] < its[names[-3]]:
                    assert card.x < there.x
            if all(mine[name] == its[name] for name in names[:-1]) and mine[names[-1]] < its[names[-1]]:
                assert card.x + card.width <= there.x


def test_all_axes_stand_together_unless_one_is_named() -> None:
    mesh = Mesh({"replica": 2, "data": 2, "stage": 2})
    words = texts(draw_mesh(mesh))
    along = [word for word in words if word.startswith("groups along")]
    assert along == [f"groups along {axis}" for axis in mesh.axes]
    assert {"replica 1", "data 1", "stage 1"} <= set(words)
    assert "4 groups of 2 that share replica and stage: [0, 2], [1, 3]" in draw_mesh(mesh, "data").words
    assert "Along stage" not in draw_mesh(mesh, "data").words
    words = texts(draw_mesh(Mesh({"data": 2, "stage": 4}, host_size=2), "data"))
    assert [word for word in words if word.startswith("host")] == ["host 0", "host 1", "host 2", "host 3"]


def test_a_large_mesh_is_shown_by_its_first_ranks_and_its_last() -> None:
    mesh = Mesh({"pod": 9, "data": 32, "tensor": 64})
    picture = draw_mesh(mesh)
    assert picture.scene.width <= 840
    assert len(picture.svg()) < 100_000
    assert len(mesh) - 1 in cards(draw_mesh(mesh, "data"))


def test_it_takes_a_run_and_shows_itself_in_notebooks() -> None:
    mesh = Mesh({"data": 2, "shard": 2})
    assert draw_mesh(EXCHANGES["grid"]).svg() == draw_mesh(mesh).svg() == picture_of(mesh).svg()


GRID = Mesh(
    {"replica": 1, "data": 4, "model": 4},
    ranks=[0, 1, 4, 5, 8, 9, 12, 13, 10, 11, 14, 15, 2, 3, 6, 7],
    host_size=8,
    processes=4,
)
HOLDS = {rank: ("0 2 4 6", "1 3 5 7", "9 11 13 15", "8 10 12 14")[GRID.coordinates(rank)["data"]] for rank in range(16)}
SHOWN = Holdings(GRID, HOLDS, [4, 5], "What each device gets of a batch of 16")


@st.composite
def holdings(draw: st.DrawFn) -> Holdings:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    count = prod(sizes)
    size = draw(st.sampled_from([size for size in range(1, count + 1) if count % size == 0]))
    mesh = Mesh(
        {f"axis{number}": size for number, size in enumerate(sizes)},
        ranks=draw(st.permutations(range(count))),
        processes=size,
    )
    holds = draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from(["a", "b", "c d e f g h i j k l m n", ""])))
    return Holdings(mesh, holds, draw(st.sets(st.integers(0, count - 1))))


@given(holdings())
def test_devices_of_one_colour_hold_the_same(shown: Holdings) -> None:
    there = cards(shown, "device")
    assert sorted(there) == list(range(len(shown.mesh)))
    held = {device: shown.holds.get(device, "") for device in there}
    if any(held.values()):
        assert len({card.fill for card in there.values()}) == len(set(held.values()))
        assert all((there[device].fill == PAPER) == (not words) for device, words in held.items())
    else:  # a colour for each process
        assert len({card.fill for card in there.values()}) == len(shown.mesh.processes)
    frames = rects(picture_of(shown), stroke=ALARM)
    assert len(frames) == len(set(shown.wrong)) + bool(shown.wrong)  # and one in the legend


def test_what_there_is_one_of_is_not_said_unless_it_is_asked_for() -> None:
    words = texts(Holdings(Mesh({"data": 4}), {0: "x"}))
    assert not [word for word in words if word.startswith(("host", "process", "not right"))]
    assert "Mesh of 4 ranks: data 4" in words
    assert "process 3" in texts(Holdings(Mesh({"data": 4}), {0: "x"}, processes=True))


def test_draw_mesh_takes_what_devices_hold_and_of_a_large_mesh_the_words_are_short() -> None:
    assert draw_mesh(GRID, holds=HOLDS, wrong=[4, 5], title=SHOWN.title).svg() == picture_of(SHOWN).svg()
    words = draw_mesh(GRID, holds={}).words
    assert words.startswith("<Mesh of 16 devices: replica 1 × data 4 × model 4, 2 hosts, 4 processes.")
    mesh = Mesh({"replica": 2, "data": 40, "model": 8}, processes=8)
    picture = draw_mesh(mesh, holds={rank: f"{rank} and more than there is room for" for rank in range(len(mesh))})
    assert picture.scene.width <= 840
    assert "p0" in texts(picture)
    assert any(word.endswith("…") and word != "…" for word in texts(picture))


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
