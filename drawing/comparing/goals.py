"""The goals of a puzzle as bars to scale: alone, later with a schedule that reaches them, and in verdicts on runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import cos, pi, sin
from typing import Final, NamedTuple
from zlib import crc32

from drawing.canvas.layout import compact
from drawing.canvas.palette import ACCENT, ALARM, GOLD, GOOD, INK, KINDS, MINE, PAPER, SHINE, SOFT, WOOD, mix
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Mark, Poly, Rect, Scene, Text, fit, text_width
from drawing.comparing.bars import HIGH, PITCH, Bar, Bound, Column, Part, columns, row_name
from drawing.timeline.memory import memory
from drawing.timeline.paint import SHOWN
from drawing.timeline.rows import shown_rows
from drawing.timeline.schedule import WIDTH, panels
from lib.analysis.figures import peak
from lib.checker.verdict import FunctionVerdict, Verdict, check
from lib.errors.wording import amount, counted
from lib.puzzles.puzzle import Goal, Task
from lib.suite.course.solutions import schedule_to_show

LIMITLESS: Final = 2.0**60  # limits from here on do not count: the caller asked for time only, or for memory only
BETWEEN: Final = 16.0


def may_send(wanted: Sequence[Goal], others: float | None = None) -> list[float]:
    """Return the elements that a rank may send for each goal; `others` is for goals that do not say."""
    limits = [others if goal.sent is None else goal.sent for goal in wanted]
    return [LIMITLESS if limit is None else limit for limit in limits]


class Figure(NamedTuple):
    """A figure: its name, the limits of the goals, the learner's own with its parts, and a lower bound."""

    name: str
    limits: Sequence[float]
    mine: float | None = None
    parts: Sequence[Part] = ()
    bound: Bound | None = None

    @property
    def column(self) -> Column:
        """Return its bars: the learner's own first, if there is one."""
        bars: list[Bar | None] = []
        if self.mine is not None:
            bars.append(Bar(self.parts or [Part(self.mine, MINE)], amount(self.mine), bold=True))
        bars += [None if limit >= LIMITLESS else _goal(limit, self.mine) for limit in self.limits]
        return Column(self.name, bars, self.mine, self.bound)


def figures(
    wanted: Sequence[Goal], mine: tuple[float, float, float] | None = None, most: str = "", others: float | None = None
) -> list[Figure]:
    """Return time, memory and traffic, where goals limit them; with the learner's own figures where there are any."""
    time, memory, sent = mine or (None, None, None)
    every = [
        Figure(f"time{most}", [goal.time for goal in wanted], time),
        Figure(f"memory{most}, in elements", [goal.memory for goal in wanted], memory),
        Figure(f"sent per rank{most}", may_send(wanted, others), sent),
    ]
    return [figure for figure in every if min(figure.limits) < LIMITLESS]


def _goal(limit: float, mine: float | None) -> Bar:
    """A limit: green where the learner's figure is within it, red where it is over, and then by how much."""
    over = 0.0 if mine is None else round(mine - limit, 9)
    colour = ACCENT if mine is None else ALARM if over > 0 else GOOD
    words = amount(limit)
    if over > 0:
        words += f": {compact(over) if over >= 1000 else amount(over)} over"
    return Bar([Part(limit, mix(colour, PAPER, 0.8), mix(colour, PAPER, 0.3))], words, ink=ALARM if over > 0 else INK)


def goals(
    scene: Scene, wanted: Sequence[Goal], figures: Sequence[Figure], left: float, right: float, y: float, judged: bool
) -> float:
    """Paint a row for each goal, and one above for the learner's own where there is one; return where they end.

    `judged`: whether names have a tick where a goal is reached and a dash where it is not.
    """
    own = any(figure.mine is not None for figure in figures)
    names = min(186.0, (right - left) * 0.28)
    middle = y + 16 + HIGH / 2
    if own:
        row_name(scene, "yours", left + 18, middle, names)
    for row, goal in enumerate(wanted):
        row_name(scene, goal.name, left, middle + PITCH * (row + own), names, goal.reached if judged else None)
    start, width = left + names, (right - left - names) / max(1, len(figures)) - BETWEEN
    placed = [(figure.column, start + place * (width + BETWEEN), width) for place, figure in enumerate(figures)]
    return columns(scene, placed, y)


