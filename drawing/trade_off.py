"""draw_trade_off: schedules as dots, their time across and their memory up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Scene, Text, fit
from drawing.figures.plot import HIGH, Plot, Point, plot
from drawing.timeline.schedule import note, trace_of
from lib.analysis.figures import end, peak
from lib.errors.wording import amount, exact
from lib.puzzles.records import PUZZLES
from lib.trace.trace import nothing_to

__all__ = ["draw_trade_off"]

WIDTH: Final = 840
EDGE: Final = 24.0
PLOT: Final = 470.0
"""Pixels that the plot is wide; beside it stand the figures."""
LINE: Final = 20


def draw_trade_off(runs: Mapping[str, Any], puzzle: str | None = None) -> Picture:
    """Runs (Traces or lists of Models) by name, each a dot: left is early, low is little memory.

    With a puzzle its goals are there too, each with a corner: what is left of it and below it reaches the goal.
    """
    if not isinstance(runs, Mapping) or not runs:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError('draw_trade_off takes runs by name, such as {"ddp": out1, "fsdp": out2}; got ' + repr(runs))
    given = cast("Mapping[Any, Any]", runs)
    for name, run in given.items():
        if (why := nothing_to("draw", run, str(name))) is not None:
            return note(why)
    traces = {str(name): trace_of(run, "draw_trade_off") for name, run in given.items()}
    points = [Point(name, end(run), float(peak(run).elements), "other") for name, run in traces.items()]
    goals = () if puzzle is None else PUZZLES[puzzle].goals
    scene = Scene(WIDTH, 0)
    scene.add(Text(EDGE, 24, "Time against memory", TEXT + 2, INK, bold=True))
    bottom = plot(scene, Plot(points, goals), EDGE, PLOT, 40)
    y = 40 + max(18.0, (HIGH - LINE * (len(points) + 1)) / 2 - 20)
    columns = (EDGE + PLOT + 22, WIDTH - 116, WIDTH - EDGE)
    for x, words, place in zip(columns, ("", "time", "memory"), ("start", "end", "end"), strict=True):
        scene.add(Text(x, y, words, TEXT, SOFT, place))
    for row, point in enumerate(points, 1):
        cells = (fit(point.name, columns[1] - columns[0] - 40, TEXT), exact(point.time), amount(point.memory))
        for x, words, place in zip(columns, cells, ("start", "end", "end"), strict=True):
            scene.add(Text(x, y + LINE * row, words, TEXT, INK, place))
    scene.height = max(bottom, y + LINE * (len(points) + 1)) + 8
    said = "; ".join(f"{point.name}: time {exact(point.time)}, memory {amount(point.memory)}" for point in points)
    return Picture(scene, f"Time against memory. {said}.")
