"""The map of the puzzles: chapters below each other, in each easy ones above, arrows around the cards, the same picture
every time."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import puzzle_map
from drawing.canvas.palette import PANEL
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Text
from drawing.map import WIDTH, depths
from lib import PUZZLES
from lib.puzzles.records import chapters
from tests.drawing.curriculum import CURRICULUM, SOLVED, Stop
from tests.drawing.marks import polys, rects, written


@st.composite
def curricula(draw: st.DrawFn) -> dict[str, Any]:
    """Up to 14 puzzles in up to three chapters, each of which needs some of those before it."""
    count = draw(st.integers(1, 14))
    needs = [draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]() for number in range(count)]
    ends = sorted(draw(st.tuples(st.integers(1, count), st.integers(1, count))))
    chapters = [("basics", "mesh", "one that nobody knows")[sum(end <= n for end in ends)] for n in range(count)]
    return {str(n): Stop(str(n), tuple(str(need) for need in sorted(needs[n])), chapters[n]) for n in range(count)}


def boxes(picture: Picture) -> list[Rect]:
    return rects(picture, width=WIDTH)


def inside(text: Text, rect: Rect) -> bool:
    return rect.x < text.x < rect.x + rect.width and rect.y < text.y < rect.y + rect.height


def titles(picture: Picture) -> list[str]:
    """What the cards are called; the lines of a long title are one."""
    bold = written(picture, bold=True)
    return [" ".join(text.text for text in bold if inside(text, card)) for card in boxes(picture)]


def cards(puzzles: Mapping[str, Any]) -> dict[str, Rect]:
    picture = puzzle_map({name: stop._replace(title=name) for name, stop in puzzles.items()})
    return {title.partition(" ")[2]: card for title, card in zip(titles(picture), boxes(picture), strict=True)}


@given(curricula())
def test_cards_do_not_overlap_and_every_need_is_above_by_an_arrow_or_on_the_card(puzzles: dict[str, Any]) -> None:
    picture, found = puzzle_map(puzzles), cards(puzzles)
    scene, lines = picture.scene, polys(picture, fill="none")
    assert found.keys() == puzzles.keys()
    tags = [mark for mark in written(picture) if mark.text.startswith("after ")]
    said = {name: tag.text for name, card in found.items() for tag in tags if inside(tag._replace(y=tag.y + 1), card)}
    arrows = 0
    for name, stop in puzzles.items():
        assert all(found[need].y + found[need].height < found[name].y for need in stop.needs)
        for other in puzzles:
            assert other == name or found[other].y != found[name].y or abs(found[other].x - found[name].x) > WIDTH
        away = [puzzles[need] for need in stop.needs if puzzles[need].chapter != stop.chapter]
        assert said.get(name) == (f"after {', '.join(need.label for need in away)}" if away else None)
        arrows += len(stop.needs) - len(away)
    assert len(lines) == arrows
    for line in lines:  # each goes around the cards
        assert all(0 < x < scene.width and 0 < y < scene.height for x, y in line.points)
        for x, y in line.points[1:-1]:
            assert not any(box.x < x < box.x + WIDTH and box.y < y < box.y + box.height for box in boxes(picture))


@given(curricula())
def test_a_chapter_has_its_puzzles_in_a_panel_and_its_title_above_them(puzzles: dict[str, Any]) -> None:
    picture, found = puzzle_map(puzzles), cards(puzzles)
    names = list(dict.fromkeys(stop.chapter for stop in puzzles.values()))
    panels = rects(picture, fill=PANEL)
    headings = [text for text in written(picture, bold=True) if text.size > TEXT]
    assert [text.text for text in headings] == [chapters()[n].title if n in chapters() else n for n in names]
    assert picture.scene.width >= 840
    for name, panel, heading in zip(names, panels, headings, strict=True):
        assert inside(heading, panel)
        for key, stop in puzzles.items():
            card = found[key]
            here = panel.x < card.x < card.x + WIDTH < panel.x + panel.width
            here = here and heading.y < card.y < card.y + card.height < panel.y + panel.height
            assert here == (stop.chapter == name)


@pytest.mark.parametrize("puzzles", [PUZZLES, CURRICULUM], ids=["ours", "of 24"])
def test_a_map_is_as_wide_as_a_notebook_and_all_in_it_can_be_read(puzzles: Mapping[str, Any]) -> None:
    picture = puzzle_map(puzzles, solved=SOLVED)
    core = [stop for stop in puzzles.values() if not (stop.deepens or stop.part_of)]
    assert sorted(titles(picture)) == sorted(f"{stop.label} {stop.title}" for stop in core)
    assert picture.scene.width == 840
    assert not any(text.text.endswith("…") or text.size < TEXT for text in written(picture))


def test_how_far_one_is_in_each_chapter() -> None:
    puzzles: dict[str, Any] = {"a": Stop("1", ()), "b": Stop("2", ("a",)), "c": Stop("3", ("a",), "mesh")}
    assert repr(puzzle_map(puzzles, solved={"a"})) == (
        "Map of 3 puzzles. Basics: 1 of 2 solved. Data parallel on a mesh: 0 of 1 solved. Next: 2 title."
    )
    empty, done, other = rects(puzzle_map(puzzles, solved={"a"}), radius=5, height=10)
    assert (empty.width, done.width, other.width) == (empty.width, empty.width / 2, empty.width)
    assert "3 title" in "".join(titles(puzzle_map(puzzles, solved={"nobody knows"})))


def test_a_solved_puzzle_is_marked_and_keeps_its_title() -> None:
    rows = {"basic": 0, "grad_accum": 1, "ddp": 1, "pipeline": 1, "wsdp": 2, "gpipe": 2, "fsdp": 3, "pipeline_fsdp": 4}
    assert depths(PUZZLES).items() >= rows.items()
    plain, marked = puzzle_map(PUZZLES), puzzle_map(PUZZLES, solved=PUZZLES)
    notebooks = [puzzle for puzzle in PUZZLES.values() if not puzzle.part_of]
    core = [puzzle for puzzle in notebooks if not puzzle.deepens]
    assert repr(plain).startswith(f"Map of {len(notebooks)} puzzles. Basics: 0 of 10 solved.")
    assert sorted(titles(plain)) == sorted(titles(marked)) == sorted(puzzle.heading for puzzle in core)
    assert sum(len(mark.points) == 3 for mark in polys(marked, line=2)) == len(core)
    assert puzzle_map(PUZZLES, solved={"ddp"}).svg() not in (plain.svg(), marked.svg())


@given(curricula())
def test_in_a_notebook_every_card_is_a_link(puzzles: dict[str, Any]) -> None:
    named = {
        name: stop._replace(title=name, path=f"{stop.chapter}/{stop.label}_{name}") for name, stop in puzzles.items()
    }
    picture, found = puzzle_map(named), cards(puzzles)
    assert {link.href for link in picture.links} == {f"{stop.path}.ipynb" for stop in named.values()}
    for link in picture.links:
        card = found[link.words.partition(" ")[2]]
        assert (link.x, link.y, link.width, link.height) == (card.x, card.y, card.width, card.height)
    shown = picture._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    assert shown["text/html"].count("<a href=") == len(puzzles)
    assert shown["text/html"].count("<svg") == 1
    evil: Any = Stop("1", (), "mesh", '<b>"', 'x" onclick="y')
    page = puzzle_map({"a": evil})._repr_mimebundle_()["text/html"]
    assert 'onclick="' not in page
    assert "<b>" not in page


def test_what_may_be_skipped_is_a_label_below_the_cards_after_what_it_deepens() -> None:
    puzzles: dict[str, Any] = {
        "a": Stop("1.1", (), title="a", path="basics/01_a"),
        "half": Stop("1.1", (), title="half", part_of="a", minutes=15),
        "b": Stop("1.2", ("a",), title="b", path="basics/02_b", minutes=35, deepens="a"),
        "c": Stop("1.3", ("b",), title="c", path="basics/03_c", deepens="b"),
        "d": Stop("2.1", ("half",), "mesh", "d", "mesh/01_d"),
    }
    picture = puzzle_map(puzzles, solved={"a", "half", "c"})
    assert titles(picture) == ["1.1 a", "2.1 d"]
    words = [text.text for text in written(picture)]
    assert [word for word in words if "after" in word] == ["deeper, after 1.1:", "after 1.1"]
    assert [word for word in words if word.endswith("min")] == ["35 min", "1.2 b · 35 min", "1.3 c · 20 min", "20 min"]
    assert {link.href for link in picture.links} == {f"{stop.path}.ipynb" for stop in puzzles.values()} - {
        puzzles["half"].path + ".ipynb"
    }
    assert words.count("you are here") == 1
    assert repr(picture) == (
        "Map of 4 puzzles. Basics: 2 of 3 solved. Data parallel on a mesh: 0 of 1 solved. Next: 2.1 d."
    )
