"""Many schedules as dots, time across and memory up: runs by name, a front, and the schedules of a class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any, Final, NamedTuple, cast

from drawing.canvas.layout import listed
from drawing.canvas.palette import ACCENT, GOOD, GRID, INK, MINE, PAPER, SOFT, Colour, ink_on, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit
from drawing.comparing.plot import HIGH as PLOT_HIGH
from drawing.comparing.plot import WIDTH, Frame, Labels, Plot, Point, axes, corner, front_line, plot
from drawing.timeline.schedule import note, trace_of
from lib.analysis.figures import end, peak
from lib.errors.wording import amount, counted, exact
from lib.puzzles.puzzle import Goal
from lib.puzzles.records import PUZZLES
from lib.trace.trace import nothing_to

BESIDE: Final = 24.0
PLOT: Final = 470.0  # pixels of the plot's width; the figures stand beside it
LINE: Final = 20


def draw_trade_off(runs: Mapping[str, Any], puzzle: str | None = None) -> Picture:
    """Draw runs (Traces or lists of Models) by name, each a dot: left is early, low is little memory.

    With a puzzle its goals are drawn too, each as a corner: everything left of it and below it reaches the goal.
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


LEFT, RIGHT, TOP, HIGH = 78.0, 770.0, 100.0, 280.0  # the left and right edge of the plot, its top, and its height
BARS: Final = 44.0  # pixels of the longest bar beside and above the plot
ACROSS, UP = 48, 24  # bars above the plot, and beside it
FAR: Final = 1.6  # the plot reaches this many times as far as the goals and the reference
OVER: Final = mix(SOFT, PAPER, 0.3)  # the colour of schedules that do not pass


class Handed(NamedTuple):
    """A schedule of a class: its end, its peak in elements, how many students have it, whether it passes, and its
    tooltip."""

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
    """Draw correct schedules as dots, sized by their students; bars above and beside count them by time and memory.

    `reference` and `best`, (time, memory), have rings with names. Schedules far beyond the goals and the reference are
    triangles at the edge. ValueError where there is nothing to draw.
    """
    if not handed:
        raise ValueError("draw_spread: no schedule was handed in")
    named = {"reference": reference, "best of the class": best}
    if reference is not None and reference == best:
        named = {"reference, and best of the class": reference}
    rings = {name: place for name, place in named.items() if place is not None}
    ends: list[tuple[float, float]] = []
    times, memories = [one.time for one in handed], [one.memory for one in handed]
    wanted = [*((goal.time, goal.memory) for goal in goals), *rings.values()]
    for dim, own in enumerate((times, memories)):  # schedules handed in get room unless they are far beyond
        known = [place[dim] for place in wanted] or own
        last, first = max(max(known), min(max(own), FAR * max(known))), min(*known, *own)
        room = last - first or 0.4 * last or 1.0
        ends.append((max(0.0, first - 0.12 * room), last + 0.16 * room))
    frame = Frame(LEFT, TOP, RIGHT, TOP + HIGH, *zip(*ends, strict=True))
    scene = Scene(WIDTH, frame.bottom + 62)
    scene.add(Text(24, 24, fit(title, WIDTH - 48, TEXT + 2), TEXT + 2, INK, bold=True))
    _bars(scene, frame, handed)
    scene.add(frame.edge())
    axes(scene, frame)
    labels, far = Labels(frame), [one for one in handed if _beyond(frame, one)]
    for goal in goals:
        labels.line(corner(scene, frame, goal))
    front_line(scene, frame, [(one.time, one.memory) for one in handed if one not in far])
    for one in sorted(handed, key=lambda one: -one.students):
        (x, y), size = _place(frame, one), _size(one)
        scene.add(*_dot(frame, one))
        labels.taken.append((x - size, y - size, x + size, y + size))
    for name, place in rings.items():
        size = max([8.0, *(_size(one) + 3 for one in handed if (one.time, one.memory) == place)])
        scene.add(frame.dot(place, size, "none", MINE, 2, name))
        labels.write(scene, name, place, bold=True, apart=size + 5)
    for goal in goals:
        labels.write(scene, goal.name, (goal.time, goal.memory), SOFT)
    x = LEFT
    for colour, words in ((GOOD, "passes"), (OVER, "correct, and not all that is needed")):
        scene.add(Rect(x, frame.bottom + 41, 10, 10, colour, radius=5))
        scene.add(Text(x + 15, frame.bottom + 46, words, SMALL, SOFT))
        x += 70
    if far:
        words = f"{counted(sum(one.students for one in far), 'student')} beyond the edge: up to time "
        words += f"{exact(max(times))}, memory {amount(max(memories))}"
        scene.add(Text(RIGHT, frame.bottom + 46, words, SMALL, SOFT, "end"))
    students = counted(sum(one.students for one in handed), "correct answer")
    told = [
        f"{title}. {students}, {counted(len(handed), 'place')} in time and memory.",
        f"Time from {exact(min(times))} to {exact(max(times))}, memory from {amount(min(memories))} to ",
        f"{amount(max(memories))} elements.",
    ]
    known = [*rings.items(), *((goal.name, (goal.time, goal.memory)) for goal in goals)]
    told += [f"{name}: time {exact(time)}, memory {amount(memory)}." for name, (time, memory) in known]
    return Picture(scene, "\n".join(told))


