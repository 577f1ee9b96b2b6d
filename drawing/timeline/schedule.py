"""Pictures of whole runs: `draw`, which prints two figures too where it is called as the original's notebook does."""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from drawing.canvas.palette import ALARM, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import Scene, Text, fit
from drawing.timeline.folding import shown_rows
from drawing.timeline.labels import size
from drawing.timeline.memory import memory
from drawing.timeline.paint import SHOWN
from drawing.timeline.panel import LEFT, WIDTH, panels
from lib.analysis.difference import ending, highest_peak
from lib.analysis.figures import peak, printed, printed_peak
from lib.cluster.costs import units
from lib.errors.wording import exact
from lib.trace import trace as traces
from lib.trace.trace import Trace

__all__ = ["draw", "picture_of_trace", "trace_of"]


def draw(run: Any, fold: bool | None = None) -> Picture:
    """The timeline of a run and its memory: of a Trace, or of the Models that simulate returned.

    The picture says when everything is over, and what all that is alive takes at the peak. For a list of Models that
    were made by hand, as in the original's notebook, the original's two figures are printed too: `Timesteps` is when
    the last operation starts, and the memory is what the stores hold.

    Ranks that do the same at the same times share a row: in the memory, and in the timeline of more than 4 ranks.
    `fold=False` gives every rank its own rows, `fold=True` folds those of few ranks, too.
    """
    if (why := traces.nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run)
    if traces.made_by_hand(run):
        elements, rank, time = printed_peak(trace)
        print(f"Timesteps: {exact(printed(trace))} ")
        print(f"Maximum Memory: {float(elements)} at GPU: {rank} time: {exact(units(time))}")
    return picture_of_trace(trace, fold)


def trace_of(run: Any, who: str = "draw") -> Trace:
    """The Trace of a Trace, a Model, or a list of Models. `who` was given it, if it is something else."""
    return traces.trace_of(run, f"{who} takes a Trace, a Model or a list of Models")


def check_names(names: object, runs: int) -> None:
    """ValueError where runs are given names, and not one for each of them."""
    if names is None:
        return
    if not isinstance(names, Sequence):
        raise ValueError(f'names is a list with a name for each run, such as ["mine", "reference"]; got {names!r}')
    if (count := len(cast("Sequence[object]", names))) != runs:
        raise ValueError(f"names has {count} for {runs} runs")


def note(words: str) -> Picture:
    """A line of words in place of a picture."""
    scene = Scene(360, 46)
    scene.add(Text(180, 23, fit(words, 330, 12), 12, SOFT, "middle"))
    return Picture(scene, words)


@contextmanager
def uncollected() -> Generator[None]:
    """Without looking for garbage: the picture of a run makes very many objects, and they all stay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@uncollected()
def picture_of_trace(trace: Trace, fold: bool | None = None) -> Picture:
    """The timeline of a run and its memory, without printing anything."""
    scene = Scene(WIDTH, 0)
    y = 14.0
    if trace.error is not None:
        scene.add(Text(LEFT, y + 4, fit(trace.error.partition("\n")[0], WIDTH - LEFT - 20, 12), 12, ALARM, bold=True))
        y += 24
    (panel,), y = panels(scene, [trace], y, fold)
    rows = panel.rows(scene, y + 6)
    y = panel.numbers(scene, rows)
    if peak(trace).elements:
        y = memory(scene, trace, panel.axis, shown_rows(trace, fold is not False, SHOWN).rows, y + 8)
    scene.height = y + 4
    return Picture(scene, f"<timeline of {size(trace)}: {ending(trace)}, {highest_peak(trace)}>")
