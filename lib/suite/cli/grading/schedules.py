"""The schedules of a class: each puzzle's distinct ones with their students, pictures of them, and the leaderboard."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from lib.analysis.figures import bubbles
from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import amount, counted, exact, visible
from lib.extras import shared_out
from lib.files import ready, write_whole
from lib.puzzles.puzzle import Goal
from lib.suite.grade.gradebook import Asked, Gradebook, Result, Score, Student, Traces
from lib.suite.grade.intake.roster import ALIAS
from lib.suite.submissions.source import STATES, State
from lib.trace.trace import Trace

NAMED: Final = 12  # students named when the pointer is at a dot
FEW: Final = 100  # pictures drawn here before other processes would have started; these take this many at once
MOST_EVENTS: Final = 60_000  # operations of all schedules in a picture; larger ones get words instead
EDITION: Final = "2"  # change it when pictures are drawn differently, so that old ones have other names
PLACES: Final = 30  # schedules of a puzzle on the leaderboard
LONGEST: Final = 40  # characters of a name that a student chose


class Kind(NamedTuple):
    """A schedule that is correct at the puzzle's size, and the rows of students who handed it in, in order.

    `passes` and `everywhere`: whether it passed for one of them, and whether it was correct at all other sizes.
    """

    result: Result
    passes: bool
    everywhere: bool
    students: tuple[int, ...]


@dataclass(frozen=True)
class ClassPuzzle:
    """One puzzle of a class, and its place among those asked: the number of students in each state, by its word; the
    distinct schedules, the best first; and the best that is correct at all sizes, by most goals, then shortest time,
    then least memory. `picture` is that of time against memory, as markup; "" if all of them are at one place."""

    place: int
    asked: Asked
    counts: Mapping[str, int]
    kinds: Sequence[Kind]
    best: Result | None
    picture: str

    @property
    def states(self) -> list[tuple[State, int]]:
        """Return the number of students in each state, without empty states."""
        return [(state, self.counts[name]) for name, state in STATES.items() if self.counts.get(name)]

    @property
    def others(self) -> list[tuple[str, Result]]:
        """Return what a schedule is compared with."""
        pairs = ("the reference", self.asked.reference), ("the best of the class", self.best)
        return [(name, result) for name, result in pairs if result is not None]

    @property
    def size(self) -> str:
        """Return the size at which the reference runs, in words."""
        return self.asked.reference.size if self.asked.reference is not None else "a table of answers"


def puzzles_of(book: Gradebook) -> list[ClassPuzzle]:
    """Return the required puzzles, in order."""
    puzzles: list[ClassPuzzle] = []
    for place, asked in enumerate(book.asked):
        scores = [student.scores[place] for student in book.students]
        counts = Counter(STATES[score.state].word for score in scores)
        kinds = _kinds(scores)
        best = next((kind.result for kind in kinds if kind.everywhere), None)
        puzzles.append(ClassPuzzle(place, asked, counts, kinds, best, _spread(book, asked, kinds, best)))
    return puzzles


def _kinds(scores: Sequence[Score]) -> list[Kind]:
    """The distinct schedules, the best first. States of equal ones may differ, as they may at other sizes."""
    students: dict[str, list[int]] = {}
    for row, score in enumerate(scores):
        if score.correct and score.own.schedule and score.own.time is not None:
            students.setdefault(score.own.schedule, []).append(row)

    def kind(rows: Sequence[int]) -> Kind:
        own, states = scores[rows[0]].own, {scores[row].state for row in rows}
        everywhere = not states.isdisjoint(("passed", "missed"))
        return Kind(own, "passed" in states, everywhere, tuple(rows))

    def rank(kind: Kind) -> tuple[float | str, ...]:
        own = kind.result
        return not kind.everywhere, -len(own.goals), own.time or 0.0, own.memory or 0.0, own.sent or 0.0, own.schedule

    return sorted(map(kind, students.values()), key=rank)


def _spread(book: Gradebook, asked: Asked, kinds: Sequence[Kind], best: Result | None) -> str:
    """The picture of time against memory, with a dot for each place; "" for fewer than two."""
    from drawing.comparing.dots import Handed, draw_spread  # not above: a class of plain functions needs none

    places: dict[tuple[float, float], list[Kind]] = {}
    for kind in kinds:
        places.setdefault((kind.result.time or 0.0, kind.result.memory or 0.0), []).append(kind)
    if len(places) < 2:
        return ""
    dots: list[Handed] = []
    for (time, memory), here in places.items():
        rows = sorted(row for kind in here for row in kind.students)
        names = [visible(book.students[row].name, lines=False)[:60] for row in rows[:NAMED]]
        more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        schedules = f", {counted(len(here), 'schedule')}" if len(here) > 1 else ""
        head = f"time {exact(time)}, memory {amount(memory)}: {counted(len(rows), 'student')}{schedules}"
        passes = any(kind.passes for kind in here)
        dots.append(Handed(time, memory, len(rows), passes, f"{head}\n{', '.join(names)}{more}"))
    goals = [Goal(name, time, memory) for name, time, memory in asked.goals]
    reference, first = (
        None if one is None or one.time is None or one.memory is None else (one.time, one.memory)
        for one in (asked.reference, best)
    )
    return draw_spread(f"{asked.title}: time against memory", dots, goals, reference, first).svg().strip()


# -- pictures -------------------------------------------------------------------------------------------------------


class Order(NamedTuple):
    """A picture to draw: digests and names of schedules, one alone or several compared; and whether the first is
    correct: if not, its figures mean nothing."""

    digests: tuple[str, ...]
    names: tuple[str, ...]
    correct: bool


@dataclass(frozen=True)
class Pictures:
    """A report's folder of pictures. Schedules have no source lines, which are private to a student."""

    folder: Path
    traces: Traces

    def path(self, order: Order) -> Path:
        """Return the path of a picture, drawn or not."""
        words = "\n".join([EDITION, str(order.correct), *order.digests, *order.names])
        return self.folder / f"{sha256(words.encode()).hexdigest()[:16]}.svg"

    def drawn(self, order: Order) -> dict[str, str]:
        """Return an existing picture's file, and its width and height in pixels."""
        path = self.path(order)
        with path.open(encoding="utf-8") as file:
            size = re.search(r'width="(?P<width>[\d.]+)" height="(?P<height>[\d.]+)"', file.read(400))
        return {"file": path.name, **({"width": "840", "height": "400"} if size is None else size.groupdict())}

    def keep(self, orders: Iterable[Order]) -> None:
        """Delete all pictures of ours except these."""
        paths = set(map(self.path, orders))
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.suffix == ".svg" and re.fullmatch("[0-9a-f]{16}", path.stem) and path not in paths:
                path.unlink()

    def draw_all(self, orders: Iterable[Order], jobs: int, done: Callable[[int], None]) -> None:
        """Draw missing pictures, in `jobs` processes. `done` is called with the number of those left."""
        missing = [order for order in dict.fromkeys(orders) if not self.path(order).is_file()]
        done(left := len(missing))
        for _ in shared_out(self.draw, missing, jobs if left >= FEW else 1, "drawing", batch_size=FEW):
            done(left := left - 1)

    def draw(self, order: Order) -> None:
        """Draw a picture into its file."""
        write_whole(ready(self.path(order)), self._svg(order))

    def _svg(self, order: Order) -> str:
        """A picture. If it cannot be drawn, it says why."""
        from drawing import draw  # not above: a report without schedules needs none
        from drawing.comparing.comparison import Compared, Comparison
        from drawing.timeline.schedule import note

        try:
            first, *others = [self.traces.load(digest) for digest in order.digests]
        except (OSError, TraceError) as error:
            return note(f"the schedule cannot be read: {type(error).__name__}").svg()
        events = sum(map(_events, (first, *others)))
        if events > MOST_EVENTS:
            return note(f"a schedule of {events:,} operations is too large to be drawn here").svg()
        try:
            if not others:
                return draw(first, fold=True).svg()
            wrong = "" if order.correct else first.error or "not one correct training step"
            mine = Compared(order.names[0], first, wrong, order.correct)
            beside = (Compared(name, trace) for name, trace in zip(order.names[1:], others, strict=True))
            return Comparison([mine, *beside]).picture().svg()
        except PuzzleError as error:  # a run that stopped in the middle, or that is impossible
            return note(f"the schedule cannot be drawn: {type(error).__name__}").svg()


