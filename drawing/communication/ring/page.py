"""The ring as a page: buttons, a slider and the arrow keys go from step to step, and pieces fly to the next rank.

The page is `ring.html` with its style, its script, the picture of what stays the same, and the steps as data.
"""

from __future__ import annotations

from typing import Any, Final

from drawing.canvas.frame import Page, asset, document, variables
from drawing.canvas.palette import ink_on, origin_colour
from drawing.canvas.scene import escape
from drawing.communication.ring.layout import Frame, halfway, way
from drawing.communication.ring.picture import Ring
from drawing.communication.ring.words import phase

__all__ = ["ring_page"]

TOP: Final = 12
AROUND: Final = 165
"""Pixels of the page above and below the picture."""


def ring_page(ring: Ring) -> Page:
    """The page of a ring."""
    frame = ring.frame(TOP)
    picture = ring.background(frame).svg(label=f"The ring: {ring.title}")
    style = variables() + _colours(ring.size) + asset(__package__, "ring.css")
    parts = {"title": escape(ring.title), "picture": picture, "words": escape(ring.words(0))}
    html = document(asset(__package__, "ring.html"), style, asset(__package__, "ring.js"), _data(ring, frame), **parts)
    last = len(ring.steps.steps)
    said = f"<{ring.title}, to step through. {ring.words(0)} {ring.words(last)} {ring.holdings(last)}>"
    return Page(html, said, ring.title, frame.bottom + AROUND)


def _data(ring: Ring, frame: Frame) -> dict[str, Any]:
    """What the script draws: pieces in rows, each as the bits of the members whose contributions are in it."""
    steps: list[dict[str, Any]] = []
    for step, state in enumerate(ring.steps.states):
        hops = ring.steps.steps[step - 1] if step else ()
        steps.append(
            {
                "words": ring.words(step),
                "holdings": ring.holdings(step),
                "middle": phase(ring.steps, step),
                "has": [[_bits(pieces.get(piece, frozenset())) for piece in ring.labels] for pieces in state],
                "hops": [[hop.source, hop.target, ring.rows[hop.piece], _bits(hop.members)] for hop in hops],
            }
        )
    return {
        "labels": [str(label) for label in ring.labels.values()],
        "tiles": frame.tiles,
        "ways": [halfway(way(frame, member)) for member in range(ring.size)],
        "middle": [(x, y + 4) for x, y in ring.inside(frame)],
        "steps": steps,
    }


def _bits(members: frozenset[int]) -> int:
    return sum(1 << member for member in members)


def _colours(members: int) -> str:
    """Styles for what each member contributes, and for the ink on it."""
    day, night = list[str](), list[str]()
    for member in range(members):
        colour = origin_colour(member, members)
        ink = ink_on(colour)
        day.append(f".o{member}{{fill:{colour}}}.i{member}{{fill:{ink}}}")
        night.append(f".o{member}{{fill:{colour.night}}}.i{member}{{fill:{ink.night}}}")
    return f"{''.join(day)}\n@media (prefers-color-scheme:dark){{{''.join(night)}}}\n"
