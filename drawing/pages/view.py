"""step_through: a page that scrubs through a run or two. It needs no server and no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drawing.canvas.palette import INK, KINDS, Colour, ink_on, mix
from drawing.canvas.picture import Page, Picture, asset, document, variables
from drawing.pages.data import encode, shown_ranks
from drawing.timeline.boxes import boxes, size
from drawing.timeline.paint import place_rows
from drawing.timeline.schedule import note as picture_note
from drawing.timeline.schedule import picture_of_trace, trace_of
from lib.analysis.difference import ending, highest_peak
from lib.trace.trace import Trace, nothing_to


def kinds() -> dict[str, Colour]:
    """Return the colours of the kinds of value, with the ink on each and its border, by the names that styles use."""
    found: dict[str, Colour] = {}
    for number, colour in enumerate(KINDS.values()):
        found |= {f"kind-{number}": colour, f"kind-{number}-ink": ink_on(colour)}
        found[f"kind-{number}-edge"] = mix(colour, INK, 0.3)
    return found


SCRIPTS: Final = ("run.js", "timeline.js", "overlay.js", "stores.js", "details.js", "app.js", "controls.js")


def page(data: dict[str, Any]) -> str:
    """Return a whole HTML document about the data."""
    style = variables(kinds()) + asset(__package__, "stepper.css")
    script = "\n".join(asset(__package__, name) for name in SCRIPTS)
    return document(asset(__package__, "template.html"), style, script, data)


def step_through(models_or_trace: Any, other: Any = None, names: Sequence[str] | None = None) -> View:
    """Return a page to step through a run with: a Trace, or the Models that simulate returned.

    With `other`, two runs stand one under the other on one time axis. `names` are their names.
    """
    runs = [models_or_trace] if other is None else [models_or_trace, other]
    if names is not None and not isinstance(names, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f'names is a list with a name for each run, such as ["mine", "reference"]; got {names!r}')
    if names is not None and len(names) != len(runs):
        raise ValueError(f"names has {len(names)} for {len(runs)} runs")
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

        def still() -> Picture:
            return picture_of_trace(self.runs[0][1]) if self.runs else picture_note(note)

        super().__init__(lambda: page(encode(self.runs, notes)), words, "Step through a run", height, still)
