"""A mesh as a picture: every rank at its coordinates, and one colour for each group."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from drawing import draw_mesh, picture_of
from lib import Mesh
from tests.drawing.communication.exchanges import EXCHANGES
from tests.drawing.marks import cards, texts


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
