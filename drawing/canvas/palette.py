"""The colours of all pictures by day and by night, each with a name, and the few words of colour arithmetic they need.

A colour has its day value, and knows its substitute on dark paper. Layers are a ramp that also orders by
lightness (viridis, without its two ends), so that it survives colour blindness and a grey printer; forward,
backward and its halves differ by lightness and border, never by hue alone. No colour is written down anywhere else.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Final, NamedTuple, Self


class Colour(str):
    """A colour in SVG's notation, by day; `night` replaces it on dark paper."""

    night: str

    def __new__(cls, day: str, night: str = "") -> Self:
        """Make a colour; one that stays the same by night needs no second value."""
        made = super().__new__(cls, day)
        made.night = night or day
        return made


NONE: Final = Colour("none")
PAPER: Final = Colour("#ffffff", "#16181c")
PANEL: Final = Colour("#fafaf8", "#1d2025")
EDGE: Final = Colour("#d7d7d2", "#3a3f47")
INK: Final = Colour("#22252a", "#e9e9e5")
SOFT: Final = Colour("#62666d", "#a3a8b0")
GRID: Final = Colour("#e4e4e0", "#2d3138")
TRACK: Final = Colour("#f4f4f1", "#212429")
ALARM: Final = Colour("#b3261e", "#ff9d94")
ALARM_PALE: Final = Colour("#fbe6e4", "#43211f")
ACCENT: Final = Colour("#3d639b", "#8fb4e6")
ACCENT_INK: Final = Colour("#fffeff", "#16181d")
GOLD: Final = Colour("#e3a72f")
SHINE: Final = Colour("#fff6dc")
WOOD: Final = Colour("#5b4a2e", "#8a7350")
GOOD: Final = Colour("#2f8f6b", "#5cc79e")
ARROW: Final = Colour("#5c6672", "#b4bdc9")
MINE: Final = Colour("#3d4654", "#b9c2d0")
BOUND: Final = Colour("#8a5a00", "#e2b659")

KINDS: Final = {
    "weight": Colour("#4a6fa5", "#6690cc"),
    "optimizer state": Colour("#9db8d9", "#a9c3e3"),
    "weight gradient": Colour("#62306b", "#a76bb3"),
    "activation": Colour("#e0a526", "#dba32b"),
    "activation gradient": Colour("#cf5f45", "#df775e"),
}
"""The five kinds of value, in the stacking order of memory: lasting values at the bottom."""
GUEST: Final = Colour("#d3ddec", "#33435c")  # a weight gathered for a while: hatched in the colour of a weight

PAGE: Final = {
    "paper": PAPER,
    "panel": PANEL,
    "edge": EDGE,
    "ink": INK,
    "soft": SOFT,
    "grid": GRID,
    "track": TRACK,
    "alarm": ALARM,
    "alarm-pale": ALARM_PALE,
    "accent": ACCENT,
    "accent-ink": ACCENT_INK,
    "arrow": ARROW,
}
"""The colours of the page to step through, by the names that its styles use."""

Pair = tuple[Colour, Colour]


class Look(NamedTuple):
    """The meaning of boxes in one colour, in a word for the legend, and their fill and border.

    `layered`: a band below has the colour of the layer.
    """

    words: str
    fill: Colour
    border: Colour
    layered: bool = False

    @property
    def pair(self) -> Pair:
        """Fill and border."""
        return self.fill, self.border


