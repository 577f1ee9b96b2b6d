"""Many runs: each as small as a stamp, all of a puzzle on one page, and slides, one picture a page.

The picture of a slide is painted as narrow as it fits, and then made larger: so its letters are as large as the page
allows. Pages of one series are there to be flipped through: their pictures have one scale and one place, and those of
all series of a file one time axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import (
    ACCENT,
    ALARM,
    EDGE,
    GOOD,
    GRID,
    INK,
    LOOKS,
    MINE,
    NONE,
    PANEL,
    SOFT,
    TRACK,
    fill_and_border,
    layer_colour,
    mix,
)
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Poly, Rect, Scene, Text, fit, moved, wrapped
from drawing.timeline.boxes import Box, boxes
from drawing.timeline.memory import levels, stepped
from drawing.timeline.rows import shown_rows
from lib.analysis.figures import makespan, peak
from lib.trace.trace import Trace

__all__ = ["HEIGHT", "HIGH", "WIDE", "WIDTH", "Slide", "Tile", "draw_overview", "scenes_of", "thumbnails"]

BESIDE: Final = 0.35
"""How high a lane of communication is, in rows."""
LEAST: Final = 1.0
"""Pixels below which a box goes into the one before it."""
GAP: Final = 0.5


def thumbnail(trace: Trace, width: float, height: float, end: int, highest: float, least: float = LEAST) -> list[Mark]:
    """The marks of a run from (0, 0) on. `end` (ticks) is as far right as its axis goes, and `highest` the number of
    elements that fills the height of the memory, so that runs can be compared. Boxes narrower than `least` pixels go
    into their neighbours, so there are at most so many."""
    rows = shown_rows(trace, True, 8).rows
    timeline = boxes(trace, [row.rank for row in rows])
    units = [1 + BESIDE * (lanes - 1) for lanes in timeline.lanes]
    below = height * 0.24 if highest else 0.0
    unit = min(16.0, (height - below - 6) / sum(units))
    tops: dict[int, float] = {}
    y = 0.0
    for row, own in zip(rows, units, strict=True):
        tops[row.rank] = y
        y += unit * own
    scale = width / max(1, end, timeline.end)
    marks: list[Mark] = [Rect(0, 0, width, y, TRACK)]
    found: dict[tuple[int, int], list[Rect]] = {}
    for box in timeline.boxes:
        if box.look != "wait":
            _add(found.setdefault((box.rank, box.lane), []), _box(trace, box, tops[box.rank], unit, scale), least)
    every = [rect for lane in found.values() for rect in lane]
    marks += sorted(every, key=lambda rect: rect.fill)  # those of one colour share it in the file
    return marks + (_memory(trace, width, y + 4, height, scale, highest) if highest else [])


def _box(trace: Trace, box: Box, top: float, unit: float, scale: float) -> Rect:
    event = trace.programs[box.rank].events[box.number]
    fill, border = fill_and_border(box.look, layer_colour(event.layer or 0, trace.layers))
    fill = fill if border == NONE else mix(fill, border, 0.35)  # a box so small has no border
    x = box.start * scale
    if box.look == "failed":
        return Rect(x, top, 4, unit, LOOKS["failed"].fill)
    if box.lane:
        top, unit = top + unit + (box.lane - 1) * unit * BESIDE, unit * BESIDE
    return Rect(x, top + 0.4, (box.end - box.start) * scale, unit - 0.8, fill)


def _add(lane: list[Rect], rect: Rect, least: float) -> None:
    """Adds a box to its lane. One that is too narrow, and beside another, makes that one wider."""
    last = lane[-1] if lane else None
    if last is not None and rect.x - (last.x + last.width) < least and (rect.width < least or last.width < least):
        wide = rect if rect.width > last.width else last
        lane[-1] = wide._replace(x=last.x, width=max(rect.x + rect.width, last.x + last.width) - last.x)
        return
    lane.append(rect._replace(width=max(0.6, rect.width - GAP)) if rect.width > 3 * GAP else rect)


def _memory(trace: Trace, width: float, top: float, bottom: float, scale: float, highest: float) -> list[Mark]:
    """What the rank with the highest peak holds, as one area."""
    curve = levels(trace, peak(trace).rank)
    if not curve or bottom - top < 4:
        return []
    edge = [(level.time * scale, bottom - (bottom - top) * level.sums[-1] / highest) for level in curve]
    return [Poly(((0, bottom), (width, bottom)), stroke=GRID), Poly(stepped(edge, bottom), fill=MINE)]


WIDE: Final = 300.0
HIGH: Final = 96.0
"""Pixels of a small timeline."""
PAD: Final = 12.0


class Tile(NamedTuple):
    """A solution: what it is called, lines that are said of it, such as its figures, the goal that it reaches or what
    is wrong with it, and whether it is correct."""

    name: str
    trace: Trace
    said: Sequence[str] = ()
    goal: str = ""
    correct: bool = True


def thumbnails(traces: Sequence[Trace]) -> list[list[Mark]]:
    """The small timelines of runs, all on one time axis and to one scale of memory. A run that failed far behind the
    end of all others does not make these smaller."""
    whole = [trace for trace in traces if trace.error is None] or traces
    end = max((makespan(trace) for trace in whole), default=1)
    highest = max((float(peak(trace).elements) for trace in whole), default=0.0)
    least = LEAST if len(traces) < 60 else 2.5 * LEAST  # so a page of hundreds stays small
    return [thumbnail(trace, WIDE, HIGH, end, max(highest, float(peak(trace).elements)), least) for trace in traces]


def draw_overview(title: str, about: str, tiles: Sequence[Tile]) -> Picture:
    """A picture of all of them, in their order, from left to right and from top to bottom."""
    lines = max((len(tile.said) for tile in tiles), default=0)
    across = min(4, max(1, len(tiles)), 2 if len(tiles) <= 4 else 3 if len(tiles) <= 9 else 4)
    wide, high = WIDE + 2 * PAD, HIGH + 2 * PAD + 22 + 16 * (lines + 1)
    scene = Scene(max(560.0, across * (wide + PAD) + PAD), 0)
    scene.add(Text(PAD * 1.5, 28, fit(title, scene.width - 3 * PAD, 18), 18, INK, bold=True))
    y = scene.paragraph(PAD * 1.5, 52, about, scene.width - 3 * PAD, 17, SOFT)
    for number, (tile, small) in enumerate(zip(tiles, thumbnails([tile.trace for tile in tiles]), strict=True)):
        left, top = PAD + number % across * (wide + PAD), y + number // across * (high + PAD)
        scene.add(Rect(left, top, wide, high, PANEL, EDGE, radius=6))
        _tile(scene, tile, small, left + PAD, top + PAD)
    scene.height = y + (len(tiles) + across - 1) // across * (high + PAD) + 4
    return Picture(scene, "\n".join([title, *(f"{tile.name}: {'; '.join([*tile.said, tile.goal])}" for tile in tiles)]))


def _tile(scene: Scene, tile: Tile, small: Sequence[Mark], left: float, top: float) -> None:
    scene.add(Text(left, top + 6, fit(tile.name, WIDE, TEXT * 1.1), TEXT * 1.1, INK, bold=True))
    y = top + 26
    for line in tile.said:
        scene.add(Text(left, y, fit(line, WIDE, TEXT), TEXT, INK if tile.correct else SOFT))
        y += 16
    if tile.goal:
        scene.add(Text(left, y, fit(tile.goal, WIDE, TEXT), TEXT, GOOD if tile.correct else ALARM))
    scene.add(*(moved(mark, left, y + 14) for mark in small))


WIDTH: Final = 1280
HEIGHT: Final = 720
MARGIN: Final = 44
TITLE, LARGE, SAID, FOOT = 38, 56, 23, 15
"""Sizes of letters: of a title, of that of a title page, of what is said below it, and of the foot."""
SAID_TOP: Final = 92
MOST_SAID: Final = 4
"""Lines that are said above a picture."""
MOST_LISTED: Final = 14
"""Lines of a page without a picture."""
FOOT_ROOM: Final = 44
ROOM: Final = WIDTH - 2 * MARGIN


class Slide(NamedTuple):
    """A page. `picture` paints what is shown at a width and a height, with so many times the usual room beside its time
    axis; without one the page is a title and lines of text. With `cover` it is a title above a picture.

    `series`: the pages that are flipped through together; "" for a page by itself.
    """

    title: str
    said: Sequence[str] = ()
    picture: Callable[[float, float, float], Picture] | None = None
    series: str = ""
    cover: bool = False


class _Place(NamedTuple):
    """Where the pictures of a series begin, and how many times as large as they are laid out they are shown."""

    top: float
    factor: float


def scenes_of(slides: Sequence[Slide], foot: str) -> list[Scene]:
    """The pages; the `foot` is what all of them are about."""
    series: dict[str | int, list[Slide]] = {}
    for number, slide in enumerate(slides):
        if slide.picture is not None:
            series.setdefault(slide.series or number, []).append(slide)
    places = {name: _place_of(pages) for name, pages in series.items()}
    largest = max((place.factor for name, place in places.items() if isinstance(name, str)), default=1.0)
    scenes: list[Scene] = []
    for number, slide in enumerate(slides):
        scene = Scene(WIDTH, HEIGHT, frame=False)
        scene.add(Text(MARGIN, HEIGHT - 22, fit(foot, WIDTH - 240, FOOT), FOOT, SOFT))
        scene.add(Text(WIDTH - MARGIN, HEIGHT - 22, f"{number + 1} / {len(slides)}", FOOT, SOFT, "end"))
        if slide.cover or slide.picture is None:
            _title_page(scene, slide)
        else:
            scene.add(Text(MARGIN, 48, fit(slide.title, ROOM, TITLE), TITLE, INK, bold=True))
            _lines(scene, slide.said, SAID_TOP, MOST_SAID)
        if slide.picture is not None:
            place = places[slide.series or number]
            _show(scene, slide, place, largest / place.factor if slide.series else 1.0)
        scenes.append(scene)
    return scenes


def _place_of(pages: Sequence[Slide]) -> _Place:
    """Below the words of every page of a series, and as large as there is room for the highest of their pictures."""
    top = max(_title_page(None, page) if page.cover else _said_bottom(page) for page in pages)
    room, factor = (
        HEIGHT - FOOT_ROOM - top,
        1.4 if pages[0].cover else 1.7 if pages[0].series else 2.2,
    )  # boxes of a series need room
    for _ in range(2):  # where a picture is laid out wider, its words may take fewer lines, and never more
        high = max(_painted(page, factor, 1.0, room).scene.height for page in pages)
        factor = min(factor, room / high)
    return _Place(top, factor)


def _painted(slide: Slide, factor: float, beside: float, room: float) -> Picture:
    assert slide.picture is not None, "a page with a picture"
    return slide.picture((ROOM - MARGIN if slide.cover else ROOM) / factor, room / factor, beside)


def _show(scene: Scene, slide: Slide, place: _Place, beside: float) -> None:
    """Puts a picture in its place; at the foot of a cover."""
    room = HEIGHT - FOOT_ROOM - place.top
    picture = _painted(slide, place.factor, beside, room)
    top = HEIGHT - FOOT_ROOM - picture.scene.height * place.factor if slide.cover else place.top
    left = MARGIN if not slide.cover else 1.5 * MARGIN
    if not slide.cover:
        scene.add(Poly(((MARGIN, place.top), (WIDTH - MARGIN, place.top)), stroke=EDGE))
    scene.add(*(moved(mark, left, top, place.factor) for mark in picture.scene.marks))


def _said_bottom(slide: Slide) -> float:
    return _lines(None, slide.said, SAID_TOP, MOST_SAID) - 6


def _title_page(scene: Scene | None, slide: Slide) -> float:
    """A large title with its lines; returns where they end."""
    scene = scene or Scene(WIDTH, HEIGHT)
    y = 210.0 if len(slide.said) < MOST_LISTED // 2 else 110.0
    for line in wrapped(slide.title, WIDTH - 3 * MARGIN, LARGE)[:2]:
        scene.add(Text(1.5 * MARGIN, y, fit(line, WIDTH - 3 * MARGIN, LARGE), LARGE, INK, bold=True))
        y += LARGE * 1.25
    scene.add(Rect(1.5 * MARGIN, y - 18, 120, 5, ACCENT))
    return _lines(scene, slide.said, y + 30, MOST_LISTED, 1.5 * MARGIN)


def _lines(scene: Scene | None, said: Sequence[str], y: float, most: int, left: float = MARGIN) -> float:
    """Writes lines, and of too many the first ones; returns where they end."""
    room = WIDTH - 2 * left
    lines = [fit(line, room, SAID) for text in said for line in wrapped(text, room, SAID)]
    if len(lines) > most:
        lines[most - 1 :] = [fit(f"{lines[most - 1]} …", room, SAID)]
    for line in lines:
        if scene is not None:
            scene.add(Text(left, y, line, SAID, INK))
        y += SAID * 1.42
    return y
