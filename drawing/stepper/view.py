"""step_through: a run, or two, as a page to step through. A View is shown by notebooks and saved with `save`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from drawing.canvas.frame import framed, save_page
from drawing.stepper.data import encode, shown_ranks
from drawing.stepper.page import page
from drawing.timeline.boxes import boxes
from drawing.timeline.labels import size
from drawing.timeline.paint import place_rows
from drawing.timeline.schedule import check_names, trace_of
from lib.analysis.difference import ending, highest_peak
from lib.trace.trace import Trace, nothing_to

__all__ = ["View", "step_through"]

TALLEST: Final = 1000
"""Pixels that the page takes in a notebook at most; what is longer scrolls inside."""


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


class View:
    """A page about one run or two. It is made when it is first asked for."""

    def __init__(self, runs: Sequence[tuple[str, Trace]], note: str = "") -> None:
        self.runs = tuple(runs)
        self.note = note
        self._html: str | None = None

    def html(self) -> str:
        """The whole page: one HTML document that needs nothing else."""
        if self._html is None:
            self._html = page(encode(self.runs, [self.note] if self.note else []))
        return self._html

    def save(self, path: str | Path) -> Path:
        """Writes the page as a file, .html, that any browser opens."""
        return save_page(path, self.html())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": framed(self.html(), "Step through a run", self._height()), "text/plain": repr(self)}

    def _height(self) -> int:
        """About what the page takes in a notebook."""
        height = 640.0 if self.runs else 120.0
        for _, trace in self.runs:
            height += 120 + place_rows(boxes(trace, shown_ranks(trace)).lanes, 0).bottom
        return round(min(TALLEST, height))

    def __repr__(self) -> str:
        if not self.runs:
            return "<nothing to step through>"
        found = [f"{size(trace)}: {ending(trace)}, {highest_peak(trace)}" for _, trace in self.runs]
        return f"<step through {'; '.join(found)}>"
