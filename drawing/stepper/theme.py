"""The colours of the page by day and by night. What a colour means is the same in both, and as in every picture."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import (
    ALARM,
    ALARM_PALE,
    EDGE,
    GRID,
    INK,
    KINDS,
    OPERATIONS,
    PAPER,
    SOFT,
    TRACK,
    ink_on,
    layer_colour,
    mix,
)
from drawing.timeline.boxes import Box
from drawing.timeline.paint import WORDS, colours
from lib.trace.trace import Event

__all__ = ["DAY", "NIGHT", "kinds", "layer_ramp", "legend", "style"]

DAY: Final = {
    "paper": PAPER,
    "panel": "#fafaf8",
    "edge": EDGE,
    "ink": INK,
    "soft": SOFT,
    "grid": GRID,
    "track": TRACK,
    "alarm": ALARM,
    "alarm-pale": ALARM_PALE,
    "accent": "#3d639b",
    "accent-ink": "#ffffff",
}
NIGHT: Final = {
    "paper": "#16181c",
    "panel": "#1d2025",
    "edge": "#3a3f47",
    "ink": "#e9e9e5",
    "soft": "#a3a8b0",
    "grid": "#2d3138",
    "track": "#212429",
    "alarm": "#ff9d94",
    "alarm-pale": "#43211f",
    "accent": "#8fb4e6",
    "accent-ink": "#16181c",
}
OPERATIONS_BY_NIGHT: Final = {
    "update": ("#6f5515", "#d8ae3c"),
    "loss": (NIGHT["ink"], NIGHT["ink"]),
    "collective": ("#39465c", "#8fa3c4"),
    "pass_to": ("#8a94a3", "#c0c8d2"),
    "receive": ("#474e59", "#8a94a3"),
    "wait": ("#2b2f36", "none"),
    "pending": (NIGHT["alarm-pale"], NIGHT["alarm"]),
    "failed": (NIGHT["alarm"], NIGHT["alarm"]),
    "other": ("#4d4266", "#a795c9"),
}
RAMP: Final = 12
"""Layers that the legend shows at most."""


def style(box: Box, event: Event, layers: int) -> tuple[str, ...]:
    """How a box looks: fill, border, ink; the stripe in the colour of its layer; fill, border and ink by night."""
    fill, border = colours(box, event, layers)
    own = layer_colour(event.layer or 0, layers)
    stripe = ""
    if box.family in ("collective", "pass_to", "receive", "update") and event.layer is not None:
        stripe = own
    ink = border if box.family == "pending" else ink_on(fill)
    dark, edge = _by_night(box.family, own)
    return fill, border, ink, stripe, dark, edge, edge if box.family == "pending" else ink_on(dark)


def _by_night(family: str, own: str) -> tuple[str, str]:
    if family == "forward":
        return own, mix(own, "#ffffff", 0.25)
    if family == "backward":
        return mix(own, NIGHT["paper"], 0.6), mix(own, "#ffffff", 0.35)
    return OPERATIONS_BY_NIGHT[family]


def legend(layers: int, found: set[tuple[str, bool]]) -> list[list[str]]:
    """Fill and border by day and by night of the operations that occur, and what they mean."""
    own = layer_colour(0, layers)
    rows = [[own, own, *_by_night("forward", own), "forward (number: batch)"]]
    pale = [mix(own, "#ffffff", 0.78), mix(own, "#000000", 0.12)]
    rows.append([*pale, *_by_night("backward", own), "backward"])
    for family, words in WORDS.items():
        if (family, False) in found or (family, True) in found:
            rows.append([*OPERATIONS[family], *OPERATIONS_BY_NIGHT[family], words])
    return rows


def layer_ramp(layers: int) -> list[tuple[int, str, str]]:
    """Layers with their colour and the ink on it; of many layers some."""
    shown = range(0, layers, max(1, -(-layers // RAMP)))
    return [(layer, layer_colour(layer, layers), ink_on(layer_colour(layer, layers))) for layer in shown]


def kinds() -> list[tuple[str, str, str, str, str]]:
    """The kinds of value: name, colour, the ink on it, and the border by day and by night."""
    return [
        (name, colour, ink_on(colour), mix(colour, "#000000", 0.3), mix(colour, "#ffffff", 0.3))
        for name, colour in KINDS.items()
    ]
