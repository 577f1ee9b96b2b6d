"""A Scene: a flat list of rectangles, polygons and texts in pixels, written as SVG with its style sheet.

Every picture of this package is one Scene. It is plain data, so tests can look at it, and it is written with string
formatting, which is what makes pictures of many thousand boxes quick. Everything that may come from outside (source
lines, names, Trace files) passes through `escape`; nothing else is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple, cast
from zlib import crc32

from drawing.canvas.palette import EDGE, INK, PAPER, night

DARK_PAGES: Final = (
    "[data-jp-theme-light=false]",  # JupyterLab, and what nbconvert makes of it
    ".vscode-dark",
    ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    "[theme=dark]",  # Colab
)


def sheet(fills: Iterable[str], strokes: Iterable[str], titles: bool) -> tuple[str, str]:
    """Return the class of a picture with these colours, with or without titles, and its style sheet."""
    rules = "".join(
        f'[{attribute}="{day}"]{{{attribute}:light-dark({day},{dark})}}'
        for attribute, colours in (("fill", fills), ("stroke", strokes))
        for day, dark in sorted({str(colour): night(colour) for colour in colours}.items())
        if day != dark
    )
    rules += "*{pointer-events:none}:has(>title){pointer-events:auto}" if titles else ""
    name = f"p{crc32(rules.encode()):08x}"
    schemes = f"svg:root .{name}{{color-scheme:light dark}}:is({','.join(DARK_PAGES)}) .{name}{{color-scheme:dark}}"
    return name, f"@supports(color:light-dark(red,red)){{{schemes}.{name}{{{rules}}}}}"


TEXT: Final = 12
"""The size of text in a picture of 840 pixels. Only titles are larger, and only labels are SMALL: those
of an axis, and those that have no more room."""
SMALL: Final = 10

FONT: Final = "Helvetica,Arial,'Liberation Sans',sans-serif"
_FORBIDDEN: Final = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF], "�")
_ESCAPED: Final = str.maketrans({**_FORBIDDEN, "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_PLAIN: Final = re.compile(r"[\n !#-%'-;=?-~]*").fullmatch  # as most titles are: translating takes ten times as long


class Rect(NamedTuple):
    """A rectangle. `title` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    line: float = 1
    dash: str = ""
    radius: float = 0
    title: str = ""


class Poly(NamedTuple):
    """A line through points, or a polygon where it is filled."""

    points: Sequence[tuple[float, float]]
    fill: str = "none"
    stroke: str = "none"
    line: float = 1
    dash: str = ""
    title: str = ""


class Text(NamedTuple):
    """A line of text whose middle is at height y. `turned` text reads upwards."""

    x: float
    y: float
    text: str
    size: float = TEXT
    fill: str = INK
    anchor: str = "start"
    bold: bool = False
    turned: bool = False


class Link(NamedTuple):
    """A place in a picture that leads somewhere when it is clicked, such as to another notebook. `words` say where."""

    x: float
    y: float
    width: float
    height: float
    href: str
    words: str


Mark = Rect | Poly | Text


