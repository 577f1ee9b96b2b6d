"""Slides: one picture a page in the format of a screen, with a title and a line or two, to be read from the last row.

A picture is painted as narrow as it fits, and then made larger: so its letters are as large as the page allows. Pages
of one series are there to be flipped through: their pictures have one scale and one place, and those of all series of a
file one time axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import ACCENT, EDGE, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Poly, Rect, Scene, Text, fit, moved, wrapped

__all__ = ["Slide", "scenes_of"]

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
LARGEST: Final = 2.2
"""How many times as large as it was laid out a picture is made at most: on a page by itself, FLIPPED in a series,
whose boxes need room for their labels, and KEY what stands at the foot of a cover."""
FLIPPED: Final = 1.7
KEY: Final = 1.4
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
    room, factor = HEIGHT - FOOT_ROOM - top, KEY if pages[0].cover else FLIPPED if pages[0].series else LARGEST
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