def _beyond(frame: Frame, one: Handed) -> bool:
    return one.time > frame.high[0] or one.memory > frame.high[1]


def _place(frame: Frame, one: Handed) -> tuple[float, float]:
    return min(frame.x(one.time), frame.right - 7), max(frame.y(one.memory), frame.top + 7)


def _size(one: Handed) -> float:
    return min(15.0, 2.6 + 1.6 * sqrt(one.students))


def _dot(frame: Frame, one: Handed) -> Iterator[Rect | Poly | Text]:
    """Yield the marks of a schedule: a triangle at the edge where it lies beyond, and on a large dot its students."""
    (x, y), size = _place(frame, one), _size(one)
    fill: Colour = GOOD if one.passes else OVER
    if one.time > frame.high[0]:
        yield Poly(((x + 6, y), (x - 4, y - 5), (x - 4, y + 5)), fill, PAPER, title=one.title)
    elif one.memory > frame.high[1]:
        yield Poly(((x, y - 6), (x - 5, y + 4), (x + 5, y + 4)), fill, PAPER, title=one.title)
    else:
        yield frame.dot((one.time, one.memory), size, fill, PAPER, title=one.title)
        if size >= 8:
            yield Text(x, y, str(one.students), SMALL, ink_on(fill), "middle", bold=True)


def _bars(scene: Scene, frame: Frame, handed: Sequence[Handed]) -> None:
    """Paint the numbers of students by time above the plot, and by memory beside it."""
    most = [0, 0]
    for dim, (low, size, bins) in enumerate(((LEFT, RIGHT - LEFT, ACROSS), (TOP, HIGH, UP))):
        counts = [0] * bins
        for one in handed:
            counts[min(bins - 1, int((_place(frame, one)[dim] - low) / size * bins))] += one.students
        most[dim] = max(counts)
        for place, count in enumerate(counts):
            begin, wide, long = low + place * size / bins + 0.5, size / bins - 1, max(1.5, BARS * count / most[dim])
            box = (RIGHT + 6, begin, long, wide) if dim else (begin, TOP - 6 - long, wide, long)
            scene.add(*([Rect(*box, mix(ACCENT, PAPER, 0.45), title=counted(count, "student"))] if count else []))
    scene.add(Poly(((LEFT, TOP - 5.5), (RIGHT, TOP - 5.5)), stroke=GRID))
    scene.add(Poly(((RIGHT + 5.5, TOP), (RIGHT + 5.5, TOP + HIGH)), stroke=GRID))
    scene.add(Text(LEFT - 8, TOP - 6 - BARS + 6, f"most: {most[0]}", SMALL, SOFT, "end"))
    scene.add(Text(LEFT - 8, TOP - 12, "students", SMALL, SOFT, "end"))
    scene.add(Text(RIGHT + 8, TOP - 8, f"most: {most[1]}", SMALL, SOFT))