def _events(trace: Trace) -> int:
    return sum(len(program.events) for program in trace.programs)


# -- the leaderboard ------------------------------------------------------------------------------------------------


def board_of(book: Gradebook, puzzle: ClassPuzzle, traces: Traces) -> dict[str, Any]:
    """Return a puzzle's part of the leaderboard: the schedules that are correct at all sizes, and the reference."""
    from drawing.canvas.scene import Scene
    from drawing.comparing.overview import HIGH, WIDE, thumbnails

    reference = puzzle.asked.reference
    kinds = [kind for kind in puzzle.kinds if kind.everywhere]
    shown: list[tuple[Kind | None, Result]] = [(kind, kind.result) for kind in kinds[:PLACES]]
    if reference is not None and all(result.schedule != reference.schedule for _, result in shown):
        shown.append((None, reference))
    runs = {result.schedule: run for _, result in shown if (run := _run(traces, result.schedule)) is not None}
    small = dict(zip(runs, thumbnails([*runs.values()]) if runs else (), strict=True))
    best = {name: min(getattr(one, name) or 0.0 for _, one in shown) for name in ("time", "memory", "sent") if shown}
    rows: list[dict[str, Any]] = []
    for place, (kind, result) in enumerate(shown, 1):
        who = "" if kind is None else _who([book.students[at] for at in kind.students])
        row: dict[str, Any] = {"kind": kind, "who": who, "computing": None, "picture": ""}
        if (run := runs.get(result.schedule)) is not None:
            scene = Scene(WIDE, HIGH, small[result.schedule], paper=False)
            row["picture"] = scene.svg(label=f"schedule {place} of {puzzle.asked.puzzle}", night=False)
            row["computing"] = 1 - bubbles(run).makespan
        row["reference"] = reference is not None and result.schedule == reference.schedule
        rows.append({**row, "result": result, "best": [one for one in best if getattr(result, one) == best[one]]})
    return {
        "asked": puzzle.asked,
        "rows": rows,
        "more": max(0, len(kinds) - PLACES),
        "students": sum(len(kind.students) for kind in kinds),
        "marks": [mark for marks in small.values() for mark in marks],
    }


def _run(traces: Traces, digest: str) -> Trace | None:
    """A schedule, if it can be read and is not too large to draw."""
    try:
        run = traces.load(digest)
    except (OSError, TraceError, ValueError):
        return None
    return run if _events(run) <= MOST_EVENTS else None


def _who(students: Sequence[Student]) -> str:
    """Count the students with a schedule, and name those who chose an alias."""
    said = (next((text for heading, text in one.more if heading.casefold() == ALIAS), "") for one in students)
    aliases = [visible(name, lines=False).strip()[:LONGEST] for name in said]
    chosen, others = sorted(filter(None, aliases)), aliases.count("")
    if not chosen:
        return counted(others, "student")
    return ", ".join(chosen) + (f" and {others} more" if others else "")
