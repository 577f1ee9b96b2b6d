"""Slides: one picture a page in the format of a screen, with a title and a line or two, to be read from the last row.

A picture is painted as narrow as it fits, and then made larger: so its letters are as large as the page allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import ACCENT, EDGE, INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Poly, Rect, Scene, Text, fit, moved, wrapped

__all__ = ["Slide", "scene_of"]

WIDTH: Final = 1280
HEIGHT: Final = 720
MARGIN: Final = 44
TITLE, LARGE, SAID, FOOT = 38, 56, 23, 15
"""Sizes of letters: of a title, of that of a title page, of what is said below it, and of the foot."""
MOST_SAID: Final = 4
"""Lines that are said above a picture."""
MOST_LISTED: Final = 14
"""Lines of a page without a picture."""
WIDTHS: Final = (480, 540, 600, 680, 760, 840, 960, 1100)
"""Pixels that a picture may be laid out for, before it is made as large as its page."""


class Slide(NamedTuple):
    """A page. `picture` gives what is shown at a width; without one the page is a title and lines of text."""

    title: str
    said: Sequence[str] = ()
    picture: Callable[[float], Picture] | None = None
    narrowest: float = WIDTHS[0]


def scene_of(slide: Slide, number: int, count: int, foot: str) -> Scene:
    """The page with this number, of so many; the `foot` is what all of them are about."""
    scene = Scene(WIDTH, HEIGHT)
    scene.add(Text(MARGIN, HEIGHT - 22, fit(foot, WIDTH - 240, FOOT), FOOT, SOFT))
    scene.add(Text(WIDTH - MARGIN, HEIGHT - 22, f"{number} / {count}", FOOT, SOFT, "end"))
    if slide.picture is None:
        _title_page(scene, slide)
        return scene
    scene.add(Text(MARGIN, 48, fit(slide.title, WIDTH - 2 * MARGIN, TITLE), TITLE, INK, bold=True))
    y = _lines(scene, slide.said, 92, MOST_SAID)
    top, bottom = y - 6, HEIGHT - 44
    _place(scene, _largest(slide, WIDTH - 2 * MARGIN, bottom - top), top, bottom)
    return scene


def _title_page(scene: Scene, slide: Slide) -> None:
    y = 210.0 if len(slide.said) < MOST_LISTED // 2 else 110.0
    for line in wrapped(slide.title, WIDTH - 3 * MARGIN, LARGE)[:2]:
        scene.add(Text(1.5 * MARGIN, y, fit(line, WIDTH - 3 * MARGIN, LARGE), LARGE, INK, bold=True))
        y += LARGE * 1.25
    scene.add(Rect(1.5 * MARGIN, y - 18, 120, 5, ACCENT))
    _lines(scene, slide.said, y + 30, MOST_LISTED, 1.5 * MARGIN)


def _lines(scene: Scene, said: Sequence[str], y: float, most: int, left: float = MARGIN) -> float:
    room = WIDTH - 2 * left
    lines = [fit(line, room, SAID) for text in said for line in wrapped(text, room, SAID)]
    if len(lines) > most:
        lines[most - 1 :] = [fit(f"{lines[most - 1]} …", room, SAID)]
    for line in lines:
        scene.add(Text(left, y, line, SAID, INK))
        y += SAID * 1.42
    return y


def _largest(slide: Slide, width: float, height: float) -> tuple[Picture, float]:
    """The picture at the width at which it can be made largest, and how many times as large."""
    assert slide.picture is not None, "a page with a picture"
    best: tuple[Picture, float] | None = None
    for wide in WIDTHS:
        if wide < slide.narrowest:
            continue
        picture = slide.picture(wide)
        factor = min(width / picture.scene.width, height / picture.scene.height)
        if best is None or factor >= best[1] * 0.999:
            best = picture, factor
        if width / picture.scene.width <= height / picture.scene.height:
            break  # it is as wide as the page: a wider one would only be smaller
    assert best is not None, "there is a width for every picture"
    return best


def _place(scene: Scene, found: tuple[Picture, float], top: float, bottom: float) -> None:
    """Puts a picture in the middle of what room there is."""
    picture, factor = found
    wide, high = picture.scene.width * factor, picture.scene.height * factor
    x, y = (WIDTH - wide) / 2, top + (bottom - top - high) / 2
    scene.add(Poly(((MARGIN, top), (WIDTH - MARGIN, top)), stroke=EDGE))
    scene.add(*(moved(mark, x, y, factor) for mark in picture.scene.marks))
