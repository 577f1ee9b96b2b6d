"""Pictures of whole runs: panels of timelines on one axis, and `draw`, which also prints two figures when called as in
the original's notebook.

A picture of one run is one panel; comparisons and reviews stack two or more on one axis.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final, cast

from drawing.canvas.layout import Axis, Entry, legend
from drawing.canvas.palette import ALARM, INK, SOFT
from drawing.canvas.picture import Picture, note
from drawing.canvas.scene import TEXT, Scene, Text, fit
from drawing.timeline.boxes import boxes, gathers, size
from drawing.timeline.memory import memory
from drawing.timeline.paint import LEFT, SHOWN, Panel, operations, row_height
from drawing.timeline.rows import Shown, margin, names, shown_rows
from lib.analysis.difference import ending, highest_peak
from lib.analysis.figures import peak, printed, printed_peak
from lib.cluster.costs import units
from lib.errors.wording import exact
from lib.trace import trace as traces
from lib.trace.trace import Trace, without_collector
from lib.values.collectives import COLLECTIVES

WIDTH: Final = 840
"""Pixels of a picture of runs, except on a slide; RIGHT is the room beside the time axis."""
RIGHT: Final = 48
UNFOLDED: Final = 4
"""Most ranks that have a row each in a timeline even where they are alike: then their batches can be seen."""


def titled(title: str, told: str = "", fill: str = SOFT) -> tuple[Scene, float]:
    """Return a scene with a title and a text below it, and where that ends."""
    scene = Scene(WIDTH, 0, [Text(24, 26, fit(title, WIDTH - 48, 17), 17, INK, bold=True)])
    return scene, scene.paragraph(24, 48, told, WIDTH - 48, 17, fill)


def panels(
    scene: Scene, traces: Sequence[Trace], y: float, fold: bool | None = None, only: Container[int] | None = None
) -> tuple[list[Panel], float]:
    """Return panels of runs on one axis as wide as the scene, and where their legend, painted here, ends. See
    `panels_of`."""
    found, entries = panels_of(scene.width, traces, fold, only)
    return found, legend(scene, LEFT, y, scene.width - 12, entries)


def panels_of(
    width: float, traces: Sequence[Trace], fold: bool | None = None, only: Container[int] | None = None
) -> tuple[list[Panel], list[Entry]]:
    """Return panels of runs on one axis in `width` pixels, and the meaning of their colours.

    `fold`: whether ranks that are alike share a row; by default they do in runs of more than 4 ranks.
    `only`: the ranks that have rows, where not all have.
    """
    shown = [shown_rows(trace, trace.ranks > UNFOLDED if fold is None else fold, SHOWN) for trace in traces]
    for place, found in enumerate(shown) if only is not None else ():
        rows = [row for row in found.rows if row.rank in (only or ())]
        rest = found.rest + sum(len(row.ranks) for row in found.rows) - len(rows)
        shown[place] = Shown(rows, found.idle, rest)
    named = [names(trace, found.rows) for trace, found in zip(traces, shown, strict=True)]
    timelines = [boxes(trace, [row.rank for row in found.rows]) for trace, found in zip(traces, shown, strict=True)]
    # Below a timeline of few ranks the memory folds equal ranks, and "ranks 0-1" is longer than "rank 0".
    arranged = [trace for trace in traces if trace.mesh is not None]
    folded = [names(trace, shown_rows(trace, fold is not False, SHOWN).rows) for trace in arranged]
    left = max([LEFT, *(margin(found, row_height(len(found))) for found in (*named, *folded))])
    axis = Axis(left, width - left - RIGHT, max(timeline.end for timeline in timelines))
    layers = max(trace.layers for trace in traces)
    every = [box for line in timelines for box in line.boxes]
    own = {name for found in shown for row in found.rows for name in row.own.values()}
    numbers = any(not row.own for found in shown for row in found.rows)
    laws = {gathers(e.op) for t in traces for p in t.programs for e in p.events if e.op in COLLECTIVES}
    padding = any(trace.padding for trace in traces)
    apart = any(name != "own" for name in own)
    said = ["number: batch"] if numbers else [] if apart else ["each rank on its own batch"]
    said += ["#0: first of each rank's own"] if apart else []
    entries = operations(layers, every, ", ".join(said), padding, laws)
    parts = zip(traces, timelines, shown, named, strict=True)
    return [Panel(trace, line, axis, layers, found, name) for trace, line, found, name in parts], entries


def draw(run: Any, fold: bool | None = None) -> Picture:
    """Draw the timeline of a run and its memory: of a Trace, or of the Models that simulate returned.

    The picture gives the end of the run, and the size of all live values at the peak. For a list of Models that were
    made by hand, as in the original's notebook, the original's two figures are printed too: `Timesteps` is when the
    last operation starts, and the memory is what the stores hold.

    Ranks that do the same at the same times share a row: in the memory, and in the timeline of more than 4 ranks.
    `fold=False` gives every rank its own rows, `fold=True` folds those of few ranks, too.

    >>> async def work(model):
    ...     model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    >>> draw(simulate(work, layers=1))
    <timeline of 1 rank, 1 layer, 1 batch: end 1, peak ...>
    """
    if (why := traces.nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run)
    models = cast("Sequence[Any]", run) if isinstance(run, list | tuple) else ()
    if any(getattr(model.dist, "by_hand", False) for model in models):
        elements, rank, time = printed_peak(trace)
        print(f"Timesteps: {exact(printed(trace))} ")
        print(f"Maximum Memory: {float(elements)} at GPU: {rank} time: {exact(units(time))}")
    return picture_of_trace(trace, fold)


def trace_of(run: Any, who: str = "draw") -> Trace:
    """Return the Trace of a Trace, a Model, or a list of Models. `who` is named in the error for anything else."""
    return traces.trace_of(run, f"{who} takes a Trace, a Model or a list of Models")


@without_collector()
def picture_of_trace(trace: Trace, fold: bool | None = None) -> Picture:
    """Draw the timeline of a run and its memory, without printing anything."""
    scene, error = Scene(WIDTH, 0), trace.error
    if error is not None:
        scene.add(Text(LEFT, 18, fit(error.partition("\n")[0], WIDTH - LEFT - 20, TEXT), TEXT, ALARM, bold=True))
    (panel,), y = panels(scene, [trace], 14 if error is None else 38, fold)
    y = panel.numbers(scene, panel.rows(scene, y + 6))
    if peak(trace).elements:
        y = memory(scene, trace, panel.axis, shown_rows(trace, fold is not False, SHOWN).rows, y + 8)
    scene.height = y + 4
    return Picture(scene, f"<timeline of {size(trace)}: {ending(trace)}, {highest_peak(trace)}>")
