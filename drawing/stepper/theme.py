"""The colours of the page by day and by night. What a colour means is the same in both, and as in every picture."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import INK, KINDS, LOOKS, PASSES, Colour, fill_and_border, ink_on, layer_colour, mix, passes
from drawing.timeline.boxes import Box
from lib.trace.trace import Event

__all__ = ["kinds", "layer_ramp", "legend", "style"]

RAMP: Final = 12
"""Layers that the legend shows at most."""


def style(box: Box, event: Event, layers: int) -> tuple[str, ...]:
    """How a box looks: fill, border, ink; the stripe in the colour of its layer; fill, border and ink by night."""
    own = layer_colour(event.layer or 0, layers)
    fill, border = fill_and_border(box.look, own)
    stripe = own if box.look in LOOKS and LOOKS[box.look].layered and event.layer is not None else ""
    ink = border if box.look == "pending" else ink_on(fill)
    return fill, border, ink, stripe, fill.night, border.night, ink.night


def legend(layers: int, found: set[tuple[str, bool]]) -> list[list[str]]:
    """Fill and border by day and by night of the operations that occur, and what they mean."""
    own = layer_colour(0, layers)
    shown = [(own, own, "forward (number: batch)")]
    shown += [(*PASSES[name].pair(own), PASSES[name].words) for name in passes({family for family, _ in found})[1:]]
    for family, look in LOOKS.items():
        if (family, False) in found or (family, True) in found:
            shown.append((*look.pair, look.words))
    return [[fill, border, fill.night, border.night, words] for fill, border, words in shown]


def layer_ramp(layers: int) -> list[tuple[int, str, str, str, str]]:
    """Layers with their colour and the ink on it, by day and by night; of many layers some."""
    found: list[tuple[int, str, str, str, str]] = []
    for layer in range(0, layers, max(1, -(-layers // RAMP))):
        fill = layer_colour(layer, layers)
        ink = ink_on(fill)
        found.append((layer, fill, ink, fill.night, ink.night))
    return found


def kinds() -> dict[str, Colour]:
    """The colours of the kinds of value, with the ink on each and its border, by the names that styles use."""
    found: dict[str, Colour] = {}
    for number, colour in enumerate(KINDS.values()):
        found |= {f"kind-{number}": colour, f"kind-{number}-ink": ink_on(colour)}
        found[f"kind-{number}-edge"] = mix(colour, INK, 0.3)
    return found
