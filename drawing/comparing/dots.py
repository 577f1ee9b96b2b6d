"""Runs as dots, their time across and their memory up, beside the goals of a puzzle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from drawing.canvas.layout import listed
from drawing.canvas.palette import INK
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Scene, Text
from drawing.comparing.plot import HIGH as PLOT_HIGH
from drawing.comparing.plot import WIDTH, Plot, Point, plot
from drawing.timeline.schedule import note, trace_of
from lib.analysis.figures import end, peak
from lib.errors.wording import amount, exact
from lib.puzzles.records import PUZZLES
from lib.trace.trace import nothing_to

BESIDE: Final = 24.0
PLOT: Final = 470.0  # pixels that the plot is wide; beside it stand the figures
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
    scene.add(Text(BESIDE, 24, "Time against memory", TEXT + 2, INK, bold=True))
    bottom = plot(scene, Plot(points, goals), BESIDE, PLOT, 40)
    cells = [(point.name, exact(point.time), amount(point.memory)) for point in points]
    figures = listed([("", "time", "memory"), *cells], (168, 40, 92), LINE)
    y = 40 + max(8.0, (PLOT_HIGH - figures.height) / 2 - 30)
    scene.add(*figures.at(BESIDE + PLOT + 22, y))
    scene.height = max(bottom, y + figures.height + 10) + 8
    said = "; ".join(f"{point.name}: time {exact(point.time)}, memory {amount(point.memory)}" for point in points)
    return Picture(scene, f"Time against memory. {said}.")
