"""A Scene as a chalk diagram that notebooks show and files keep, and pages with scripts of their own."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import unescape
from importlib import import_module
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

import chalk.core
from chalk.backend.svg import ToSVGShape
from chalk.core import BaseDiagram, Primitive
from chalk.shapes import Shape
from chalk.style import Style
from chalk.transform import P2, Affine, BoundingBox
from chalk.visitor import A, ShapeVisitor

from drawing.canvas.palette import PAGE, SOFT, Colour
from drawing.canvas.scene import DARK_PAGES, TEXT, Link, Scene, Text, escape, fit, moved, num
from lib.extras import need_extra
from lib.files import ready

UNIT: Final = 40
"""Pixels of a Scene in one unit of chalk, so that a rectangle(1, 1) is about as high as a row of a timeline."""


class _Unset(int):
    """The number 200, chalk's default height, told apart from a 200 that the caller chose."""


if chalk.core.SVG_HEIGHT == 200:
    chalk.core.SVG_HEIGHT = _Unset(200)


class Canvas(Shape):
    """A whole Scene as one chalk shape, centred on the origin."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def get_bounding_box(self) -> BoundingBox:
        """Return its size in units of chalk."""
        x, y = self.scene.width / 2 / UNIT, self.scene.height / 2 / UNIT
        return BoundingBox([P2(-x, -y), P2(x, y)])

    def accept(self, visitor: ShapeVisitor[A], **kwargs: Any) -> A:
        """Draw itself for chalk's SVG backend."""
        if not isinstance(visitor, ToSVGShape):
            raise NotImplementedError("a picture is drawn as SVG; for PNG and PDF use picture.save('name.png')")
        answer: Any = _Element(self.scene)
        return answer

    def __eq__(self, other: object) -> bool:
        return self is other  # chalk's Shape, a dataclass without fields, makes any two of a kind equal

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return id(self)


class _Element:
    """A Scene that svgwrite accepts as one of its own elements."""

    elementname = "g"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def get_xml(self) -> ET.Element:
        half = f"translate({-self._scene.width / 2:g},{-self._scene.height / 2:g})"
        outer = ET.Element("g", transform=f"scale({1 / UNIT:g}) {half}")
        outer.append(ET.fromstring(self._scene.fragment()))
        return outer


