"""Pages with scripts: step_through, which scrubs through a run or two, and the gallery of pipeline schedules.

Each is a template with its style, its scripts and JSON inside: it needs no server and no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from drawing.canvas.palette import BOUND, GOOD, INK, KINDS, NONE, PASSES, Colour, ink_on, layer_colour, mix
from drawing.canvas.picture import Page, asset, document, variables
from drawing.canvas.scene import escape
from drawing.pages.data import encode, shown_ranks
from drawing.timeline.boxes import boxes, size
from drawing.timeline.paint import place_rows
from drawing.timeline.schedule import check_names, trace_of
from lib.analysis.difference import ending, highest_peak
from lib.errors.wording import counted
from lib.trace.trace import Trace, nothing_to
from lib.values.operations import OPERATIONS


def kinds() -> dict[str, Colour]:
    """The colours of the kinds of value, with the ink on each and its border, by the names that styles use."""
    found: dict[str, Colour] = {}
    for number, colour in enumerate(KINDS.values()):
        found |= {f"kind-{number}": colour, f"kind-{number}-ink": ink_on(colour)}
        found[f"kind-{number}-edge"] = mix(colour, INK, 0.3)
    return found


SCRIPTS: Final = ("run.js", "timeline.js", "overlay.js", "stores.js", "details.js", "app.js", "controls.js")


def page(data: dict[str, Any]) -> str:
    """A whole HTML document about the data."""
    style = variables(kinds()) + asset(__package__, "stepper.css")
    script = "\n".join(asset(__package__, name) for name in SCRIPTS)
    return document(asset(__package__, "template.html"), style, script, data)


def step_through(models_or_trace: Any, other: Any = None, names: Sequence[str] | None = None) -> View:
    """A page to step through a run with: a Trace, or the Models that simulate returned.

    With `other`, two runs stand one under the other on one time axis. `names` are what they are called.
    """
    runs = [models_or_trace] if other is None else [models_or_trace, other]
    check_names(names, len(runs))
    for run in runs:
        if (note := nothing_to("step through", run)) is not None:
            return View([], note=note)
    given = names or ([""] if other is None else ["run 1", "run 2"])
    return View([(str(name), trace_of(run, "step_through")) for name, run in zip(given, runs, strict=True)])


class View(Page):
    """A page about one run or two."""

    def __init__(self, runs: Sequence[tuple[str, Trace]], note: str = "") -> None:
        self.runs = tuple(runs)
        told = [f"{size(trace)}: {ending(trace)}, {highest_peak(trace)}" for _, trace in self.runs]
        words = f"<step through {'; '.join(told)}>" if told else "<nothing to step through>"
        notes = [note] if note else []

        def height() -> float:
            """About as high as it is; what is longer scrolls inside."""
            rows = [place_rows(boxes(trace, shown_ranks(trace)).lanes, 0) for _, trace in self.runs]
            return min(1000, (640.0 if rows else 120.0) + sum(120 + one.bottom for one in rows))

        super().__init__(lambda: page(encode(self.runs, notes)), words, "Step through a run", height)


PASS_OF: Final = {OPERATIONS[name].letter or OPERATIONS[name].word: name for name in PASSES}
"""The colours of the passes, by the letters of actions."""


class Shown(Protocol):
    """Schedules to show, as `lib.schedules.gallery` makes them."""

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
    return Page(lambda: html, words, title, lambda: 690 + 30 * data["ranks"])


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
