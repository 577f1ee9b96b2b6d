"""The map of the puzzles: a card for each, what it teaches, and arrows from what it needs. Easy ones are at the top.

The cards lie in rows: a puzzle is one row below the lowest of those that it needs. An arrow that has to pass other
rows goes between their cards (the layers, dummy nodes and barycentres of Sugiyama, Tagawa and Toda 1981).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

from drawing.canvas.palette import EDGE, GOLD, PAPER, SOFT, ink_on, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Link, Poly, Rect, Scene, Text, fit, text_width

__all__ = ["Stop", "puzzle_map"]

WIDTH: Final = 236
"""Pixels of a card, as all that follow; LANE is for an arrow that passes a row, BETWEEN lies between two rows."""
HEIGHT: Final = 82
GAP: Final = 26
LANE: Final = 14
BETWEEN: Final = 44
MARGIN: Final = 22
BADGE: Final = 10
SIZE: Final = TEXT
SWEEPS: Final = 4


class Stop(Protocol):
    """What the map asks of a puzzle: such as the records in lib.PUZZLES."""

    @property
    def number(self) -> int: ...  # counted from 1, as in the titles of the notebooks
    @property
    def stem(self) -> str: ...  # the name of its notebook, without the ending
    @property
    def title(self) -> str: ...
    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def teaches(self) -> str: ...


@dataclass(eq=False)
class Place:
    """A card, or (without a name) the place where an arrow passes a row. `x` is its middle."""

    name: str | None
    row: int
    x: float = 0.0
    above: list[Place] = field(default_factory=list["Place"])
    below: list[Place] = field(default_factory=list["Place"])

    @property
    def width(self) -> float:
        """Pixels that it takes in its row."""
        return LANE if self.name is None else WIDTH


def puzzle_map(puzzles: Mapping[str, Stop], *, solved: Collection[str] = ()) -> Picture:
    """The picture of a curriculum. `solved` are the ids of the puzzles that get a mark. In a notebook each card is a
    link to the puzzle's own notebook, in the same folder.

    Raises ValueError where a puzzle needs one that there is not, or itself by a detour.
    """
    rows = _layout(puzzles)
    left = min(place.x - place.width / 2 for row in rows for place in row)
    right = max(place.x + place.width / 2 for row in rows for place in row)
    height = len(rows) * (HEIGHT + BETWEEN) - BETWEEN + 2 * MARGIN
    scene = Scene(right - left + 2 * MARGIN, height)
    for row in rows:
        for place in row:
            place.x += MARGIN - left
    for row in rows:
        for place in row:
            if place.name is not None:
                _arrows(scene, place)
    found = [(place, place.name) for row in rows for place in row if place.name is not None]
    links = [_card(scene, place, puzzles[name], (place.row + 1) / len(rows), name in solved) for place, name in found]
    return Picture(scene, f"Map of {len(puzzles)} puzzles", links)


def depths(puzzles: Mapping[str, Stop]) -> dict[str, int]:
    """The row of each puzzle: 0 where it needs none, else one more than the lowest that it needs."""
    found: dict[str, int] = {}

    def depth(name: str, under: tuple[str, ...]) -> int:
        if name in under:
            raise ValueError(f"these puzzles need each other: {' -> '.join([*under[under.index(name) :], name])}")
        if name not in puzzles:
            raise ValueError(f"{under[-1]} needs {name!r}, and there is no such puzzle")
        if name not in found:
            found[name] = max((depth(need, (*under, name)) + 1 for need in puzzles[name].needs), default=0)
        return found[name]

    for name in puzzles:
        depth(name, ())
    return found


def _layout(puzzles: Mapping[str, Stop]) -> list[list[Place]]:
    """The rows, each from left to right."""
    at = depths(puzzles)
    rows: list[list[Place]] = [[] for _ in range(max(at.values(), default=-1) + 1)]
    cards = {name: Place(name, at[name]) for name in puzzles}
    for name, card in cards.items():
        rows[card.row].append(card)
        for need in puzzles[name].needs:
            _join(rows, cards[need], card)
    for row in rows:
        _settle(row, {place: index * (WIDTH + GAP) for index, place in enumerate(row)})
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in rows[1:] if downwards else rows[-2::-1]:
            wish = {place: _middle(place.above if downwards else place.below, place.x) for place in row}
            row.sort(key=lambda place: wish[place])
            _settle(row, wish)
    return rows


def _join(rows: list[list[Place]], first: Place, last: Place) -> None:
    """An arrow, with a place of its own in each row that it passes."""
    chain = [first, *(Place(None, row) for row in range(first.row + 1, last.row)), last]
    for place in chain[1:-1]:
        rows[place.row].append(place)
    for upper, lower in pairwise(chain):
        upper.below.append(lower)
        lower.above.append(upper)


def _middle(others: list[Place], otherwise: float) -> float:
    return sum(place.x for place in others) / len(others) if others else otherwise


def _settle(row: list[Place], wish: Mapping[Place, float]) -> None:
    """Puts each place where it wants to be, or as near as its neighbours let it. The row stays centred."""
    right = float("-inf")
    for place in row:
        place.x = max(wish[place], right + place.width / 2)
        right = place.x + place.width / 2 + GAP
    shift = sum(place.x - wish[place] for place in row) / len(row)
    for place in row:
        place.x -= shift


def _top(row: int) -> float:
    return MARGIN + row * (HEIGHT + BETWEEN)


def _arrows(scene: Scene, place: Place) -> None:
    """The arrows that leave a card, each to the top of another."""
    for index, lower in enumerate(sorted(place.below, key=lambda other: other.x)):
        start = place.x + _spread(index, len(place.below))
        points = [(start, _top(place.row) + HEIGHT)]
        upper = place
        while lower.name is None:
            points += [(lower.x, _top(lower.row)), (lower.x, _top(lower.row) + HEIGHT)]
            upper, (lower,) = lower, lower.below
        order = sorted(lower.above, key=lambda other: other.x)
        end = lower.x + _spread(order.index(upper), len(order)), _top(lower.row) - 2
        scene.add(Poly((*points, end), stroke=SOFT, line=1.4))
        scene.add(Poly(((end[0] - 4, end[1] - 7), (end[0] + 4, end[1] - 7), (end[0], end[1] + 1)), SOFT))


def _spread(index: int, count: int) -> float:
    return (index - (count - 1) / 2) * 44


def _card(scene: Scene, place: Place, stop: Stop, depth: float, solved: bool) -> Link:
    x, y = place.x - WIDTH / 2, _top(place.row)
    title = f"{stop.number}. {stop.title}"
    scene.add(Rect(x, y, WIDTH, HEIGHT, PAPER, GOLD if solved else EDGE, 2 if solved else 1, radius=5))
    scene.add(Rect(x, y + 5, 5, HEIGHT - 10, GOLD if solved else layer_colour(round(depth * 10), 10)))
    scene.add(Text(x + 16, y + 17, fit(title, WIDTH - 26, SIZE), SIZE, bold=True))
    for number, line in enumerate(_lines(stop.teaches, WIDTH - 28, SIZE)):
        scene.add(Text(x + 16, y + 37 + number * 15, line, SIZE, SOFT))
    if solved:
        _check_mark(scene, x + WIDTH - 3, y + 3)
    return Link(x, y, WIDTH, HEIGHT, f"{stop.stem}.ipynb", f"{title} (solved)" if solved else title)


def _check_mark(scene: Scene, x: float, y: float) -> None:
    """A badge on the corner of a card, where it takes no room from the title."""
    scene.add(Rect(x - BADGE, y - BADGE, 2 * BADGE, 2 * BADGE, GOLD, PAPER, 1.5, radius=BADGE))
    scene.add(Poly(((x - 4.5, y), (x - 1.3, y + 3.5), (x + 4.7, y - 3.8)), stroke=ink_on(GOLD), line=2))


def _lines(text: str, room: float, size: float) -> Iterator[str]:
    """The text in three lines at most."""
    line, lines = "", list[str]()
    for word in text.split():
        longer = f"{line} {word}".strip()
        if text_width(longer, size) > room and line:
            lines.append(line)
            longer = word
        line = longer
    lines.append(line)
    yield from lines[:2]
    if len(lines) > 2:
        yield fit(" ".join(lines[2:]), room, size)
