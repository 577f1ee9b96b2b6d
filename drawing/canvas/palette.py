"""The colours of all pictures, and the few words of colour arithmetic they need.

Layers are a ramp that also orders by lightness (viridis, without its two ends), so that it survives colour blindness
and a grey printer; forward and backward differ by lightness and border, never by hue alone. Every picture brings its
own light paper, so that it reads the same in light and in dark themes.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

__all__ = ["KINDS", "LOOKS", "PAGE", "Look", "fill_and_border", "ink_on", "layer_colour", "mix"]

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

Pair = tuple[str, str]

PAGE: Final[dict[str, Pair]] = {
    "paper": (PAPER, "#16181c"),
    "panel": ("#fafaf8", "#1d2025"),
    "edge": (EDGE, "#3a3f47"),
    "ink": (INK, "#e9e9e5"),
    "soft": (SOFT, "#a3a8b0"),
    "grid": (GRID, "#2d3138"),
    "track": (TRACK, "#212429"),
    "alarm": (ALARM, "#ff9d94"),
    "alarm-pale": (ALARM_PALE, "#43211f"),
    "accent": ("#3d639b", "#8fb4e6"),
    "accent-ink": ("#ffffff", "#16181c"),
}
"""The colours of the page to step through, by day and by night."""
NIGHT: Final = {name: night for name, (_, night) in PAGE.items()}


class Look(NamedTuple):
    """What boxes of one colour mean, in a word for the legend, and their fill and border by day and by night.

    `layered`: a stripe below has the colour of the layer.
    """

    words: str
    day: Pair
    night: Pair
    layered: bool = False


LOOKS: Final = {
    "update": Look("update", ("#f6d98a", "#a87b12"), ("#6f5515", "#d8ae3c"), layered=True),
    "loss": Look("loss", (INK, INK), (NIGHT["ink"], NIGHT["ink"])),
    "collective": Look("collective", ("#e3e9f2", "#6f819c"), ("#39465c", "#8fa3c4"), layered=True),
    "pass_to": Look("send", ("#8a94a3", "#5d6673"), ("#8a94a3", "#c0c8d2"), layered=True),
    "receive": Look("receive", ("#c9d0d9", "#5d6673"), ("#474e59", "#8a94a3"), layered=True),
    "wait": Look("waits", ("#e9e8e3", "none"), ("#2b2f36", "none")),
    "other": Look("other", ("#e6dff0", "#7a6a94"), ("#4d4266", "#a795c9")),
    "pending": Look("never happened", (ALARM_PALE, ALARM), (NIGHT["alarm-pale"], NIGHT["alarm"])),
    "failed": Look("failed here", (ALARM, ALARM), (NIGHT["alarm"], NIGHT["alarm"])),
}
"""The colours that the rows of operations name, but for forward and backward, which take theirs from the layer."""

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


def fill_and_border(colour: str, own: str) -> Pair:
    """Fill and border of boxes of a colour; `own` is that of their layer."""
    if colour == "forward":
        return own, "none"
    if colour == "backward":
        return mix(own, "#ffffff", 0.78), mix(own, "#000000", 0.12)
    return LOOKS[colour].day


def fill_and_border_by_night(colour: str, own: str) -> Pair:
    """The same by night, on dark paper."""
    if colour == "forward":
        return own, mix(own, "#ffffff", 0.25)
    if colour == "backward":
        return mix(own, NIGHT["paper"], 0.6), mix(own, "#ffffff", 0.35)
    return LOOKS[colour].night


@cache
def ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = ((part / 255) ** 2.2 for part in _rgb(fill))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.3 else INK
