"""Picture: a Scene as a chalk diagram. One primitive to chalk, one image to a notebook.

It composes with chalk's vcat, hcat, pad, scale and the rest. `chalk.set_svg_height` and `set_svg_draw_height` apply
to it; as long as nobody has called the first, a picture is shown at the size that it was laid out for.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import chalk.core
from chalk.backend.svg import ToSVGShape
from chalk.core import BaseDiagram, Primitive
from chalk.shapes import Shape
from chalk.style import Style
from chalk.transform import P2, Affine, BoundingBox
from chalk.visitor import A, ShapeVisitor

from drawing.canvas import bitmap
from drawing.canvas.notebook import image, linked, width_of_a_cell
from drawing.canvas.scene import Link, Scene, moved
from lib.files import ready

__all__ = ["UNIT", "Canvas", "Picture", "bundle", "on_paper"]

UNIT: Final = 40
"""Pixels of a Scene in one unit of chalk, so that a rectangle(1, 1) is about as high as a row of a timeline."""


class _Unset(int):
    """The number 200, chalk's own height, told apart from a 200 that somebody asked for."""


if chalk.core.SVG_HEIGHT == 200:
    chalk.core.SVG_HEIGHT = _Unset(200)


class Canvas(Shape):
    """A whole Scene as one chalk shape, centred on the origin."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def get_bounding_box(self) -> BoundingBox:
        """Its size in units of chalk."""
        x, y = self.scene.width / 2 / UNIT, self.scene.height / 2 / UNIT
        return BoundingBox([P2(-x, -y), P2(x, y)])

    def accept(self, visitor: ShapeVisitor[A], **kwargs: Any) -> A:
        """Draws itself for chalk's SVG backend."""
        if not isinstance(visitor, ToSVGShape):
            raise NotImplementedError("a picture is drawn as SVG; for PNG and PDF use picture.save('name.png')")
        answer: Any = _Element(self.scene)
        return answer

    def __eq__(self, other: object) -> bool:
        return self is other  # chalk's Shape, a dataclass without fields, finds any two of a kind equal

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return id(self)

    def __repr__(self) -> str:
        return f"<canvas of {self.scene.width:g} x {self.scene.height:g}>"


class _Element:
    """What svgwrite takes for one of its own elements."""

    elementname = "g"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def get_xml(self) -> ET.Element:
        """The Scene as an XML element, in units of chalk."""
        outer = ET.Element("g")
        half = f"translate({-self._scene.width / 2:g},{-self._scene.height / 2:g})"
        outer.set("transform", f"scale({1 / UNIT:g}) {half}")
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
        self.scene = scene
        self.words = words
        self.links = tuple(links)
        """Where it leads when a notebook shows it. A file has none."""

    def svg(
        self, height: float | None = None, width: float | None = None, *, framed: bool = False, night: bool = True
    ) -> str:
        """The picture as an SVG document, in its own size unless another is given.

        `framed`: what it shows, and how wide it is, is said around it. `night`: it is dark where the page around it is.
        """
        draw_height: Any = chalk.core.SVG_DRAW_HEIGHT
        shown = height or (self.scene.height if width is None else width * self.scene.height / self.scene.width)
        line = 1 if draw_height is None else draw_height / shown
        return self.scene.svg(height, width, line, "" if framed else self.words, night)

    def save(self, path: str | Path, scale: float = 2) -> Path:
        """Writes .svg, or .png or .pdf with the package vl-convert-python. `scale` is for bitmaps: pixels a pixel."""
        path = ready(path)
        if path.suffix.lower() == ".svg":
            path.write_text(self.svg(), encoding="utf-8")
        else:
            path.write_bytes(bitmap.convert(self.svg(night=False), path.suffix.lower(), scale))
        return path

    def render_svg(
        self, path: str, height: int | None = None, width: int | None = None, draw_height: int | None = None
    ) -> None:
        """Writes an SVG file, as chalk's diagrams do."""
        shown = height or self.scene.height
        line = 1 if draw_height is None else draw_height / shown
        Path(path).write_text(self.scene.svg(height, width, line, self.words), encoding="utf-8")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        height = chalk.core.SVG_HEIGHT
        natural = isinstance(height, _Unset)
        svg = self.svg(None if natural else height, framed=True)
        style = width_of_a_cell(self.scene.width) if natural else "max-width:100%"
        if not self.links:
            html = image(svg, self.words, style)
        else:
            html = linked(image(svg, self.words, "width:100%"), self.scene, self.links, style)
        return {"text/html": html, "text/plain": self.words}

    def __repr__(self) -> str:
        return self.words


def on_paper(paint: Callable[[float], Picture], width: float, frame: bool, aspect: float | None) -> Picture:
    """A picture with or without a frame around its paper, which is `aspect` times as wide as high, where that is given:
    the picture is painted wider, from `width` on, and stands in the middle where it is still too high or too low."""
    picture = paint(width)
    if aspect is not None:
        for _ in range(3):  # what is wider is often a little lower
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
    """What a notebook shows of any chalk diagram: one picture, and no memory addresses."""
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
    """Whether one of ours is somewhere in a diagram, which then has a size of its own."""
    waiting = [diagram]
    while waiting:
        part = waiting.pop()
        if isinstance(getattr(part, "shape", None), Canvas):
            return True
        waiting.extend(getattr(part, "diagrams", ()))
        waiting.extend([part.diagram] if hasattr(part, "diagram") else [])
    return False