class Scene:
    """The marks of a picture, in painting order, on paper of a size in pixels; or on its background, where it has no
    `paper` of its own. A `frame` with round corners goes around the paper."""

    def __init__(
        self, width: float, height: float, marks: Iterable[Mark] = (), paper: bool = True, frame: bool = True
    ) -> None:
        self.width, self.height, self.paper, self.frame = width, height, paper, frame
        self.marks: list[Mark] = list(marks)

    def add(self, *marks: Mark) -> None:
        """Paint more marks."""
        self.marks.extend(marks)

    def paragraph(
        self, left: float, y: float, text: str, room: float, step: float, fill: str = INK, bold: bool = False
    ) -> float:
        """Paint text on as many lines as it needs, the middle of the first at height y; return that of the next."""
        for line in wrapped(text, room, TEXT):
            self.add(Text(left, y, line, TEXT, fill, bold=bold))
            y += step
        return y

    def fragment(self, line: float = 1, night: bool = True) -> str:
        """Return one <g> element with everything in it. `line` scales the width of all lines."""
        paper = Rect(0, 0, self.width, self.height, PAPER)
        if self.frame:
            paper = Rect(0.5, 0.5, self.width - 1, self.height - 1, PAPER, EDGE, radius=6)
        marks = [paper, *self.marks] if self.paper else self.marks
        look = f'<g fill="none" stroke="none" stroke-width="1" fill-opacity="1" stroke-opacity="1" font-family="{FONT}"'
        look += f' font-size="{TEXT}"'
        if night:
            shapes = [mark for mark in marks if not isinstance(mark, Text)]
            titles = any(mark.title for mark in shapes)
            name, style = sheet({mark.fill for mark in marks}, {mark.stroke for mark in shapes}, titles)
            look += f' class="{name}"><style>{style}</style>'
        return "".join([look, "" if night else ">", *_write(marks, line), "</g>"])

    def svg(
        self, height: float | None = None, width: float | None = None, line: float = 1,
        label: str = "", night: bool = True,
    ) -> str:  # fmt: skip
        """Return the whole SVG document. If only one size is given, the other follows. `label` is read aloud; without
        it, the surrounding frame provides one, and the width.

        Without `night` it is for light paper only, and has no style sheet that a simple renderer could trip over.
        """
        if width is None:
            width = self.width if height is None else height * self.width / self.height
        height = width * self.height / self.width if height is None else height
        size = f'width="{num(width)}" height="{num(height)}" viewBox="0 0 {num(self.width)} {num(self.height)}"'
        if label:  # where a page holds it itself it shrinks with the page; in an <img> its size counts
            size += f' style="max-width:100%;height:auto" aria-label="{escape(label)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return f"{head}{self.fragment(line, night)}</svg>\n"


def moved(mark: Mark, dx: float, dy: float) -> Mark:
    """Return a mark somewhere else."""
    if isinstance(mark, Poly):
        return mark._replace(points=[(x + dx, y + dy) for x, y in mark.points])
    return mark._make((mark.x + dx, mark.y + dy, *mark[2:]))  # half the time of _replace


@lru_cache(maxsize=8192)
def num(value: float) -> str:
    """Return a number with at most one decimal, as short as possible."""
    short = f"{value:.1f}"
    if short[-2:] != ".0":
        return short
    return "0" if short == "-0.0" else short[:-2]


def escape(text: str) -> str:
    """Return text that is safe in XML, whatever its source. Characters that XML does not allow become a mark."""
    return text if _PLAIN(text) else text.translate(_ESCAPED)


@lru_cache(maxsize=8192)
def text_width(text: str, size: float) -> float:
    """Return about how wide a text is in pixels: no font is used, so that pictures are the same everywhere."""
    narrow = sum(text.count(letter) for letter in " .,:;'|()[]iljtfr-")
    wide = sum(letter.isupper() or letter in "mw%" for letter in text)
    return size * (0.57 * (len(text) - narrow) + 0.33 * narrow + 0.13 * wide)


def fit(text: str, room: float, size: float) -> str:
    """Return the text, or as much of its beginning as there is room for."""
    if text_width(text, size) <= room:
        return text
    keep = len(text)
    while keep and text_width(text[:keep], size) > room - size:
        keep -= 1
    return text[:keep].rstrip() + "…"


def fitting(room: float, *ways: str, size: float = TEXT) -> str:
    """Return the first of some words that fits, else the last of them."""
    return next((words for words in ways if text_width(words, size) <= room), ways[-1])