LOOKS: Final = {
    "update": Look("update", Colour("#f6d98a", "#6f5515"), Colour("#a87b12", "#d8ae3c"), layered=True),
    "loss": Look("loss", INK, INK),
    "collective": Look("collective", Colour("#e3e9f2", "#39465c"), Colour("#6f819c", "#8fa3c4"), layered=True),
    "pass_to": Look("send", Colour("#8a94a3"), Colour("#5d6673", "#c0c8d2"), layered=True),
    "receive": Look("receive", Colour("#c9d0d9", "#474e59"), Colour("#5e6673", "#8a94a3"), layered=True),
    "read": Look("read", Colour("#f3dcca", "#4c3525"), Colour("#9a5f33", "#d0986b")),
    "wait": Look("waits", Colour("#efeeea", "#2b2f36"), Colour("#bdbbb3", "#555b65")),
    "other": Look("other", Colour("#e6dff0", "#4d4266"), Colour("#7a6a94", "#a795c9")),
    "pending": Look("never happened", ALARM_PALE, ALARM),
    "failed": Look("failed here", ALARM, ALARM),
}
"""The colours that the rows of operations name, except those of PASSES."""


class Shade(NamedTuple):
    """A pass over a layer, in a word for the legend, in a shade of its layer's colour: the share of paper in its fill,
    and of ink in its border, if it has them. `band`: the share of its height in the full colour, at its bottom, or
    where negative at its top."""

    words: str
    paper: float = 0.0
    ink: float = 0.0
    band: float = 0.0

    def pair(self, own: Colour) -> Pair:
        """Fill and border; `own` is the colour of the layer."""
        return mix(own, PAPER, self.paper), mix(own, INK, self.ink) if self.ink else NONE


PASSES: Final = {
    "forward": Shade("forward"),
    "backward": Shade("backward", 0.78, 0.12),
    "backward_input": Shade("input half of backward (I)", 0.55, 0.3, -0.18),
    "backward_weight": Shade("weight half (W)", 0.92, 0.12, 0.18),
}
"""The colours that rows of operations name for boxes that take theirs from the layer."""

TINTS: Final[dict[str, Pair]] = {
    "fill": (Colour("#e6eef8", "#25344a"), Colour("#7d9cc6", "#6f92c2")),
    "message": (Colour("#fdecd2", "#463416"), Colour("#cf8a2a", "#d0913a")),
    "collective": (Colour("#f4e1ee", "#452b3e"), Colour("#a4598f", "#c27fb0")),
    "stream": (Colour("#e0f0e8", "#1f3a2f"), Colour("#4c9878", "#5aa888")),
    "communication": (Colour("#cfe0ee", "#22394d"), Colour("#2f6f9f", "#65a3d1")),
    "shared": (Colour("#dfe3f5", "#282f4f"), Colour("#5a66b3", "#8f9be0")),
    "room": (Colour("#fbf3cf", "#443c14"), Colour("#a8912b", "#c9b04a")),
    "reader": (Colour("#f6e7da", "#40301f"), Colour("#9a5f33", "#d0986b")),
    "drain": (Colour("#ececea", "#2f3237"), Colour("#9d9b94", "#7f8389")),
    "never": (ALARM_PALE, ALARM),
    "stopped": (ALARM_PALE, ALARM),
    "unknown": (ALARM_PALE, ALARM),
}
"""Fill and hatching of each kind of gap in a review."""

_RAMP: Final = (
    Colour("#482475", "#8560bd"),
    Colour("#414487", "#7479cf"),
    Colour("#355f8d", "#5b8fcb"),
    Colour("#2a788e", "#46a3bd"),
    Colour("#21918c", "#3db4ac"),
    Colour("#22a884", "#41c49c"),
    Colour("#44bf70", "#5fd286"),
    Colour("#7ad151", "#93de6c"),
    Colour("#b5da2c", "#cdea5f"),
)

_INKS: Final = ("#ffffff", INK, "#000000"), ("#ffffff", PAPER.night, "#000000")
"""Inks on colours, by day and by night: the first that is easy enough to read is used."""
READABLE: Final = 4.5  # the contrast that WCAG requires between text and its background

