"""SVG to PNG and PDF, by the optional package vl-convert-python. The one place that knows it."""

from __future__ import annotations

from importlib import import_module

__all__ = ["convert"]

HINT = "PNG and PDF need the package vl-convert-python: pip install vl-convert-python; SVG needs nothing"


def convert(svg: str, suffix: str, scale: float) -> bytes:
    """The bytes of a picture in the format of a file suffix. ImportError says what to install."""
    if suffix not in (".png", ".pdf"):
        raise ValueError(f"a picture is saved as .svg, .png or .pdf; got {suffix!r}")
    try:
        converter = import_module("vl_convert")
    except ImportError as error:
        raise ImportError(HINT) from error
    if suffix == ".pdf":
        return bytes(converter.svg_to_pdf(svg))
    return bytes(converter.svg_to_png(svg, scale=scale))
