"""The page as text: the template with styles, scripts and data inside (see `drawing.canvas.frame`)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from drawing.canvas.frame import asset, document, json_in_html, variables
from drawing.stepper.theme import kinds

__all__ = ["json_in_html", "page"]

SCRIPTS: Final = ("run.js", "timeline.js", "overlay.js", "stores.js", "details.js", "app.js", "controls.js")


def page(data: dict[str, Any]) -> str:
    """A whole HTML document about the data."""
    return document(
        asset(__package__, "template.html"), variables(kinds()) + asset(__package__, "stepper.css"), _script(), data
    )


@cache
def _script() -> str:
    return "\n".join(asset(__package__, name) for name in SCRIPTS)
