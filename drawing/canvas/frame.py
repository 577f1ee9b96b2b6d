"""A page with a script of its own, in a notebook or as a file: one HTML document that needs no server and no network.

Nothing in its data can become markup or code: the data is JSON in a block that is never run, with every character
escaped that could end it. The page may run its own script, known by its hash, and nothing else, and may load nothing
from anywhere. In a notebook it stands in a frame that has no origin.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from drawing.canvas.palette import PAGE, Colour
from drawing.canvas.scene import escape
from drawing.canvas.sheet import DARK_PAGES
from lib.files import ready

__all__ = ["Page", "asset", "document", "framed", "json_in_html", "save_page", "variables"]

# A page in a frame takes the side of the frame, and the frame that of the notebook around it: dark where pictures are,
# whatever the system prefers. A frame of which nothing is said would follow the system, beside pictures that do not.
THEMES: Final = (
    f"<style>.framed-page{{color-scheme:light}}:is({','.join(DARK_PAGES)}) .framed-page{{color-scheme:dark}}</style>"
)


class Page:
    """A page that notebooks show and `save` writes. `words` say in text what it shows."""

    def __init__(self, html: str, words: str, title: str, height: float) -> None:
        self._html = html
        self._title = title
        self._height = height
        self.words = words

    def html(self) -> str:
        """The whole page: one HTML document that needs nothing else."""
        return self._html

    def save(self, path: str | Path) -> Path:
        """Writes the page as a file, .html, that any browser opens."""
        return save_page(path, self._html)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": framed(self._html, self._title, self._height), "text/plain": self.words}

    def __repr__(self) -> str:
        return self.words


def save_page(path: str | Path, html: str) -> Path:
    """Writes a page. ValueError where its name is that of something else."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a page is saved as .html; got {path.suffix!r}")
    ready(path).write_text(html, encoding="utf-8", newline="\n")
    return path


def framed(html: str, title: str, height: float) -> str:
    """A page in a frame of its own, as a notebook holds it."""
    # In single quotes, since JSON is full of double ones. The frame may run scripts, but is of no origin.
    inside = html.replace("&", "&amp;").replace("'", "&#39;")
    style = f"width:100%;height:{round(height)}px;border:0;resize:vertical;overflow:auto"
    about = f"class='framed-page' title='{escape(title)}' sandbox='allow-scripts' style='{style}'"
    return f"{THEMES}<iframe {about} srcdoc='{inside}'></iframe>"


def document(template: str, style: str, script: str, data: Any, **parts: str) -> str:
    """A template with its style, its script, data for the script, and other parts that are markup already."""
    inside = "\n" + script
    digest = b64encode(sha256(inside.encode()).digest()).decode()
    every = {**parts, "style": style, "script": inside, "hash": f"sha256-{digest}", "data": json_in_html(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: every[found[1]], template)


@cache
def asset(package: str | None, name: str) -> str:
    """The text of a template, style or script that lies beside the modules of a package."""
    return files(package or "").joinpath(name).read_text("utf-8")


def variables(more: Mapping[str, Colour] = MappingProxyType({})) -> str:
    """The colours of a page, and `more` of its own, by day and by night, by the names that styles use."""
    colours = {**PAGE, **more}
    day = "".join(f"--{name}:{colour};" for name, colour in colours.items())
    night = "".join(f"--{name}:{colour.night};" for name, colour in colours.items())
    return f":root{{color-scheme:light dark;{day}}}\n@media (prefers-color-scheme:dark){{:root{{{night}}}}}\n"


def json_in_html(data: Any) -> str:
    """JSON for the inside of a script element: ASCII, and without the characters that mean something in HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
