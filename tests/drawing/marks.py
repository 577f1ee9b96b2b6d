"""What is on a picture: its marks by kind and looks, its words, where their letters are."""

import xml.etree.ElementTree as ET
from itertools import islice, pairwise, takewhile
from typing import Any, TypeVar

from drawing import Picture, picture_of
from drawing.canvas.scene import Mark, Poly, Rect, Scene, Text, text_width

__all__ = ["apart", "cards", "corners", "on_paper", "place", "polys", "rects", "texts", "written"]

M = TypeVar("M", Text, Rect, Poly)


def _scene(thing: Any) -> Scene:
    """Of a scene, of a picture, and of whatever has a picture."""
    picture = thing if isinstance(thing, Picture | Scene) else picture_of(thing)
    return picture if isinstance(picture, Scene) else picture.scene


def _marks(thing: Any, kind: type[M], looks: dict[str, Any]) -> list[M]:
    found = [mark for mark in _scene(thing).marks if isinstance(mark, kind)]
    return [mark for mark in found if all(getattr(mark, name) == value for name, value in looks.items())]


def rects(thing: Any, **looks: Any) -> list[Rect]:
    """The rectangles with these looks: `rects(picture, fill=MINE)`."""
    return _marks(thing, Rect, looks)


def polys(thing: Any, **looks: Any) -> list[Poly]:
    return _marks(thing, Poly, looks)


def written(thing: Any, **looks: Any) -> list[Text]:
    return _marks(thing, Text, looks)


def texts(thing: Any, **looks: Any) -> list[str]:
    return [mark.text for mark in written(thing, **looks)]


def cards(thing: Any, word: str = "rank") -> dict[int, Rect]:
    """The cards of a mesh by the number that is written on them."""
    return {
        int(words.text.removeprefix(f"{word} ")): card
        for card, words in pairwise(_scene(thing).marks)
        if isinstance(card, Rect) and card.radius == 6 and isinstance(words, Text)
    }


def place(text: Text) -> tuple[float, float, float, float]:
    """About where the letters are: fonts are narrower than the pictures assume, and a line is lower than its size."""
    width, height = 0.9 * text_width(text.text, text.size), 0.7 * text.size
    if text.turned:
        return text.x - height / 2, text.y - width / 2, text.x + height / 2, text.y + width / 2
    left = text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * width
    return left, text.y - height / 2, left + width, text.y + height / 2


def corners(mark: Mark) -> list[tuple[float, float]]:
    if isinstance(mark, Poly):
        return list(mark.points)
    if isinstance(mark, Rect):
        return [(mark.x, mark.y), (mark.x + mark.width, mark.y + mark.height)]
    left, top, right, bottom = place(mark)
    return [(left, top), (right, bottom)]


def fits(thing: Any, *plates: tuple[float, float]) -> bool:
    """Whether it is valid XML, all of it is on the paper, and no words lie on others but on `plates`."""
    ET.fromstring(_scene(thing).svg())
    return on_paper(thing) and apart([text for text in written(thing) if (text.x, text.y) not in plates])


def on_paper(thing: Any) -> bool:
    """Whether every mark is; a mark that is not is printed."""
    scene = _scene(thing)
    found = [
        mark
        for mark in scene.marks
        if not all(-1 <= x <= scene.width + 1 and -1 <= y <= scene.height + 1 for x, y in corners(mark))
    ]
    print(*found, sep="\n")
    return not found


def apart(found: list[Text]) -> bool:
    """Whether no words lie on others; those that do are printed."""
    placed = sorted(((place(mark), mark) for mark in found), key=lambda pair: pair[0][1])
    lying: list[tuple[Text, Text]] = []
    for number, ((left, _, right, bottom), mark) in enumerate(placed):
        near = takewhile(lambda pair, end=bottom: pair[0][1] < end, islice(placed, number + 1, None))
        lying += [(mark, other) for where, other in near if where[0] < right and left < where[2]]
    print(*lying, sep="\n")
    return not lying
