"""A picture in a notebook: HTML that is an image everywhere, and becomes part of the page where the page allows it.

An SVG output would be an image for good in JupyterLab: what the pointer should show and what a screen reader should
read is lost in it. SVG as HTML would be a heap of words wherever a notebook is not trusted. So the output is an <img>
with the picture in its address and its words in `alt`, which nobody takes out; once loaded, it puts the picture in its
own place, with the same words and the same width. Where no script may run it stays an image.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drawing.canvas.scene import Link, Scene, escape, num

__all__ = ["image", "linked", "width_of_a_cell"]

NARROWEST: Final = 700
"""Pixels of a picture of 840 in a narrow cell, below which it is scrolled; WIDEST in a wide one."""
WIDEST: Final = 1200
LAID_OUT: Final = 840

START: Final = "data:image/svg+xml,"
BECOME: Final = (
    "let d=document.createElement('div');"
    f"d.innerHTML=decodeURIComponent(this.src.slice({len(START)}));"
    "let s=d.firstChild;"
    "s.setAttribute('aria-label',this.alt);"
    "s.style.cssText=this.style.cssText;"
    "this.replaceWith(s)"
)
_IN_ADDRESS: Final = str.maketrans({"%": "%25", "#": "%23", "\n": "%0A", "\t": "%09", "&": "&amp;", "'": "&#39;"})


def image(svg: str, words: str, style: str = "max-width:100%") -> str:
    """The HTML of an SVG document. `words` say what it shows, `style` how wide it is."""
    address = START + svg.strip().translate(_IN_ADDRESS)
    size = f"display:block;{style};height:auto"
    return f"""<img alt="{escape(words)}" style="{size}" onload="{BECOME}" src='{address}'>"""


def linked(picture: str, scene: Scene, links: Iterable[Link], style: str) -> str:
    """The HTML of a picture with links over it. They are HTML's own, as notebooks follow no others."""
    parts = [f'<div style="position:relative;{style}">{picture}']
    for link in links:
        x, y = 100 * link.x / scene.width, 100 * link.y / scene.height
        width, height = 100 * link.width / scene.width, 100 * link.height / scene.height
        place = f"left:{num(x)}%;top:{num(y)}%;width:{num(width)}%;height:{num(height)}%"
        words = escape(link.words)
        parts.append(f'<a href="{escape(link.href)}" title="{words}" aria-label="{words}"')
        parts.append(f' style="position:absolute;{place}"></a>')
    return "".join([*parts, "</div>"])


def width_of_a_cell(width: float) -> str:
    """The style of a picture that is as wide as its cell, within reason. What is laid out small stays so."""
    if width < NARROWEST:
        return f"width:{num(width)}px;max-width:100%"
    narrowest, widest = (num(width * limit / LAID_OUT) for limit in (NARROWEST, WIDEST))
    return f"width:100%;min-width:{narrowest}px;max-width:{widest}px"
