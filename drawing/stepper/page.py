"""The page as text: the template with styles, scripts and data inside (see `drawing.canvas.frame`)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from drawing.canvas.frame import document, json_in_html, variables
from drawing.stepper.theme import kinds

__all__ = ["json_in_html", "page"]

SCRIPTS: Final = ("run.js", "timeline.js", "overlay.js", "stores.js", "details.js", "app.js", "controls.js")


def page(data: dict[str, Any]) -> str:
    """A whole HTML document about the data."""
    return document(_read("template.html"), variables(kinds()) + _read("stepper.css"), _script(), data)


@cache
def _script() -> str:
    return "\n".join(_read(name) for name in SCRIPTS)


@cache
def _read(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text("utf-8")
