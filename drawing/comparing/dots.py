"""Many schedules as dots, their time across and their memory up: runs by name, a front, and those of a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import listed
from drawing.canvas.palette import ACCENT, EDGE, GOOD, GRID, INK, MINE, NONE, PAPER, SOFT, Colour, ink_on, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from drawing.comparing.plot import HIGH as PLOT_HIGH
from drawing.comparing.plot import Frame, Labels, Plot, Point, axes, corner, front_line, plot
from drawing.timeline.schedule import note, trace_of
from lib.analysis.figures import end, peak
from lib.errors.wording import amount, counted, exact
from lib.puzzles.records import PUZZLES, Goal
from lib.trace.trace import nothing_to

WIDTH: Final = 840
BESIDE: Final = 24.0
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
    scene.add(Text(BESIDE, 24, "Time against memory", TEXT + 2, INK, bold=True))
    bottom = plot(scene, Plot(points, goals), BESIDE, PLOT, 40)
    cells = [(point.name, exact(point.time), amount(point.memory)) for point in points]
    figures = listed([("", "time", "memory"), *cells], (168, 40, 92), LINE)
    y = 40 + max(8.0, (PLOT_HIGH - figures.height) / 2 - 30)
    scene.add(*figures.at(BESIDE + PLOT + 22, y))
    scene.height = max(bottom, y + figures.height + 10) + 8
    said = "; ".join(f"{point.name}: time {exact(point.time)}, memory {amount(point.memory)}" for point in points)
    return Picture(scene, f"Time against memory. {said}.")


LEFT, RIGHT, TOP, HIGH = 78.0, 770.0, 100.0, 280.0
"""The left and right edge of the plot, its top, and its height."""
BARS: Final = 44.0
"""Pixels of the longest bar beside and above the plot."""
ACROSS, UP = 48, 24
"""Bars above the plot, and beside it."""
FAR: Final = 1.6
"""The plot has room for so many times what goals allow and the reference needs."""
OVER: Final = mix(SOFT, PAPER, 0.3)
"""The colour of what does not pass."""


class Handed(NamedTuple):
    """A schedule of a class: its end, its peak in elements, how many students have it, whether it passes, and what the
    pointer shows."""

    time: float
    memory: float
    students: int
    passes: bool
    title: str = ""


def draw_spread(
    title: str,
    handed: Sequence[Handed],
    goals: Sequence[Goal] = (),
    reference: tuple[float, float] | None = None,
    best: tuple[float, float] | None = None,
) -> Picture:
    """Correct schedules as dots, as large as there are students; bars above and beside count them by time and memory.

    `reference` and `best`, (time, memory), have rings with names. What is far beyond the goals and the reference stands
    at the edge, as a triangle. ValueError where there is nothing to draw.
    """
    if not handed:
        raise ValueError("draw_spread: no schedule was handed in")
    named = {"reference": reference, "best of the class": best}
    if reference is not None and reference == best:
        named = {"reference, and best of the class": reference}
    rings = {name: place for name, place in named.items() if place is not None}
    frame = _frame(handed, goals, rings)
    scene = Scene(WIDTH, frame.bottom + 62)
    scene.add(Text(24, 24, fit(title, WIDTH - 48, TEXT + 2), TEXT + 2, INK, bold=True))
    _bars(scene, frame, handed)
    scene.add(Rect(LEFT, TOP, RIGHT - LEFT, HIGH, NONE, EDGE))
    axes(scene, frame)
    labels = Labels(frame, [])
    for goal in goals:
        labels.line(corner(scene, frame, goal))
    near = [one for one in handed if not _beyond(frame, one)]
    front_line(scene, frame, [(one.time, one.memory) for one in near])
    for one in sorted(handed, key=lambda one: -one.students):
        scene.add(*_dot(frame, one))
        x, y = _place(frame, one)
        labels.taken.append((x - _size(one), y - _size(one), x + _size(one), y + _size(one)))
    for name, (time, memory) in rings.items():
        x, y = frame.x(time), frame.y(memory)
        here = (_size(one) + 3 for one in handed if (one.time, one.memory) == (time, memory))
        size = max(8.0, *here, 0.0)
        scene.add(Rect(x - size, y - size, 2 * size, 2 * size, NONE, MINE, 2, radius=size, title=name))
        labels.write(scene, name, x, y, INK, bold=True, apart=size + 5)
    for goal in goals:
        labels.write(scene, goal.name, frame.x(goal.time), frame.y(goal.memory), SOFT)
    _below(scene, frame, handed)
    return Picture(scene, "\n".join(_words(title, handed, goals, rings)))


def _below(scene: Scene, frame: Frame, handed: Sequence[Handed]) -> None:
    x = LEFT
    for colour, words in ((GOOD, "passes"), (OVER, "correct, and not all that is needed")):
        scene.add(Rect(x, frame.bottom + 41, 10, 10, colour, radius=5))
        scene.add(Text(x + 15, frame.bottom + 46, words, SMALL, SOFT))
        x += 70
    far = sum(one.students for one in handed if _beyond(frame, one))
    if far:
        most = max(one.time for one in handed), max(one.memory for one in handed)
        words = f"{counted(far, 'student')} beyond the edge: up to time {exact(most[0])}, memory {amount(most[1])}"
        scene.add(Text(RIGHT, frame.bottom + 46, words, SMALL, SOFT, "end"))


def _frame(handed: Sequence[Handed], goals: Sequence[Goal], rings: dict[str, tuple[float, float]]) -> Frame:
    wanted = [*((goal.time, goal.memory) for goal in goals), *rings.values()]
    times = _ends([one.time for one in handed], [time for time, _ in wanted])
    memories = _ends([one.memory for one in handed], [memory for _, memory in wanted])
    return Frame(LEFT, TOP, RIGHT, TOP + HIGH, (times[0], memories[0]), (times[1], memories[1]))


def _ends(figures: Sequence[float], known: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: all that is known has room, and of the figures those that are not far beyond."""
    known = known or figures
    last = max(max(known), min(max(figures), FAR * max(known)))
    first = min(*known, *figures)
    room = last - first or 0.4 * last or 1.0
    return max(0.0, first - 0.12 * room), last + 0.16 * room


