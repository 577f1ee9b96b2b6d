"""The style sheet of a picture: dark where the page around it is, and a file where the reader prefers it.

Marks are written in the colours of the day, which is all that a renderer without style sheets needs. The sheet says for
each colour in the picture what takes its place by night: `light-dark` asks the page for its colour scheme, and those
pages that are dark without saying so are named. Where marks have titles, the pointer goes through all others to them.
Every rule stands below a class that is made of the rules, so nothing leaks out of a picture, and pictures in one page
share a class only where they share all rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from drawing.canvas.palette import night

__all__ = ["DARK_PAGES", "sheet"]

DARK_PAGES: Final = (
    "[data-jp-theme-light=false]",  # JupyterLab, and what nbconvert makes of it
    ".vscode-dark",
    ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    "[theme=dark]",  # Colab
)
POINTED: Final = "*{pointer-events:none}:has(>title){pointer-events:auto}"


def sheet(fills: Iterable[str], strokes: Iterable[str], titles: bool) -> tuple[str, str]:
    """The class of a picture with these colours, with or without titles, and its style sheet."""
    rules = "".join([*_rules("fill", fills), *_rules("stroke", strokes), POINTED if titles else ""])
    name = f"p{crc32(rules.encode()):08x}"
    schemes = f"svg:root .{name}{{color-scheme:light dark}}:is({','.join(DARK_PAGES)}) .{name}{{color-scheme:dark}}"
    return name, f"@supports(color:light-dark(red,red)){{{schemes}.{name}{{{rules}}}}}"


def _rules(attribute: str, colours: Iterable[str]) -> list[str]:
    nights = {str(colour): night(colour) for colour in colours}
    return [
        f'[{attribute}="{day}"]{{{attribute}:light-dark({day},{dark})}}'
        for day, dark in sorted(nights.items())
        if day != dark
    ]