EDGE, TITLE = 24.0, 17


def picture_of_task(task: Task) -> Picture:
    """Draw the goals of a puzzle: its limits. The run of the official answer, without its code, comes below them once
    it gives nothing away."""
    record, scene = task.record, Scene(WIDTH, 60)
    scene.add(Text(EDGE, 26, fit(record.heading, WIDTH - 2 * EDGE, TITLE), TITLE, INK, bold=True))
    if record.is_function:
        words = task.text().partition(": ")[2]
        scene.height = scene.paragraph(EDGE, 50, f"{words[0].upper()}{words[1:]}.", WIDTH - 2 * EDGE, 17) + 6
        return Picture(scene, task.text())
    room = WIDTH - 2 * EDGE - text_width(record.heading, TITLE) * 1.08 - 20
    scene.add(Text(WIDTH - EDGE, 26, fit(task.size(), room, TEXT), TEXT, SOFT, "end"))
    asked = figures(record.goals, most=" at most", others=record.sent)
    y = goals(scene, record.goals, asked, EDGE, WIDTH - 8, 48, judged=False) + 20
    if (run := schedule_to_show(record.id)) is None:
        words = (
            f'A correct run, or hint("{record.id}", 2), adds a schedule that reaches them: then run this cell again.'
        )
        scene.height = scene.paragraph(EDGE, y, words, WIDTH - 2 * EDGE, 17, SOFT) - 2
        return Picture(scene, task.text())
    best = check(run, record.id).best
    words = f"A schedule that reaches “{best}”" if best else "A correct schedule"
    scene.add(Text(EDGE, y, words, TEXT + 1, INK, bold=True))
    (panel,), y = panels(scene, [run], y + 16)
    y = panel.numbers(scene, panel.rows(scene, y + 6))
    y = memory(scene, run, panel.axis, shown_rows(run, True, SHOWN).rows, y + 8) if peak(run).elements else y
    scene.height = y + 4
    return Picture(scene, task.text())


def picture_of_verdict(verdict: Verdict) -> Picture:
    """Draw a verdict, its figures beside each goal; a trophy and confetti where the goal is reached.

    Without a goal there are no figures: `Model.check` has just printed them, and so has the command line.
    """
    scene = Scene(WIDTH, 0)
    left, y = (216.0 if verdict.passed else 24.0), 58.0
    alone = verdict.passed and not verdict.goals
    marks = [Text(left, 100 if alone else 32, fit(_headline(verdict), WIDTH - left - 10, 18), 18, INK, bold=True)]
    for fault in verdict.faults[:4]:
        marks.append(Text(left, y, fit(" ".join(fault.split()), WIDTH - left - 16, TEXT), TEXT, ALARM))
        y += 20
    bars = Scene(WIDTH, 0)
    if verdict.goals:
        wanted = [goal._replace(reached=verdict.correct and goal.reached) for goal in verdict.goals]
        mine = (verdict.time, verdict.memory, verdict.sent) if verdict.correct else None
        y = goals(bars, wanted, figures(verdict.goals, mine), left, WIDTH - 8, y - 2, judged=True) + 6
    scene.height = max(y + 12, 190 if verdict.passed else 0)
    if verdict.passed:
        scene.add(*_party(verdict.puzzle, scene.height, sum(goal.reached for goal in verdict.goals) or 1))
    scene.add(*marks, *bars.marks)
    return Picture(scene, "\n".join(_words(verdict)))


def picture_of_answers(verdict: FunctionVerdict) -> Picture:
    """Draw a verdict on a plain function: a trophy and confetti where it is right."""
    left = 216.0 if verdict.correct else 24.0
    headline = f"{verdict.puzzle}: {'correct!' if verdict.correct else 'not right yet'}"
    said = [f"Right on all of {counted(verdict.asked, 'input', ',')}"]
    if verdict.worth:
        said = [verdict.worth, *(f"{goal.name}: {goal.time:g} s" for goal in verdict.goals if goal.reached)]
    if not verdict.correct:
        said = [line for fault in verdict.faults for line in fault.splitlines()][:6]
    scene = Scene(WIDTH, 190 if verdict.correct else 62 + 18 * len(said))
    scene.add(*(_party(verdict.puzzle, scene.height, 1) if verdict.correct else ()))
    middle = scene.height / 2 - 14 if verdict.correct else 32
    scene.add(Text(left, middle, fit(headline, WIDTH - left - 10, 18), 18, INK, bold=True))
    for number, line in enumerate(said):
        words = fit(line, WIDTH - left - 16, TEXT)
        scene.add(Text(left, middle + 26 + 18 * number, words, TEXT, SOFT if verdict.correct else ALARM))
    return Picture(scene, "\n".join([headline, *said]))


