"""What each device of a mesh holds, as a picture: a card each, a colour for each thing, a frame where it is wrong."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from drawing import draw_mesh, picture_of
from drawing.canvas.palette import ALARM, PAPER
from lib import Mesh
from lib.cluster.holdings import Holdings
from tests.drawing.marks import cards, rects, texts

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
    assert words.startswith("<Mesh of 16 ranks: replica 1 × data 4 × model 4, 2 hosts, 4 processes.")
    mesh = Mesh({"replica": 2, "data": 40, "model": 8}, processes=8)
    picture = draw_mesh(mesh, holds={rank: f"{rank} and more than there is room for" for rank in range(len(mesh))})
    assert picture.scene.width <= 840
    assert "p0" in texts(picture)
    assert any(word.endswith("…") and word != "…" for word in texts(picture))