class Picture(Primitive):
    """A picture: shown by notebooks, saved with `save`, and a diagram to chalk. `words` say in text what it shows."""

    _repr_svg_: Any = None
    _repr_html_: Any = None

    def __init__(self, scene: Scene, words: str, links: Sequence[Link] = ()) -> None:
        if type(scene) is not Scene or not isinstance(links, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a Picture is made of a Scene; draw(run) makes one of a run; got {scene!r}")
        super().__init__(Canvas(scene), Style.empty(), Affine.identity())
        self.scene, self.words = scene, words
        self.links = tuple(links)  # places that lead elsewhere when a notebook shows the picture; a file has none

    def svg(
        self, height: float | None = None, width: float | None = None, *, framed: bool = False, night: bool = True
    ) -> str:
        """Return the picture as an SVG document, in its own size unless another is given.

        `framed`: a frame around it gives its description and width. `night`: it is dark where the page around it is.
        """
        shown = height or (self.scene.height if width is None else width * self.scene.height / self.scene.width)
        draw_height: Any = chalk.core.SVG_DRAW_HEIGHT
        line = 1 if draw_height is None else draw_height / shown
        return self.scene.svg(height, width, line, "" if framed else self.words, night)

    def save(self, path: str | Path, scale: float = 2) -> Path:
        """Write .svg, or .png or .pdf with the package vl-convert-python. `scale` is for bitmaps: pixels a pixel."""
        path = ready(path)
        if path.suffix.lower() == ".svg":
            path.write_text(self.svg(), encoding="utf-8")
        else:
            path.write_bytes(convert(self.svg(night=False), path.suffix.lower(), scale))
        return path

    def render_svg(
        self, path: str, height: int | None = None, width: int | None = None, draw_height: int | None = None
    ) -> None:
        """Write an SVG file, as chalk's diagrams do."""
        line = 1 if draw_height is None else draw_height / (height or self.scene.height)
        Path(path).write_text(self.scene.svg(height, width, line, self.words), encoding="utf-8")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        height = chalk.core.SVG_HEIGHT
        natural = isinstance(height, _Unset)
        svg = self.svg(None if natural else height, framed=True)
        style, wide = "max-width:100%", self.scene.width
        if natural and wide < NARROWEST:  # a small layout stays small
            style = f"width:{num(wide)}px;max-width:100%"
        elif natural:
            narrowest, widest = (num(wide * limit / 840) for limit in (NARROWEST, WIDEST))
            style = f"width:100%;min-width:{narrowest}px;max-width:{widest}px"
        html = image(svg, self.words, "width:100%" if self.links else style)
        html = linked(html, self.scene, self.links, style) if self.links else html
        return {"text/html": html, "text/plain": self.words}

    def __repr__(self) -> str:
        return self.words


def note(words: str, told: str = "") -> Picture:
    """Return a line of words where there is nothing to draw; `told` describes it, if in other words."""
    return Picture(Scene(360, 46, [Text(180, 23, fit(words, 330, TEXT), TEXT, SOFT, "middle")]), told or words)


def on_paper(paint: Callable[[float], Picture], width: float, frame: bool, aspect: float | None) -> Picture:
    """Return a picture with or without a frame around its paper. With `aspect`, the paper is that many times as wide
    as high: the picture is painted wider, from `width` on, and centred where it is still too high or too low."""
    picture = paint(width)
    if aspect is not None:
        for _ in range(3):  # a wider picture is often a little lower
            wanted = aspect * picture.scene.height
            if wanted <= picture.scene.width + 1:
                break
            picture = paint(wanted)
    given = picture.scene
    wide = max(given.width, (aspect or 0) * given.height)
    high = wide / aspect if aspect is not None else given.height
    dx, dy = (wide - given.width) / 2, (high - given.height) / 2
    return Picture(Scene(wide, high, [moved(mark, dx, dy) for mark in given.marks], frame=frame), picture.words)


def bundle(diagram: BaseDiagram) -> dict[str, str]:
    """Return what a notebook shows of any chalk diagram: one picture, and no memory addresses."""
    if isinstance(diagram, Picture):
        return diagram._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    height = chalk.core.SVG_HEIGHT
    if isinstance(height, _Unset) and _has_picture(diagram):
        height = round(diagram.get_envelope().height * UNIT)
    with TemporaryDirectory() as folder:
        path = Path(folder, "diagram.svg")
        diagram.render_svg(str(path), height, draw_height=chalk.core.SVG_DRAW_HEIGHT)
        svg = path.read_text("utf-8")
    svg = svg[svg.index("<svg") :].replace("<svg", '<svg role="img"', 1)
    return {"text/html": image(svg, "chalk diagram"), "text/plain": "<chalk diagram>"}


def _has_picture(diagram: Any) -> bool:
    """Check if a diagram contains one of our pictures, which gives it a size of its own."""
    parts = [*getattr(diagram, "diagrams", ()), *([diagram.diagram] if hasattr(diagram, "diagram") else [])]
    return isinstance(getattr(diagram, "shape", None), Canvas) or any(map(_has_picture, parts))


def convert(svg: str, suffix: str, scale: float) -> bytes:
    """Return the bytes of a picture in the format of a file suffix. ImportError says what to install."""
    if suffix not in (".png", ".pdf"):
        raise ValueError(f"a picture is saved as .svg, .png or .pdf; got {suffix!r}")
    need_extra("png", "SVG needs nothing; PNG and PDF need", "vl_convert")
    converter = import_module("vl_convert")
    return bytes(converter.svg_to_pdf(svg) if suffix == ".pdf" else converter.svg_to_png(svg, scale=scale))


NARROWEST: Final = 700  # pixels of a picture of 840 in a narrow cell, below which it is scrolled; WIDEST in a wide one
WIDEST: Final = 1200

START: Final = "data:image/svg+xml,"
BECOME: Final = (
    "let d=document.createElement('div'),b=[],t=this.dataset.titles.split('\\n');"
    f"d.innerHTML=decodeURIComponent(this.src.slice({len(START)}));"
    "let s=d.firstChild;"
    "s.setAttribute('aria-label',this.alt);"
    "s.style.cssText=this.style.cssText;"
    "s.querySelectorAll('path,rect').forEach((e,i)=>t[i]&&("
    "b=t[i].split('\\t').map((l,j)=>(b[j]||'').slice(0,l.charCodeAt()-63)+l.slice(1)),"
    "e.append(Object.assign(document.createElementNS(s.namespaceURI,'title'),{textContent:b.join('\\n')}))));"
    "this.replaceWith(s)"
)
_SHAPE: Final = re.compile(r"<(path|rect)([^>]*)(?:(?<=/)>|><title>([^<]*)</title></\1>)")
_IN_ADDRESS: Final = (("%", "%25"), ("#", "%23"), ("\n", "%0A"), ("\t", "%09"), ("&", "&amp;"), ("'", "&#39;"))
"""Characters not allowed in an address in HTML, with substitutes; none of these contains a later character."""


def image(svg: str, words: str, style: str = "max-width:100%") -> str:
    """Return the HTML of an SVG document. `words` say what it shows, `style` how wide it is.

    Inside an <img> nothing has a title, so titles are kept beside it, in an attribute, until it becomes a part of the
    page: inside, they would be a third of the bytes of a timeline.
    """
    shapes, titles = without_titles(svg.strip())
    size = f"display:block;{style};height:auto"
    told = titles.replace("&", "&amp;").replace("'", "&#39;")
    about = f"""alt="{escape(words)}" style="{size}" onload="{BECOME}" data-titles='{told}'"""
    return f"<img {about} src='{_address(shapes)}'>"


def _address(svg: str) -> str:
    """The address of a picture that holds all of it, in single quotes."""
    for letter, told in _IN_ADDRESS:  # str.translate takes forty times as long
        svg = svg.replace(letter, told)
    return START + svg


def without_titles(svg: str) -> tuple[str, str]:
    """Take the titles out of an SVG of ours. They come back in the order of its shapes, a row each, with tabs between
    lines. A line begins with how many letters it shares with that line of the title before: ? is none, @ is one."""
    rows, before = list[str](), list[str]()

    def shape(found: re.Match[str]) -> str:
        nonlocal before
        tag, look, title = found.groups()
        if not title:
            rows.append("")
            return f"<{tag}{look.removesuffix('/')}/>"
        lines = unescape(title).replace("\t", " ").replace("\r", " ").split("\n")
        told: list[str] = []
        for line, last in zip_longest(lines, before[: len(lines)], fillvalue=""):
            same = _shared(line, last[:63]) if last.isascii() else 0  # JavaScript counts other letters otherwise
            told.append(chr(63 + same) + line[same:])
        rows.append("\t".join(told))
        before = lines
        return f"<{tag}{look}/>"

    return _SHAPE.sub(shape, svg), "\n".join(rows).rstrip("\n")


def _shared(line: str, last: str) -> int:
    """Count the letters that two lines share at their start, where the second line is ASCII."""
    # As numbers, by their highest differing bit: letter by letter it takes a tenth of the time of a timeline.
    one, other = line.encode("utf-8", "surrogatepass"), last.encode()
    both = min(len(one), len(other))
    differs = int.from_bytes(one[:both], "big") ^ int.from_bytes(other[:both], "big")
    return both - (differs.bit_length() + 7) // 8


def linked(picture: str, scene: Scene, links: Iterable[Link], style: str) -> str:
    """Return the HTML of a picture with links over it. They are HTML's own, as notebooks follow no others."""
    parts = [f'<div style="position:relative;{style}">{picture}']
    for link in links:
        across, down = 100 / scene.width, 100 / scene.height
        place = f"left:{num(across * link.x)}%;top:{num(down * link.y)}%"
        place += f";width:{num(across * link.width)}%;height:{num(down * link.height)}%"
        words = escape(link.words)
        parts.append(f'<a href="{escape(link.href)}" title="{words}" aria-label="{words}"')
        parts.append(f' style="position:absolute;{place}"></a>')
    return "".join([*parts, "</div>"])


# A page in a frame takes the side of the frame, and the frame that of the notebook around it: dark where pictures are,
# whatever the system prefers. A frame of which nothing is said would follow the system, beside pictures that do not.
THEMES: Final = (
    f"<style>.framed-page{{color-scheme:light}}:is({','.join(DARK_PAGES)}) .framed-page{{color-scheme:dark}}</style>"
)


STILL: Final = "This notebook is not trusted, so this is a still picture. To use the page, run this cell."


class Page:
    """A page that notebooks show and `save` writes. `words` say in text what it shows, and `still` is a picture that
    replaces it in an untrusted notebook, where no page is shown."""

    def __init__(
        self, html: Callable[[], str], words: str, title: str, height: Callable[[], float], still: Callable[[], Picture]
    ) -> None:
        self._html, self._title, self._height, self._still = cache(html), title, height, still
        self.words = words

    def html(self) -> str:
        """Return the whole page: one HTML document that needs nothing else. It is made on first use."""
        return self._html()

    def save(self, path: str | Path) -> Path:
        """Write the page as a file, .html, that any browser opens."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"a page is saved as .html; got {path.suffix!r}")
        ready(path).write_text(self.html(), encoding="utf-8", newline="\n")
        return path

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # In single quotes, since JSON is full of double ones. The frame may run scripts, but is of no origin.
        inside = self.html().replace("&", "&amp;").replace("'", "&#39;")
        style = f"width:100%;height:{round(self._height())}px;border:0;resize:vertical;overflow:auto"
        about = f"class='framed-page' title='{escape(self._title)}' sandbox='allow-scripts' style='{style}'"
        # A trusted notebook runs the handler, which removes the picture; an untrusted one has no handler or frame.
        shapes, _ = without_titles(self._still().svg(framed=True).strip())
        size = f'alt="{escape(self.words)}" style="max-width:100%;height:auto"'
        image = f"<img {size} onload=\"this.parentNode.remove()\" src='{_address(shapes)}'>"
        still = f'<div class="still"><p>{STILL}</p>{image}</div>'
        return {"text/html": f"{THEMES}{still}<iframe {about} srcdoc='{inside}'></iframe>", "text/plain": self.words}

    def __repr__(self) -> str:
        return self.words


def document(template: str, style: str, script: str, data: Any, **parts: str) -> str:
    """Return a template with its style, its script, data for the script, and other parts that are markup already."""
    inside = "\n" + script
    digest = b64encode(sha256(inside.encode()).digest()).decode()
    every = {**parts, "style": style, "script": inside, "hash": f"sha256-{digest}", "data": json_in_html(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: every[found[1]], template)


@cache
def asset(package: str | None, name: str) -> str:
    """Return the text of a template, style or script beside the modules of a package."""
    return files(package or "").joinpath(name).read_text("utf-8")


def variables(more: Mapping[str, Colour] = MappingProxyType({})) -> str:
    """Return the colours of a page, and `more` of its own, by day and by night, by the names that styles use."""
    colours = {**PAGE, **more}
    day = "".join(f"--{name}:{colour};" for name, colour in colours.items())
    night = "".join(f"--{name}:{colour.night};" for name, colour in colours.items())
    return f":root{{color-scheme:light dark;{day}}}\n@media (prefers-color-scheme:dark){{:root{{{night}}}}}\n"


def json_in_html(data: Any) -> str:
    """JSON for the inside of a script element: ASCII, and without the characters that mean something in HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
