"""Slides as one PDF: the same bytes every time, whoever makes it and whenever."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from drawing.canvas.bitmap import convert
from drawing.comparing.slides import Slide, scene_of
from lib.files import ready

__all__ = ["write_slides"]


def write_slides(slides: Sequence[Slide], foot: str, path: Path) -> None:
    """Writes a PDF with a page for each. ModuleNotFoundError says which package is missing."""
    try:
        from pypdf import PdfReader, PdfWriter  # here and not above: only slides need it
    except ImportError:
        raise ModuleNotFoundError("slides need pypdf, which joins their pages: pip install pypdf") from None
    writer = cast("Any", PdfWriter())
    for number, slide in enumerate(slides, 1):
        svg = scene_of(slide, number, len(slides), foot).svg(night=False)
        (page,) = cast("Any", PdfReader(io.BytesIO(convert(svg, ".pdf", 1)))).pages
        _in_order(page["/Resources"])
        writer.add_page(page)
    writer.metadata = {"/Title": foot}
    found = io.BytesIO()
    writer.write(found)
    ready(path).write_bytes(found.getvalue())


def _in_order(resources: Any) -> None:
    """Puts fonts and such in the order of their names. The converter has them in that of a hash, another one each time,
    and a page is copied in the order in which things are met."""
    for kind in [*resources]:
        found = resources[kind].get_object()
        if not isinstance(found, dict):  # a list, which has an order
            continue
        found = cast("Any", found)
        ordered = sorted(found.items())
        found.clear()
        found.update(ordered)
        for name, _ in ordered if kind == "/XObject" else ():
            if "/Resources" in found[name]:
                _in_order(found[name]["/Resources"])
