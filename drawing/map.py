"""The map of the puzzles: a card for each on the core path, with what it teaches, and arrows from its prerequisites.
Easy ones are at the top. Optional ones, which deepen another, are small labels below the cards of their chapter.

Each chapter has a panel; its cards lie in rows, a puzzle below all its prerequisites in the chapter. An arrow that has
to pass other rows goes between their cards (layers, dummy nodes and barycentres of Sugiyama, Tagawa and Toda 1981).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from statistics import fmean as mean
from typing import Final

from drawing.canvas.palette import EDGE, GOLD, INK, PANEL, PAPER, SOFT, TRACK, Colour, ink_on, layer_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Link, Poly, Rect, Scene, Text, fit, text_width, wrapped
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import Chapter, chapters

WIDTH: Final = 240
"""Pixels of a card, as all sizes below; LANE is for an arrow that passes a row, BETWEEN separates two rows."""
STEP, MOST, GAP, LANE, BETWEEN, MARGIN, INSIDE = 15, 5, 14, 12, 42, 10, 12
ROOM: Final = 840 - 2 * MARGIN - 2 * INSIDE
"""Pixels that the rows of a panel may take, so that the picture is never scaled down."""
LINE: Final = 16
CHIP: Final = 22  # height of the label of an optional puzzle
BADGE, BAR, SIZE = 10, 110, TEXT


@dataclass(eq=False)
class Place:
    """A card, or (without a name) a place where an arrow passes a row. `x` is its middle."""

    name: str | None
    row: int
    x: float = 0.0
    above: list[Place] = field(default_factory=list["Place"])
    below: list[Place] = field(default_factory=list["Place"])

    @property
    def width(self) -> float:
        """Pixels that it takes in its row."""
        return LANE if self.name is None else WIDTH


Rows = list[list[Place]]


def puzzle_map(puzzles: Mapping[str, Puzzle], *, solved: Collection[str] = ()) -> Picture:
    """Return the picture of a curriculum. `solved` has the ids of puzzles to mark as solved; the next one on the core
    path is marked too. In a notebook each card is a link to the puzzle's own notebook, in the same folder or below it.

    Raises ValueError where a puzzle needs one that does not exist, or needs itself through others.
    """
    is_table = isinstance(puzzles, Mapping)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_table or not all(hasattr(stop, "needs") for stop in puzzles.values()):
        raise ValueError(f"puzzle_map takes puzzles by their ids, such as PUZZLES; got {puzzles!r}")
    depth = depths(puzzles)
    names = dict.fromkeys(stop.chapter for stop in puzzles.values())
    shown = {name: stop for name, stop in puzzles.items() if not stop.part_of}
    core = [name for name, stop in shown.items() if not stop.deepens and name not in solved]
    here = next((name for name in core if all(need in solved for need in shown[name].needs)), None)
    panels = [_Panel(name, puzzles, depth, solved, here) for name in names]
    width = max([ROOM, *(panel.width for panel in panels)]) + 2 * INSIDE
    scene, links, y = Scene(width + 2 * MARGIN, 0), list[Link](), float(MARGIN)
    for panel in panels:
        links += panel.paint(scene, y, width)
        y += panel.height + MARGIN
    scene.height = y
    told = " ".join(f"{panel.chapter.title}: {panel.progress}." for panel in panels)
    if here is not None:
        told += f" Next: {shown[here].label} {shown[here].title}."
    return Picture(scene, f"Map of {len(shown)} puzzles. {told}".strip(), links)


def depths(puzzles: Mapping[str, Puzzle]) -> dict[str, int]:
    """Return the depth of each puzzle: 0 where it needs none, else one more than the deepest that it needs."""
    for name, stop in puzzles.items():
        for need in stop.needs:
            if need not in puzzles:
                raise ValueError(f"{name} needs {need!r}, and there is no such puzzle")
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter({name: stop.needs for name, stop in puzzles.items()}).static_order():
            depth[name] = max((depth[need] + 1 for need in puzzles[name].needs), default=0)
    except CycleError as error:
        raise ValueError(f"these puzzles need each other: {' -> '.join(error.args[1])}") from None
    return depth


def _arranged(puzzles: Mapping[str, Puzzle], across: int) -> Rows:
    """The rows of a chapter, each from left to right. No puzzle comes before its prerequisites, and a row has at most
    `across` cards: one without room goes to the next."""
    cards: dict[str, Place] = {}
    for name in puzzles:
        above = [cards[need].row for need in puzzles[name].needs if need in puzzles]
        row = max(above, default=-1) + 1
        while sum(card.row == row for card in cards.values()) == across:
            row += 1
        cards[name] = Place(name, row)
    rows: Rows = [[] for _ in range(max(card.row for card in cards.values()) + 1)]
    for name in puzzles:
        rows[cards[name].row].append(cards[name])
        for need in puzzles[name].needs:
            if need in cards:  # an arrow, with a place of its own in each row that it passes
                between = [Place(None, row) for row in range(cards[need].row + 1, cards[name].row)]
                for place in between:
                    rows[place.row].append(place)
                for upper, lower in pairwise([cards[need], *between, cards[name]]):
                    upper.below.append(lower)
                    lower.above.append(upper)
    for row in rows:
        _settle(row, {place: index * (WIDTH + GAP) for index, place in enumerate(row)})
    for sweep in range(4):
        downwards = sweep % 2 == 0
        for row in rows[1:] if downwards else rows[-2::-1]:
            near = {place: place.above if downwards else place.below for place in row}
            wish = {place: mean([other.x for other in others] or [place.x]) for place, others in near.items()}
            row.sort(key=lambda place: wish[place])
            _settle(row, wish)
    return rows


def _settle(row: list[Place], wish: Mapping[Place, float]) -> None:
    """Put each place where it wants to be, or as near as its neighbours allow. The row stays centred."""
    right = float("-inf")
    for place in row:
        place.x = max(wish[place], right + place.width / 2)
        right = place.x + place.width / 2 + GAP
    shift = sum(place.x - wish[place] for place in row) / len(row)
    for place in row:
        place.x -= shift


class _Panel:
    """A chapter: its title, the progress, its subject, and the cards of its puzzles."""

    def __init__(
        self, name: str, puzzles: Mapping[str, Puzzle], depth: dict[str, int], solved: Collection[str], here: str | None
    ) -> None:
        self.chapter, self.puzzles, self.here = chapters().get(name, Chapter(name, "")), puzzles, here
        every = [key for key, stop in puzzles.items() if stop.chapter == name and not stop.part_of]
        mine = [key for key in every if not puzzles[key].deepens]
        self.mine = {key: puzzles[key] for key in sorted(mine, key=depth.__getitem__)}
        self.deeper = [key for key in every if puzzles[key].deepens]
        self.solved = [key for key in every if key in solved]
        self.progress = f"{len(self.solved)} of {len(every)} solved"
        self.rows, self.left, self.width = Rows(), 0.0, 0.0
        for across in (3, 2, 1) if self.mine else ():  # fewer cards beside each other where arrows take the room
            self.rows = _arranged(self.mine, across)
            places = [place for row in self.rows for place in row]
            self.left = min(place.x - place.width / 2 for place in places)
            self.width = max(place.x + place.width / 2 for place in places) - self.left
            if self.width <= ROOM:
                break
        self.lines = wrapped(self.chapter.about, ROOM, TEXT)
        self.head = INSIDE + 38 + LINE * len(self.lines)
        lines = [[sum(map(len, _said(self.mine[place.name]))) for place in row if place.name] for row in self.rows]
        self.high = [max(80, 28 + STEP * max(counts)) for counts in lines]  # the minutes lie on the lower edge
        self.cards = sum(self.high) + BETWEEN * max(0, len(self.rows) - 1)
        # The minutes of a notebook, with those of its parts that are skipped only with it.
        self.minutes = {key: puzzles[key].minutes for key in every}
        for stop in puzzles.values():
            if stop.part_of in self.minutes and stop.deepens in ("", puzzles[stop.part_of].deepens):
                self.minutes[stop.part_of] += stop.minutes
        self.chips = _chips(self.deeper, self.minutes, puzzles)
        below = max((y + CHIP for _, _, y, _ in self.chips), default=0)
        self.between = 1.5 * INSIDE if self.rows and self.chips else 0.0
        self.height = self.head + self.cards + self.between + below + INSIDE

    def paint(self, scene: Scene, top: float, width: float) -> list[Link]:
        scene.add(Rect(MARGIN, top, width, self.height, PANEL, EDGE, radius=6))
        self._heading(scene, MARGIN + INSIDE, MARGIN + width - INSIDE, top + INSIDE)
        places = [place for row in self.rows for place in row]
        shift = MARGIN + (width - self.width) / 2 - self.left
        for place in places:
            place.x += shift
        self.top = top + self.head
        cards = [(place, place.name) for place in places if place.name is not None]
        for place, _ in cards:
            self._arrows(scene, place)
        links = [self._card(scene, place, name) for place, name in cards]
        return links + list(self._labels(scene, MARGIN + INSIDE, self.top + self.cards + self.between))

    def _labels(self, scene: Scene, left: float, top: float) -> Iterator[Link]:
        """The optional puzzles, each a label with its minutes."""
        for name, x, y, wide in self.chips:
            if name not in self.puzzles:
                scene.add(Text(left + x, top + y + CHIP / 2, name, SIZE, SOFT))
                continue
            stop, solved = self.puzzles[name], name in self.solved
            edge = GOLD if solved else EDGE
            scene.add(Rect(left + x, top + y, wide, CHIP, PAPER, edge, 2 if solved else 1, radius=CHIP / 2))
            words = _chip(stop, self.minutes[name])
            scene.add(Text(left + x + wide / 2, top + y + CHIP / 2, words, SIZE, INK, "middle"))
            yield Link(left + x, top + y, wide, CHIP, f"{stop.path}.ipynb", words + " (solved)" * solved)

    def _heading(self, scene: Scene, left: float, right: float, y: float) -> None:
        done, words = len(self.solved) / len(self.minutes), self.progress
        wide = text_width(words, TEXT) + 10
        scene.add(Text(left, y + 8, fit(self.chapter.title, right - left - BAR - wide - 12, 15), 15, bold=True))
        scene.add(Text(right, y + 8, words, TEXT, SOFT, "end"))
        scene.add(Rect(right - wide - BAR, y + 3, BAR, 10, TRACK, EDGE, radius=5))
        if done:
            scene.add(Rect(right - wide - BAR, y + 3, max(10.0, BAR * done), 10, GOLD, radius=5))
        for number, line in enumerate(self.lines):
            scene.add(Text(left, y + 30 + number * LINE, line, TEXT, SOFT))

    def _y(self, row: int, bottom: bool = False) -> float:
        """The top of a row, or its bottom."""
        return self.top + sum(self.high[: row + bottom]) + row * BETWEEN

    def _arrows(self, scene: Scene, place: Place) -> None:
        for index, lower in enumerate(sorted(place.below, key=lambda other: other.x)):
            start = place.x + _spread(index, len(place.below))
            points = [(start, self._y(place.row, bottom=True))]
            upper = place
            while lower.name is None:
                points += [(lower.x, self._y(lower.row)), (lower.x, self._y(lower.row, bottom=True))]
                upper, (lower,) = lower, lower.below
            order = sorted(lower.above, key=lambda other: other.x)
            spread = [lower.x + _spread(number, len(order)) for number in range(len(order))]
            aside = max(0.0, lower.x - WIDTH / 2 + self._tag(lower.name)[1] + 12 - spread[0])
            end = spread[order.index(upper)] + aside, self._y(lower.row) - 2
            scene.add(Poly((*points, end), stroke=SOFT, line=1.4))
            scene.add(Poly(((end[0] - 4, end[1] - 7), (end[0] + 4, end[1] - 7), (end[0], end[1] + 1)), SOFT))

    def _elsewhere(self, name: str) -> Sequence[Puzzle]:
        needs = {self.puzzles[need].part_of or need for need in self.mine[name].needs} - {name, *self.mine}
        return [stop for need, stop in self.puzzles.items() if need in needs]

    def _tag(self, name: str) -> tuple[str, float]:
        """Return the words on the edge of a puzzle's card, and where on it they end."""
        needs = self._elsewhere(name)
        words = f"after {', '.join(stop.label for stop in needs)}"
        return (words, 8 + text_width(words, SIZE) + 14) if needs else ("", 0.0)

    def _edge(self, scene: Scene, right: float, y: float, words: str, colour: Colour = SOFT) -> None:
        """Words on the lower edge of a card."""
        wide = text_width(words, SIZE) + 14
        scene.add(Rect(right - wide, y - 9, wide, 18, PAPER, colour, radius=9))
        scene.add(Text(right - wide / 2, y, words, SIZE, colour, "middle"))

    def _card(self, scene: Scene, place: Place, name: str) -> Link:
        stop, solved = self.mine[name], name in self.solved
        x, y, high = place.x - WIDTH / 2, self._y(place.row), self.high[place.row]
        title = f"{stop.label} {stop.title}"
        colour = GOLD if solved else layer_colour(round((place.row + 1) / len(self.rows) * 10), 10)
        edge, line = (GOLD, 2.0) if solved else (INK, 2.0) if name == self.here else (EDGE, 1.0)
        scene.add(Rect(x, y, WIDTH, high, PAPER, edge, line, radius=5))
        self._edge(scene, x + WIDTH - 8, y + high, f"{self.minutes[name]} min")
        if name == self.here:
            self._edge(scene, x + 100, y + high, "you are here", INK)
        scene.add(Rect(x, y + 5, 5, high - 10, colour))
        names, about = _said(stop)
        for number, line in enumerate(names):
            scene.add(Text(x + 14, y + 18 + number * STEP, line, SIZE, bold=True))
        for number, line in enumerate(about, len(names)):
            scene.add(Text(x + 14, y + 21 + number * STEP, line, SIZE, SOFT))
        words, end = self._tag(name)
        if words:
            needs = "\n".join(f"{need.label} {need.title}" for need in self._elsewhere(name))
            scene.add(Rect(x + 8, y - 9, end - 8, 18, PAPER, SOFT, radius=9, title=f"solve first:\n{needs}"))
            scene.add(Text(x + 8 + (end - 8) / 2, y, words, SIZE, SOFT, "middle"))
        if solved:  # a badge on the corner, where it takes no room from the title
            x0, y0 = x + WIDTH - 3, y + 3
            scene.add(Rect(x0 - BADGE, y0 - BADGE, 2 * BADGE, 2 * BADGE, GOLD, PAPER, 1.5, radius=BADGE))
            tick = ((x0 - 4.5, y0), (x0 - 1.3, y0 + 3.5), (x0 + 4.7, y0 - 3.8))
            scene.add(Poly(tick, stroke=ink_on(GOLD), line=2))
        return Link(x, y, WIDTH, high, f"{stop.path}.ipynb", f"{title} (solved)" if solved else title)


