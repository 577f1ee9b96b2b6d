"""What an output of a notebook holds: the SVG inside the image, the data inside a page."""

import html
import json
import re
from typing import Any
from urllib.parse import unquote

__all__ = ["data_of", "drawn"]


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


def data_of(html: str) -> dict[str, Any]:
    """The data inside a page."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
