"""What an output of a notebook holds: the SVG inside the image, the data inside a page."""

import html
import json
import re
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote

from drawing.canvas.scene import escape

__all__ = ["data_of", "drawn"]


def drawn(bundle: dict[str, Any]) -> str:
    """The picture of a bundle, which is its HTML and a text, and one picture only, with its titles back in it."""
    assert sorted(bundle) == ["text/html", "text/plain"]
    about = r"<img alt=\"[^\"]*\" style=\"[^\"]*\" onload=\"[^\"]*\""
    found = re.fullmatch(rf"{about} data-titles='([^']*)' src='([^']*)'>", bundle["text/html"])
    assert found is not None
    kind, _, address = html.unescape(found[2]).partition(",")
    assert kind == "data:image/svg+xml"
    assert "\n" not in address, "a browser takes line breaks out of addresses"
    svg = unquote(address, errors="strict")
    assert svg.count("</svg>") == 1
    assert "<title>" not in svg
    rows, lines = iter(html.unescape(found[1]).split("\n")), list[str]()

    def titled(shape: re.Match[str]) -> str:
        nonlocal lines
        if not (row := next(rows, "")):
            return shape[0]
        parts = zip_longest(row.split("\t"), lines[: row.count("\t") + 1], fillvalue="")
        lines = [last[: ord(line[0]) - 63] + line[1:] for line, last in parts]
        return f"<{shape[1]}{shape[2]}><title>{escape(chr(10).join(lines))}</title></{shape[1]}>"

    return re.sub(r"<(path|rect)([^>]*?)/>", titled, svg)


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
