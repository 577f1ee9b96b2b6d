"""What an output of a notebook holds: the SVG inside the image."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import unquote

__all__ = ["drawn"]


def drawn(bundle: dict[str, Any]) -> str:
    """The picture of a bundle, which is its HTML and a text, and one picture only."""
    assert sorted(bundle) == ["text/html", "text/plain"]
    found = re.fullmatch(r"<img alt=\"[^\"]*\" style=\"[^\"]*\" onload=\"[^\"]*\" src='([^']*)'>", bundle["text/html"])
    assert found is not None
    kind, _, address = html.unescape(found[1]).partition(",")
    assert kind == "data:image/svg+xml"
    assert "\n" not in address, "a browser takes line breaks out of addresses"
    svg = unquote(address, errors="strict")
    assert svg.count("</svg>") == 1
    return svg
