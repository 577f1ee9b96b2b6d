"""Paints a Scene on a cairo context, for chalk diagrams that contain one and are rendered to PNG by chalk itself."""

from __future__ import annotations

from typing import Any

from drawing.canvas.palette import EDGE, PAPER
from drawing.canvas.scene import Poly, Rect, Scene, Text

__all__ = ["paint"]


def paint(scene: Scene, ctx: Any, scale: float) -> None:
    """Paints everything, centred on the origin. The context is left as it was, with nothing to stroke."""
    ctx.save()
    ctx.scale(scale, scale)
    ctx.translate(-scene.width / 2, -scene.height / 2)
    ctx.select_font_face("sans-serif")
    for mark in (Rect(0.5, 0.5, scene.width - 1, scene.height - 1, PAPER, EDGE), *scene.marks):
        ctx.new_path()
        if isinstance(mark, Text):
            _text(mark, ctx)
            continue
        if isinstance(mark, Rect):
            ctx.rectangle(mark.x, mark.y, mark.width, mark.height)
        else:
            _outline(mark, ctx)
        _fill_and_stroke(mark, ctx)
    ctx.new_path()
    ctx.restore()


def _outline(mark: Poly, ctx: Any) -> None:
    ctx.move_to(*mark.points[0])
    for point in mark.points[1:]:
        ctx.line_to(*point)
    if mark.fill != "none":
        ctx.close_path()


def _fill_and_stroke(mark: Rect | Poly, ctx: Any) -> None:
    if mark.fill != "none":
        _colour(mark.fill, ctx)
        ctx.fill_preserve()
    if mark.stroke != "none":
        _colour(mark.stroke, ctx)
        ctx.set_line_width(mark.line)
        ctx.set_dash([float(part) for part in mark.dash.split()])
        ctx.stroke_preserve()


def _text(mark: Text, ctx: Any) -> None:
    _colour(mark.fill, ctx)
    ctx.set_font_size(mark.size)
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[mark.anchor] * ctx.text_extents(mark.text).width
    ctx.save()
    ctx.translate(mark.x, mark.y)
    if mark.turned:
        ctx.rotate(-1.5707963267948966)
    ctx.move_to(-shift, 0.36 * mark.size)
    ctx.show_text(mark.text)
    ctx.restore()


def _colour(colour: str, ctx: Any) -> None:
    ctx.set_source_rgb(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
