"""The gallery of pipeline schedules: a page with sliders that choose one, and the costs of everything."""

from __future__ import annotations

from typing import Any, Final

from drawing.canvas.palette import BOUND, GOOD, INK, NONE, PASSES, Colour, ink_on, layer_colour, mix
from drawing.canvas.picture import Page, Picture, asset, document, variables
from drawing.canvas.scene import escape
from drawing.timeline.schedule import titled
from lib.errors.wording import counted
from lib.values.operations import OPERATIONS

PASS_OF: Final = {OPERATIONS[name].letter or OPERATIONS[name].word: name for name in PASSES}
"""The colours of the passes, by the letters of actions."""


def draw_gallery(gallery: Any) -> Page:
    """Make the page of a gallery of `lib.schedules.gallery`, with its proved bounds. TypeError for anything else."""
    if not hasattr(gallery, "to_json"):
        raise TypeError(f"draw_gallery takes what gallery(ranks=4, batches=8) gives; got {type(gallery).__name__}")
    data = gallery.to_json()
    data["shades"] = max(piece["chunks"] for piece in data["pieces"])
    title = f"Pipelines of {counted(data['ranks'], 'rank')} and {counted(data['batches'], 'microbatch')}"
    style = variables(_colours(data["shades"])) + asset(__package__, "gallery.css")
    script, template = asset(__package__, "gallery.js"), asset(__package__, "gallery.html")
    html = document(template, style, script, data, title=escape(title))
    named = [(piece, data["names"][piece["name"]]["title"]) for piece in data["pieces"] if piece["name"]]
    said = [f"{name} ends at {piece['end']:g} with {max(piece['peaks']):g}" for piece, name in named if "end" in piece]
    words = f"<{title}; {data['world']}. {'; '.join(said)} microbatches of activations at most>"

    def still() -> Picture:
        scene, y = titled(title, f"{'. '.join(said)}.")
        scene.height = y + 4
        return Picture(scene, words)

    return Page(lambda: html, words, title, lambda: 690 + 30 * data["ranks"], still)


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
