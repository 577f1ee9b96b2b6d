"""The colours of all pictures, and the few words of colour arithmetic they need.

Layers are a ramp that also orders by lightness (viridis, without its two ends), so that it survives colour blindness
and a grey printer; forward and backward differ by lightness and border, never by hue alone. Every picture brings its
own light paper, so that it reads the same in light and in dark themes.
"""

from __future__ import annotations

from functools import cache
from typing import Final

__all__ = ["KINDS", "OPERATIONS", "ink_on", "layer_colour", "mix"]

PAPER: Final = "#ffffff"
EDGE: Final = "#d7d7d2"
INK: Final = "#22252a"
SOFT: Final = "#62666d"
GRID: Final = "#e4e4e0"
TRACK: Final = "#f4f4f1"
ALARM: Final = "#b3261e"
ALARM_PALE: Final = "#fbe6e4"
GOLD: Final = "#e3a72f"
GOOD: Final = "#2f8f6b"

KINDS: Final = {
    "weight": "#4a6fa5",
    "optimizer state": "#9db8d9",
    "weight gradient": "#62306b",
    "activation": "#e0a526",
    "activation gradient": "#cf5f45",
}
"""The five kinds of value, in the order in which memory is stacked: what stays lies at the bottom."""

OPERATIONS: Final = {
    "update": ("#f6d98a", "#a87b12"),
    "loss": ("#22252a", "#22252a"),
    "collective": ("#e3e9f2", "#6f819c"),
    "pass_to": ("#8a94a3", "#5d6673"),
    "receive": ("#c9d0d9", "#5d6673"),
    "wait": ("#e9e8e3", "none"),
    "pending": (ALARM_PALE, ALARM),
    "failed": (ALARM, ALARM),
    "other": ("#e6dff0", "#7a6a94"),
}
"""Fill and border of what is not forward or backward, which take their colours from the layer."""

_RAMP: Final = (
    "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#b5da2c",
)  # fmt: skip


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@cache
def mix(first: str, second: str, share: float) -> str:
    """The colour that has `share` of `second` in it."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


@cache
def layer_colour(layer: int, layers: int) -> str:
    """The colour of a layer, dark for the first and light for the last; numbers out of range take the nearest."""
    if layers <= 1:
        return _RAMP[2]
    reach = min(1.0, 0.4 + 0.1 * layers)  # few layers need no loud colours to be told apart
    place = min(max(layer / (layers - 1), 0.0), 1.0) * reach * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    return mix(_RAMP[low], _RAMP[low + 1], place - low)


@cache
def ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = ((part / 255) ** 2.2 for part in _rgb(fill))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3 else INK