def _words(verdict: Verdict) -> Iterator[str]:
    yield _headline(verdict)
    if verdict.correct and verdict.goals:
        sent = f", sent per rank {amount(verdict.sent)}" if verdict.sent else ""
        yield f"yours: time {amount(verdict.time)}, memory {amount(verdict.memory)}{sent}"
    for goal in verdict.goals:
        limits = [("time", goal.time), ("memory", goal.memory)]
        said = ", ".join(f"{name} at most {amount(limit)}" for name, limit in limits if limit < LIMITLESS)
        yield f"{goal.name} ({said}): {'reached' if verdict.correct and goal.reached else 'not reached'}"


def _headline(verdict: Verdict) -> str:
    name = f"{verdict.puzzle}: " if verdict.puzzle else ""
    if not verdict.correct:
        return f"{name}not one correct training step yet"
    if not verdict.passed:
        return f"{name}correct, but not within the goal yet"
    return f"{name}correct!" + (f" Reached: {verdict.best}" if verdict.best else "")


def _star(x: float, y: float, size: float) -> list[tuple[float, float]]:
    corners = [(size * (0.42 if corner % 2 else 1), pi * corner / 5 - pi / 2) for corner in range(10)]
    return [(x + reach * cos(angle), y + reach * sin(angle)) for reach, angle in corners]


def _party(puzzle: str | None, height: float, stars: int) -> Iterator[Mark]:
    """Confetti, which is the same for the same puzzle, behind a cup on a base, with a star for each goal reached."""
    colours = (*KINDS.values(), GOOD, GOLD)
    state = crc32((puzzle or "").encode())
    for scrap in range(70):
        state = (state * 1103515245 + 12345) % 2**31
        x, turn = 8 + state % 184, pi * (state // 256 % 64) / 64
        state = (state * 1103515245 + 12345) % 2**31
        y = 8 + state // 16 % max(1, int(height - 16))
        long, short, fill = 4 + scrap % 3, 1.6 + scrap % 2, mix(colours[scrap % len(colours)], PAPER, 0.25)
        corners = [(long, short), (-long, short), (-long, -short), (long, -short)]
        yield Poly([(x + a * cos(turn) - b * sin(turn), y + a * sin(turn) + b * cos(turn)) for a, b in corners], fill)
    x, y, dark = 100, (height - 156) / 2, mix(GOLD, WOOD, 0.4)
    for side in (-1, 1):
        handle = [(x + side * (30 + 17 * sin(pi * t / 12)), y + 8 + 30 * t / 12) for t in range(13)]
        yield Poly([*handle, (x + side * 22, y + 42)], stroke=dark, line=5)
    bowl = [(34 * (1 - (t / 10) ** 2.6) + 5, 62 * t / 10) for t in range(11)]
    cup = [(x - dx, y + dy) for dx, dy in bowl] + [(x + dx, y + dy) for dx, dy in reversed(bowl)]
    yield Poly(cup, fill=GOLD, stroke=dark, line=1.5)
    shine = [(x - dx * 0.8, y + dy) for dx, dy in bowl[1:8]] + [(x - dx * 0.6, y + dy) for dx, dy in bowl[7:0:-1]]
    yield Poly(shine, fill=mix(GOLD, SHINE, 0.6))
    yield Poly(((x - 5, y + 62), (x + 5, y + 62), (x + 9, y + 82), (x - 9, y + 82)), fill=dark)
    yield Rect(x - 26, y + 82, 52, 9, GOLD, dark, 1.5, radius=2)
    yield Rect(x - 34, y + 91, 68, 13, WOOD, radius=2)
    yield Poly(_star(x + 6, y + 26, 13), fill=SHINE, stroke=dark)
    for number in range(stars):
        yield Poly(_star(x + (number - (stars - 1) / 2) * 30, y + 124, 12), fill=GOLD, stroke=dark)