def _beyond(frame: Frame, one: Handed) -> bool:
    return one.time > frame.high[0] or one.memory > frame.high[1]


def _place(frame: Frame, one: Handed) -> tuple[float, float]:
    return min(frame.x(one.time), frame.right - 7), max(frame.y(one.memory), frame.top + 7)


def _size(one: Handed) -> float:
    return min(15.0, 2.6 + 1.6 * sqrt(one.students))


def _dot(frame: Frame, one: Handed) -> Iterator[Rect | Poly | Text]:
    (x, y), size = _place(frame, one), _size(one)
    fill: Colour = GOOD if one.passes else OVER
    if _beyond(frame, one):
        tip, foot = (x + 6, y) if one.time > frame.high[0] else (x, y - 6), 5
        back = ((x - 4, y - foot), (x - 4, y + foot)) if tip[1] == y else ((x - foot, y + 4), (x + foot, y + 4))
        yield Poly((tip, *back), fill=fill, stroke=PAPER, title=one.title)
        return
    yield Rect(x - size, y - size, 2 * size, 2 * size, fill, PAPER, radius=size, title=one.title)
    if size >= 8:
        yield Text(x, y, str(one.students), SMALL, ink_on(fill), "middle", bold=True)


def _bars(scene: Scene, frame: Frame, handed: Sequence[Handed]) -> None:
    wide, high = (RIGHT - LEFT) / ACROSS, HIGH / UP
    above, beside = [0] * ACROSS, [0] * UP
    for one in handed:
        x, y = _place(frame, one)
        above[min(ACROSS - 1, int((x - LEFT) / wide))] += one.students
        beside[min(UP - 1, int((y - TOP) / high))] += one.students
    colour = mix(ACCENT, PAPER, 0.45)
    for place, count in enumerate(above):
        tall, title = max(1.5, BARS * count / max(above)), counted(count, "student")
        if count:
            scene.add(Rect(LEFT + place * wide + 0.5, TOP - 6 - tall, wide - 1, tall, colour, title=title))
    for place, count in enumerate(beside):
        long, title = max(1.5, BARS * count / max(beside)), counted(count, "student")
        if count:
            scene.add(Rect(RIGHT + 6, TOP + place * high + 0.5, long, high - 1, colour, title=title))
    scene.add(Poly(((LEFT, TOP - 5.5), (RIGHT, TOP - 5.5)), stroke=GRID))
    scene.add(Poly(((RIGHT + 5.5, TOP), (RIGHT + 5.5, TOP + HIGH)), stroke=GRID))
    scene.add(Text(LEFT - 8, TOP - 6 - BARS + 6, f"most: {max(above)}", SMALL, SOFT, "end"))
    scene.add(Text(LEFT - 8, TOP - 12, "students", SMALL, SOFT, "end"))
    scene.add(Text(RIGHT + 8, TOP - 8, f"most: {max(beside)}", SMALL, SOFT))


def _words(
    title: str, handed: Sequence[Handed], goals: Sequence[Goal], rings: dict[str, tuple[float, float]]
) -> Iterator[str]:
    students = sum(one.students for one in handed)
    times, memories = [one.time for one in handed], [one.memory for one in handed]
    yield f"{title}. {counted(students, 'correct answer')}, {counted(len(handed), 'place')} in time and memory."
    yield f"Time from {exact(min(times))} to {exact(max(times))}, memory from {amount(min(memories))} to "
    yield f"{amount(max(memories))} elements."
    for name, (time, memory) in [*rings.items(), *((goal.name, (goal.time, goal.memory)) for goal in goals)]:
        yield f"{name}: time {exact(time)}, memory {amount(memory)}."
