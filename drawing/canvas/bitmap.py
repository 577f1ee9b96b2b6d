"""SVG to PNG and PDF, by the optional package vl-convert-python. The one place that knows it."""

from __future__ import annotations

from importlib import import_module

from lib.extras import need_extra

__all__ = ["convert"]


def convert(svg: str, suffix: str, scale: float) -> bytes:
    """The bytes of a picture in the format of a file suffix. ImportError says what to install."""
    if suffix not in (".png", ".pdf"):
        raise ValueError(f"a picture is saved as .svg, .png or .pdf; got {suffix!r}")
    need_extra("png", "SVG needs nothing; PNG and PDF need", "vl_convert")
    converter = import_module("vl_convert")
    if suffix == ".pdf":
        return bytes(converter.svg_to_pdf(svg))
    return bytes(converter.svg_to_png(svg, scale=scale))
