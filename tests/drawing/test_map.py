"""The map of the puzzles: easy ones above, arrows around the cards, the same picture every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import puzzle_map
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Poly, Rect, Text
from drawing.map import HEIGHT, WIDTH, depths
from lib import PUZZLES


class Stop(NamedTuple):
    """A puzzle as the map sees it."""

    number: int
    needs: tuple[str, ...]
    title: str = "title"
    stem: str = "00_stem"
    teaches: str = "what it teaches, in a few words"


@st.composite
def curricula(draw: st.DrawFn) -> dict[str, Stop]:
    """Up to 12 puzzles, each of which needs some of those before it."""
    count = draw(st.integers(1, 12))
    needs = [draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]() for number in range(count)]
    return {str(n): Stop(n, tuple(str(need) for need in sorted(needs[n]))) for n in range(count)}


def cards(puzzles: Mapping[str, Stop]) -> dict[str, Rect]:
    """The card of each puzzle, found by its title."""
    scene = puzzle_map({name: stop._replace(title=name) for name, stop in puzzles.items()}).scene
    rects = [mark for mark in scene.marks if isinstance(mark, Rect) and (mark.width, mark.height) == (WIDTH, HEIGHT)]
    texts = [mark for mark in scene.marks if isinstance(mark, Text) and mark.bold]
    return {
        text.text.partition(". ")[2]: rect
        for text in texts
        for rect in rects
        if rect.x < text.x < rect.x + WIDTH and rect.y < text.y < rect.y + HEIGHT
    }


@given(curricula())
def test_cards_do_not_overlap_and_every_need_is_above(puzzles: dict[str, Stop]) -> None:
    found = cards(puzzles)
    assert found.keys() == puzzles.keys()
    for name, stop in puzzles.items():
        assert all(found[need].y + HEIGHT < found[name].y for need in stop.needs)
        for other in puzzles:
            assert other == name or found[other].y != found[name].y or abs(found[other].x - found[name].x) > WIDTH


@given(curricula())
def test_an_arrow_for_each_need_goes_around_the_cards(puzzles: dict[str, Stop]) -> None:
    scene = puzzle_map(puzzles).scene
    boxes = [mark for mark in scene.marks if isinstance(mark, Rect) and mark.width == WIDTH]
    lines = [mark for mark in scene.marks if isinstance(mark, Poly) and mark.fill == "none"]
    assert len(lines) == sum(len(stop.needs) for stop in puzzles.values())
    for line in lines:
        assert all(0 < x < scene.width and 0 < y < scene.height for x, y in line.points)
        for x, y in line.points[1:-1]:
            assert not any(box.x < x < box.x + WIDTH and box.y < y < box.y + HEIGHT for box in boxes)


def test_the_rows_of_the_eight() -> None:
    rows = {"basic": 0, "grad_accum": 1, "ddp": 1, "pipeline": 1, "wsdp": 2, "gpipe": 2, "fsdp": 3, "pipeline_fsdp": 4}
    found = depths(PUZZLES)
    assert {name: found[name] for name in rows} == rows


def titles(picture: Picture) -> list[str]:
    return [mark.text for mark in picture.scene.marks if isinstance(mark, Text) and mark.bold]


def test_a_solved_puzzle_is_marked_and_keeps_its_title() -> None:
    plain, marked = puzzle_map(PUZZLES), puzzle_map(PUZZLES, solved=PUZZLES)
    assert repr(plain) == f"Map of {len(PUZZLES)} puzzles"
    assert sorted(titles(plain)) == sorted(titles(marked)) == sorted(puzzle.heading for puzzle in PUZZLES.values())
    checks = [
        mark for mark in marked.scene.marks if isinstance(mark, Poly) and len(mark.points) == 3 and mark.line == 2
    ]
    assert len(checks) == len(PUZZLES)
    assert plain.svg() == puzzle_map(PUZZLES).svg()
    assert puzzle_map(PUZZLES, solved={"ddp"}).svg() not in (plain.svg(), marked.svg())


@given(curricula())
def test_in_a_notebook_every_card_is_a_link(puzzles: dict[str, Stop]) -> None:
    named = {name: stop._replace(title=name, stem=f"{stop.number:02d}_{name}") for name, stop in puzzles.items()}
    picture, found = puzzle_map(named), cards(puzzles)
    assert {link.href for link in picture.links} == {f"{stop.stem}.ipynb" for stop in named.values()}
    for link in picture.links:
        card = found[link.words.partition(". ")[2]]
        assert (link.x, link.y, link.width, link.height) == (card.x, card.y, card.width, card.height)
    shown = picture._repr_mimebundle_()
    assert set(shown) == {"text/html", "text/plain"}
    assert shown["text/html"].count("<a href=") == len(puzzles)
    assert shown["text/html"].count("<svg") == 1


def test_what_a_link_says_is_escaped() -> None:
    picture = puzzle_map({"a": Stop(1, (), '<b>"', 'x" onclick="y')})
    page = picture._repr_mimebundle_()["text/html"]
    assert 'onclick="' not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("needs", "says"),
    [({"a": ("b",), "b": ("a",)}, "these puzzles need each other: a -> b -> a"), ({"a": ("c",)}, "a needs 'c'")],
)
def test_needs_that_cannot_be_met_are_named(needs: dict[str, tuple[str, ...]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        puzzle_map({name: Stop(number, need) for number, (name, need) in enumerate(needs.items())})