def _chip(stop: Puzzle, minutes: int) -> str:
    return f"{stop.label} {stop.title} · {minutes} min"


def _chips(
    names: Sequence[str], minutes: Mapping[str, int], puzzles: Mapping[str, Puzzle]
) -> list[tuple[str, float, float, float]]:
    """The places of the labels of optional puzzles, in lines: a name (or words before those that deepen one puzzle),
    its left, its top, and its width."""
    found: list[tuple[str, float, float, float]] = []
    groups: dict[str, list[str]] = {}
    for name in names:
        root = name
        while puzzles[root].deepens in puzzles:
            root = puzzles[root].deepens
        groups.setdefault(root, []).append(name)
    y = 0.0
    for root, deeper in groups.items():
        words = f"deeper, after {puzzles[root].label}:"
        start = text_width(words, SIZE) + 16
        found.append((words, 0.0, y, start))
        x = start
        for name in deeper:
            wide = text_width(_chip(puzzles[name], minutes[name]), SIZE) + 24
            if x + wide > ROOM and x > start:
                x, y = start, y + CHIP + 6
            found.append((name, x, y, wide))
            x += wide + 8
        y += CHIP + 8
    return found


def _spread(index: int, count: int) -> float:
    return (index - (count - 1) / 2) * 40


def _said(stop: Puzzle) -> tuple[list[str], list[str]]:
    """The lines of a card: its number and title, and what it teaches."""
    names = _lines(f"{stop.label} {stop.title}", SIZE * 1.04, 2)
    return names, _lines(stop.teaches, SIZE, MOST - len(names))


def _lines(text: str, size: float, most: int) -> list[str]:
    room = WIDTH - 22
    lines = wrapped(text, room, size)
    return lines if len(lines) <= most else [*lines[: most - 1], fit(" ".join(lines[most - 1 :]), room, size)]