ORIGINS: Final = (
    Colour("#3f73b7", "#6a9bdb"),
    Colour("#e39a35", "#e8a548"),
    Colour("#2f9a7d", "#45b796"),
    Colour("#c0568f", "#d677aa"),
    Colour("#86bfe6", "#a5d2f0"),
    Colour("#d3c04a", "#ddcc60"),
    Colour("#7d5bb0", "#a586d6"),
    Colour("#94765a", "#b3977b"),
)
"""Colours of the first members of a group, for their contributions to a collective."""


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _hex(*parts: float) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def night(colour: str) -> str:
    """Return the colour that replaces another by night."""
    return colour.night if isinstance(colour, Colour) else colour


# Caches use both the day and the night value: two colours that are equal by day may differ by night.
def mix(first: str, second: str, share: float) -> Colour:
    """Return the colour that has `share` of `second` in it. Mixed with PAPER a colour gets paler, with INK stronger."""
    return Colour(_mixed(first, second, share), _mixed(night(first), night(second), share))


@cache
def _mixed(first: str, second: str, share: float) -> str:
    return _hex(*(a + (b - a) * share for a, b in zip(_rgb(first), _rgb(second), strict=True)))


@cache
def layer_colour(layer: int, layers: int) -> Colour:
    """Return the colour of a layer, from dark (the first) to light; numbers out of range take the nearest."""
    reach = min(1.0, 0.4 + 0.1 * layers)  # few layers can be told apart without loud colours
    return _RAMP[2] if layers <= 1 else _along(_RAMP, layer / (layers - 1), reach)


@cache
def origin_colour(member: int, members: int) -> Colour:
    """Return the colour of what a member of a group brings; in a large group neighbours are close in colour."""
    few = members <= len(ORIGINS)
    return ORIGINS[member % len(ORIGINS)] if few else _along(ORIGINS, member / (members - 1), 1.0)


def _along(ramp: tuple[Colour, ...], share: float, reach: float) -> Colour:
    place = min(max(share, 0.0), 1.0) * reach * (len(ramp) - 1)
    low = min(int(place), len(ramp) - 2)
    return mix(ramp[low], ramp[low + 1], place - low)


def fill_and_border(colour: str, own: Colour) -> Pair:
    """Fill and border of boxes of a colour; `own` is that of their layer."""
    return PASSES[colour].pair(own) if colour in PASSES else LOOKS[colour].pair


def band(look: str, gathers: bool = False) -> float:
    """Return the share of a box that is a band in its layer's colour: at its bottom, or negative at its top, as for a
    collective that `gathers`. It tells halves of a backward, and collectives, apart in any light and for everybody."""
    if look in PASSES:
        return PASSES[look].band
    return 0.0 if not LOOKS[look].layered else -0.16 if gathers else 0.1


def passes(found: Collection[str]) -> list[str]:
    """Return the passes for a legend: forward; backward, if it or none of its halves occurs; and halves that occur."""
    halves = [name for name in PASSES if name in found and name not in ("forward", "backward")]
    return ["forward", *(["backward"] if "backward" in found or not halves else []), *halves]


def looks_of(found: Collection[str], own: Colour) -> list[tuple[str, Pair, str]]:
    """Return the rows of a legend of boxes, without forward: name, fill and border, and words of each that occurs."""
    halves = [(name, PASSES[name].pair(own), PASSES[name].words) for name in passes(found)[1:]]
    return halves + [(name, look.pair, look.words) for name, look in LOOKS.items() if name in found]


def ink_on(fill: str) -> Colour:
    """Return an ink that is easy to read on a colour, by day and by night."""
    return _ink(str(fill), night(fill))


@cache
def _ink(fill: str, dark_fill: str) -> Colour:
    day, dark = (
        next((place for place, ink in enumerate(inks) if contrast(ink, on) >= READABLE), 2)
        for inks, on in zip(_INKS, (fill, dark_fill), strict=True)
    )
    red, green, blue = _rgb(_INKS[0][day])  # one step of blue for each, so that no two are the same
    return Colour(_hex(red, green, blue - 1 - dark if day == 0 else blue + 1 + dark), _INKS[1][dark])


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21, as WCAG 2 counts it."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _rgb(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
