"""The goal of a puzzle as a picture: its goals as bars to scale, and a schedule that reaches them, without its code."""

from __future__ import annotations

from typing import Final

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Scene, Text, fit, text_width
from drawing.figures.goals import LIMITLESS, Figure, goals, may_send
from drawing.timeline.folding import shown_rows
from drawing.timeline.memory import memory
from drawing.timeline.paint import SHOWN
from drawing.timeline.panel import WIDTH, panels
from lib.analysis.figures import peak
from lib.checker.checker import check
from lib.puzzles.records import Puzzle, Task
from lib.suite.course.solutions import schedule_of
from lib.trace.trace import Trace

__all__ = ["picture_of_task"]

EDGE: Final = 24.0
TITLE: Final = 17


def picture_of_task(task: Task) -> Picture:
    """What a puzzle asks for. The run that is shown is that of the official answer, of which no line is."""
    record, scene = task.record, Scene(WIDTH, 60)
    scene.add(Text(EDGE, 26, fit(record.heading, WIDTH - 2 * EDGE, TITLE), TITLE, INK, bold=True))
    if record.is_function:
        words = task.text().partition(": ")[2]
        scene.height = scene.paragraph(EDGE, 50, f"{words[0].upper()}{words[1:]}.", WIDTH - 2 * EDGE, 17) + 6
        return Picture(scene, task.text())
    left = EDGE + text_width(record.heading, TITLE) * 1.08 + 20
    size = fit(task.size(), WIDTH - EDGE - left, TEXT)
    scene.add(Text(WIDTH - EDGE, 26, size, TEXT, SOFT, "end"))
    y = goals(scene, record.goals, _figures(record), EDGE, WIDTH - 8, 48, judged=False) + 20
    run = schedule_of(record.id)
    scene.height = (y if run is None else _schedule(scene, run, record, y)) + 4
    return Picture(scene, task.text())


def _figures(record: Puzzle) -> list[Figure]:
    found = [
        Figure("time at most", [goal.time for goal in record.goals]),
        Figure("memory at most, in elements", [goal.memory for goal in record.goals]),
    ]
    found.append(Figure("sent per rank at most", may_send(record.goals, record.sent)))
    return [figure for figure in found if min(figure.limits) < LIMITLESS]


def _schedule(scene: Scene, run: Trace, record: Puzzle, y: float) -> float:
    """The timeline and the memory of a run, under what it reaches; returns where they end."""
    best = check(run, record.id).best
    words = f"A schedule that reaches “{best}”" if best else "A correct schedule"
    scene.add(Text(EDGE, y, words, TEXT + 1, INK, bold=True))
    (panel,), y = panels(scene, [run], y + 16)
    rows = panel.rows(scene, y + 6)
    y = panel.numbers(scene, rows)
    return memory(scene, run, panel.axis, shown_rows(run, True, SHOWN).rows, y + 8) if peak(run).elements else y
