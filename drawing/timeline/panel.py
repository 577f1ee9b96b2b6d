"""One panel of a timeline: a heading with figures, a row for each rank, and the numbers of the time axis.

A picture of one run is such a panel; in a comparison and in a review two or more stand under each other, on one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drawing.canvas.axes import Axis, legend
from drawing.canvas.palette import INK, SOFT
from drawing.canvas.scene import TEXT, Scene, Text, fit, text_width
from drawing.timeline.boxes import Timeline, boxes
from drawing.timeline.paint import SHOWN, Rows, more_ranks, operations, paint, place_rows
from lib.analysis.difference import ending, figures_of
from lib.analysis.figures import makespan
from lib.trace.trace import Trace

__all__ = ["LEFT", "RIGHT", "WIDTH", "Panel", "panels"]

WIDTH: Final = 840
"""Pixels of a picture of runs; LEFT and RIGHT of them are left and right of the time axis."""
LEFT: Final = 74
RIGHT: Final = 48
HEADING: Final = 26
"""Pixels that a heading takes."""


class Panel(NamedTuple):
    """A run, its boxes, and the axis that it shares with the panels above and below. `layers` have colours."""

    trace: Trace
    timeline: Timeline
    axis: Axis
    layers: int

    def heading(self, scene: Scene, name: str, y: float) -> float:
        """The name of the run and its figures; returns where they end."""
        short = fit(name, 260, TEXT)
        scene.add(Text(LEFT, y + 8, short, TEXT, INK, bold=True))
        after = LEFT + text_width(short, TEXT) * 1.08 + 12
        scene.add(Text(after, y + 8, fit(figures_of(self.trace), WIDTH - after - 10, TEXT), TEXT, SOFT))
        return y + HEADING

    def rows(self, scene: Scene, y: float) -> Rows:
        """Paints the rows of the ranks from `y` on, and says where they are."""
        rows = place_rows(self.timeline.lanes, y)
        paint(scene, self.trace, self.timeline, self.axis, rows, self.layers)
        return rows

    def numbers(self, scene: Scene, rows: Rows) -> float:
        """How many ranks have no row, the moments, and the end of the run; returns where they end."""
        y = more_ranks(scene, self.trace, rows, self.axis) + 2
        return self.axis.numbers(scene, y, makespan(self.trace), ending(self.trace))


def panels(scene: Scene, traces: Sequence[Trace], y: float) -> tuple[list[Panel], float]:
    """Panels of runs on one axis, and their legend, which is painted; returns where it ends."""
    timelines = [boxes(trace, SHOWN) for trace in traces]
    axis = Axis(LEFT, WIDTH - LEFT - RIGHT, max(timeline.end for timeline in timelines))
    layers = max(trace.layers for trace in traces)
    y = legend(scene, LEFT, y, WIDTH - 12, operations(layers, [box for line in timelines for box in line.boxes]))
    return [Panel(trace, line, axis, layers) for trace, line in zip(traces, timelines, strict=True)], y
