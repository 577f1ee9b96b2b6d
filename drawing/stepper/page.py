"""The page as text: the template with styles, scripts and data inside. Nothing in the data can become markup or code.

The data is JSON in a block that is never run, with every character escaped that could end it. The page may run its own
script, known by its hash, and nothing else, and may load nothing from anywhere.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from drawing.canvas.palette import PAGE

__all__ = ["json_in_html", "page"]

SCRIPTS: Final = ("run.js", "timeline.js", "overlay.js", "stores.js", "details.js", "app.js", "controls.js")


def page(data: dict[str, Any]) -> str:
    """A whole HTML document about the data."""
    parts = {**_parts(), "data": json_in_html(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("template.html"))


def json_in_html(data: Any) -> str:
    """JSON for the inside of a script element: ASCII, and without the characters that mean something in HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _parts() -> dict[str, str]:
    """What is the same in all pages."""
    script = "\n" + "\n".join(_read(name) for name in SCRIPTS)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    day = "".join(f"--{name}:{colour};" for name, colour in PAGE.items())
    night = "".join(f"--{name}:{colour.night};" for name, colour in PAGE.items())
    style = f":root{{color-scheme:light dark;{day}}}\n"
    style += f"@media (prefers-color-scheme:dark){{:root{{{night}}}}}\n"
    return {"style": style + _read("stepper.css"), "script": script, "hash": f"sha256-{digest}"}


def _read(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text("utf-8")
