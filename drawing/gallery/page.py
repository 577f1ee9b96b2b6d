"""draw_gallery: schedules of pipelines on one time axis, with four sliders that make them, as a page.

The page is `gallery.html` with its style, its script and the schedules as data: it needs no server and no network.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from drawing.canvas.frame import Page, asset, document, variables
from drawing.canvas.palette import BOUND, GOOD, INK, NONE, PASSES, Colour, ink_on, layer_colour, mix
from drawing.canvas.scene import escape
from lib.errors.wording import counted
from lib.values.operations import OPERATIONS

__all__ = ["draw_gallery"]

PASS_OF: Final = {OPERATIONS[name].letter or OPERATIONS[name].word: name for name in PASSES}
"""The colours of the passes, by the letters of actions."""
ROW, REST = 30, 640
"""How high a page is in pixels: each rank of the timeline, and all the rest."""


class Shown(Protocol):
    """What has schedules to show, as `lib.schedules.gallery` makes them."""

    def to_json(self) -> dict[str, Any]: ...


def draw_gallery(gallery: Shown) -> Page:
    """The page of a gallery, with what is proved of its size. TypeError for what is none."""
    if not hasattr(gallery, "to_json"):
        raise TypeError(f"draw_gallery takes what gallery(ranks=4, batches=8) gives; got {type(gallery).__name__}")
    data = gallery.to_json()
    data["shades"] = max(piece["chunks"] for piece in data["pieces"])
    title = f"Pipelines of {counted(data['ranks'], 'rank')} and {counted(data['batches'], 'microbatch')}"
    style = variables(_colours(data["shades"])) + asset(__package__, "gallery.css")
    html = document(
        asset(__package__, "gallery.html"), style, asset(__package__, "gallery.js"), data, title=escape(title)
    )
    named = [(piece, data["names"][piece["name"]]["title"]) for piece in data["pieces"] if piece["name"]]
    said = [f"{name} ends at {piece['end']:g} with {max(piece['peaks']):g}" for piece, name in named if "end" in piece]
    words = f"<{title}; {data['world']}. {'; '.join(said)} microbatches of activations at most>"
    return Page(html, words, title, REST + ROW * data["ranks"])


def _colours(shades: int) -> dict[str, Colour]:
    """Fill, border and ink of each pass on the first, second ... stage of a rank."""
    found: dict[str, Colour] = {"good": GOOD, "bound": BOUND}
    for turn in range(shades):
        own = layer_colour(turn, max(shades, 2))
        for letter, name in PASS_OF.items():
            fill, border = PASSES[name].pair(own)
            found[f"{letter}{turn}"] = fill
            found[f"{letter}{turn}-edge"] = mix(own, INK, 0.2) if border is NONE else border
            found[f"{letter}{turn}-ink"] = ink_on(fill)
    return found