def wrapped(text: str, room: float, size: float) -> list[str]:
    """Return a text in lines that fit, broken at spaces."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def look_of(mark: Mark) -> tuple[object, ...]:
    """Return the fields that marks of one look share: those that `_style` writes."""
    return mark[4:8] if isinstance(mark, Rect) else mark[3:7] if isinstance(mark, Text) else mark[1:5]


def _style(mark: Mark, line: float) -> str:
    if isinstance(mark, Text):
        bold = ' font-weight="bold"' if mark.bold else ""
        anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
        size = "" if mark.size == TEXT else f' font-size="{num(mark.size)}"'
        return f'{size} fill="{mark.fill}"{anchor}{bold}'
    fill = "" if mark.fill == "none" else f' fill="{mark.fill}"'
    if mark.stroke == "none":
        return fill
    dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ""
    thick = mark.line * line
    return f'{fill} stroke="{mark.stroke}"{dash}' + ("" if thick == 1 else f' stroke-width="{thick:.3g}"')


def _write(marks: Iterable[Mark], line: float) -> Iterator[str]:
    """Yield marks as SVG. Consecutive marks of one look share a group, and of these, marks with neither a title nor a
    border around a fill even share a path: half the bytes of a large picture."""
    for _, run in groupby(marks, key=look_of):
        same = [*run]
        style = _style(same[0], line)
        if len(same) > 1 and all(map(_joins, same)):
            yield f'<path{style} d="{"".join(map(_outline, cast("list[Rect | Poly]", same)))}"/>'
        elif len(same) == 1:
            yield _element(same[0], style)
        else:
            yield f"<g{style}>"
            yield from map(_element, same)
            yield "</g>"


def _joins(mark: Mark) -> bool:
    """Check if a mark may be a part of a path: a filled polygon may run the other way round than one below it, and
    then leaves a hole."""
    if isinstance(mark, Rect):
        return not (mark.title or mark.radius or (mark.stroke != "none" and mark.fill != "none"))
    return isinstance(mark, Poly) and mark.fill == "none" and not mark.title


def _element(mark: Mark, style: str = "") -> str:
    if isinstance(mark, Text):
        if mark.turned:
            place = f'transform="translate({num(mark.x + 0.36 * mark.size)} {num(mark.y)})rotate(-90)"'
        else:
            place = f'x="{num(mark.x)}" y="{num(mark.y + 0.36 * mark.size)}"'
        return f"<text{style} {place}>{escape(mark.text)}</text>"
    if isinstance(mark, Rect) and mark.radius:
        x, y, width, height = (num(value) for value in mark[:4])
        tag, shape = "rect", f'x="{x}" y="{y}" width="{width}" height="{height}" rx="{num(mark.radius)}"'
    else:
        tag, shape = "path", f'd="{_outline(mark)}"'
    if mark.title:
        return f"<{tag}{style} {shape}><title>{escape(mark.title)}</title></{tag}>"
    return f"<{tag}{style} {shape}/>"


@lru_cache(maxsize=4096)
def _tenths(count: int) -> str:
    return num(count / 10)


def _outline(mark: Rect | Poly) -> str:
    """Return the data of a path. A <rect> takes half as many bytes more; a step of a line is written as its distance,
    and a level or upright one, as in memory curves, as one number."""
    if isinstance(mark, Rect):
        across, closed = num(mark.width), "" if mark.stroke == "none" else "z"
        return f"M{num(mark.x)} {num(mark.y)}h{across}v{num(mark.height)}h-{across}{closed}"
    (x, y), *rest = [(round(10 * x), round(10 * y)) for x, y in mark.points]
    parts = [f"M{num(x / 10)} {num(y / 10)}"]
    for next_x, next_y in rest:
        dx, dy = next_x - x, next_y - y
        if dx and dy:
            parts.append(f"l{_tenths(dx)} {_tenths(dy)}")
        elif dx or dy:
            parts.append(f"h{_tenths(dx)}" if dx else f"v{_tenths(dy)}")
        x, y = next_x, next_y
    return "".join(parts) + ("" if mark.fill == "none" else "Z")


def hatch(
    x: float, y: float, width: float, height: float, stroke: str, falling: bool = False, line: float = 0.7
) -> Iterator[Poly]:
    """Yield slanted lines over a rectangle, as one line that goes to and fro."""
    points: list[tuple[float, float]] = []
    offset, up = 6.0, True
    while offset < width + height:
        # The line on which dx + dy = offset, dx from the left and dy from the bottom, cut off at the edges.
        low = (min(offset, width), max(0.0, offset - width))
        high = (max(0.0, offset - height), min(offset, height))
        for dx, dy in (low, high) if up else (high, low):
            points.append((x + (dx if falling else width - dx), y + height - dy))
        offset, up = offset + 7, not up
    if len(points) > 1:
        yield Poly(points, stroke=stroke, line=line)
