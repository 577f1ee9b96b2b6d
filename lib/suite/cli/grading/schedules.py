"""The schedules of a class: of each puzzle the distinct ones with their students, and the pictures of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import amount, counted, exact, visible
from lib.files import ready, write_whole
from lib.processes import shared_out
from lib.suite.grade.gradebook import Asked, Gradebook, Result, Score
from lib.suite.submissions.source import STATES, State
from lib.trace.trace import Trace

__all__ = ["MOST_EVENTS", "ClassPuzzle", "Drawn", "Kind", "Order", "Pictures", "Traces", "draw_all", "goals_reached"]
__all__ += ["puzzles_of"]

NAMED: Final = 12
"""Students that the pointer names at a dot."""


class Kind(NamedTuple):
    """A schedule that is correct at the puzzle's size, and who handed it in: rows of the students, in order.

    `passes` and `everywhere`: whether it passed for one of them, and whether it was correct at all other sizes.
    """

    result: Result
    goals: int
    passes: bool
    everywhere: bool
    students: tuple[int, ...]

    @property
    def rank(self) -> tuple[float | str, ...]:
        """The best first."""
        own = self.result
        return not self.everywhere, -self.goals, own.time or 0.0, own.memory or 0.0, own.sent or 0.0, own.schedule


@dataclass(frozen=True)
class ClassPuzzle:
    """One puzzle of a class. `scores` are those of the students by their rows; who did not hand it in has none."""

    asked: Asked
    scores: Mapping[int, Score]
    counts: Mapping[str, int]
    kinds: tuple[Kind, ...]
    picture: str = ""

    @property
    def states(self) -> list[tuple[State, int]]:
        """The number of students in each state, those that nobody is in left out."""
        return [(state, self.counts[name]) for name, state in STATES.items() if self.counts.get(name)]

    @property
    def best(self) -> Result | None:
        """The best of the class that is correct at all sizes: the most goals, the shortest time, the least memory."""
        return next((kind.result for kind in self.kinds if kind.everywhere), None)

    @property
    def size(self) -> str:
        """The size at which the reference runs, in words."""
        return self.reference.size if self.reference is not None else "a table of answers"

    @property
    def reference(self) -> Result | None:
        """The result of our own solution."""
        return self.asked.reference


def puzzles_of(book: Gradebook) -> list[ClassPuzzle]:
    """The puzzles that were asked, in order."""
    rows = [{score.puzzle: score for score in student.scores} for student in book.students]
    return [
        _puzzle(book, asked, {row: scores[asked.puzzle] for row, scores in enumerate(rows) if asked.puzzle in scores})
        for asked in book.asked
    ]


def _puzzle(book: Gradebook, asked: Asked, scores: Mapping[int, Score]) -> ClassPuzzle:
    counts = Counter(STATES[score.state].word for score in scores.values())
    counts["absent"] += len(book.students) - len(scores)
    found = ClassPuzzle(asked, scores, counts, _kinds(asked, scores))
    return replace(found, picture=_spread(book, found))


def _kinds(asked: Asked, scores: Mapping[int, Score]) -> tuple[Kind, ...]:
    """The distinct schedules, the best first. Of equal ones a state may differ, by what they do at other sizes."""
    students: dict[str, list[int]] = {}
    for row, score in scores.items():
        if score.correct and score.own.schedule and score.own.time is not None:
            students.setdefault(score.own.schedule, []).append(row)
    found: list[Kind] = []
    for rows in students.values():
        own, states = scores[rows[0]].own, {scores[row].state for row in rows}
        passes, everywhere = "passed" in states, not states.isdisjoint(("passed", "missed"))
        found.append(Kind(own, goals_reached(asked, own), passes, everywhere, tuple(rows)))
    return tuple(sorted(found, key=lambda kind: kind.rank))


def goals_reached(asked: Asked, result: Result) -> int:
    """Count the goals that were reached, from the easiest on."""
    return sum(name in result.goals for name, _, _ in asked.goals)


def _spread(book: Gradebook, puzzle: ClassPuzzle) -> str:
    """The picture of time against memory, as markup; nothing where all correct schedules, if any, are at one place."""
    from drawing.comparing.dots import Handed, draw_spread  # here: a class of plain functions needs none
    from lib.puzzles.records import Goal

    places: dict[tuple[float, float], list[Kind]] = {}
    for kind in puzzle.kinds:
        places.setdefault((kind.result.time or 0.0, kind.result.memory or 0.0), []).append(kind)
    if len(places) < 2:
        return ""
    dots: list[Handed] = []
    for (time, memory), here in places.items():
        count, passes = sum(len(kind.students) for kind in here), any(kind.passes for kind in here)
        dots.append(Handed(time, memory, count, passes, _title(book, time, memory, here)))
    goals = [Goal(name, time, memory) for name, time, memory in puzzle.asked.goals]
    reference, best = (
        None if one is None or one.time is None or one.memory is None else (one.time, one.memory)
        for one in (puzzle.reference, puzzle.best)
    )
    picture = draw_spread(f"{puzzle.asked.title}: time against memory", dots, goals, reference, best)
    return picture.svg().strip()


def _title(book: Gradebook, time: float, memory: float, here: list[Kind]) -> str:
    rows = sorted(row for kind in here for row in kind.students)
    names = [visible(book.students[row].name, lines=False)[:60] for row in rows[:NAMED]]
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    head = f"time {exact(time)}, memory {amount(memory)}: {counted(len(rows), 'student')}"
    schedules = f", {counted(len(here), 'schedule')}" if len(here) > 1 else ""
    return f"{head}{schedules}\n{', '.join(names)}{more}"


# -- pictures -------------------------------------------------------------------------------------------------------

FEW: Final = 100
"""Pictures that are drawn here before other processes would have started."""
MOST_EVENTS: Final = 60_000
"""Operations of all schedules of a picture; what is larger is said in words."""
EDITION: Final = "2"
"""Changes when pictures are drawn otherwise: those of before have other names."""


class Traces(Protocol):
    """A store of schedules by their digests: without source lines, which are a student's own."""

    def load(self, digest: str) -> Trace:
        """One of them. OSError or TraceError where it cannot be read."""
        ...


class Order(NamedTuple):
    """A picture to be drawn: digests of schedules and what they are called, one alone or several compared. Whether the
    first of them is correct: if not, its figures are not to be measured by."""

    digests: tuple[str, ...]
    names: tuple[str, ...]
    correct: bool

    @property
    def key(self) -> str:
        """The name of its file, without the ending."""
        return sha256("\n".join([EDITION, str(self.correct), *self.digests, *self.names]).encode()).hexdigest()[:16]


class Drawn(NamedTuple):
    """A picture that there is: its file, its size in pixels, and the words that say what it shows."""

    file: str
    width: str
    height: str


@dataclass(frozen=True)
class Pictures:
    """The folder of pictures of a report."""

    folder: Path
    traces: Traces

    def path(self, order: Order) -> Path:
        """The place of a picture, drawn or not."""
        return self.folder / f"{order.key}.svg"

    def drawn(self, order: Order) -> Drawn:
        """A picture that there is."""
        path = self.path(order)
        with path.open(encoding="utf-8") as file:
            head = file.read(400)
        found = re.search(r'width="([\d.]+)" height="([\d.]+)"', head)
        width, height = found.groups() if found is not None else ("840", "400")
        return Drawn(path.name, width, height)

    def svg(self, order: Order) -> str:
        """A picture as markup, to stand in a page that needs no other file."""
        return self.path(order).read_text("utf-8").strip()

    def keep(self, orders: Iterable[Order]) -> None:
        """Delete pictures of ours that none of these is."""
        keys = {order.key for order in orders}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.suffix == ".svg" and re.fullmatch("[0-9a-f]{16}", path.stem) and path.stem not in keys:
                path.unlink()

    def draw(self, order: Order) -> str:
        """Draw one. What cannot be drawn becomes a picture of the words that say why."""
        from drawing import draw  # here and not above: a report with no schedules needs none
        from drawing.comparing.comparison import Compared, Comparison
        from drawing.timeline.schedule import note

        try:
            traces = [self.traces.load(digest) for digest in order.digests]
        except (OSError, TraceError) as error:
            return note(f"the schedule cannot be read: {type(error).__name__}").svg()
        events = sum(len(program.events) for trace in traces for program in trace.programs)
        if events > MOST_EVENTS:
            return note(f"a schedule of {events:,} operations is too large to be drawn here").svg()
        try:
            if len(traces) == 1:
                return draw(traces[0], fold=True).svg()
            wrong = "" if order.correct else traces[0].error or "not one correct training step"
            first = Compared(order.names[0], traces[0], wrong, order.correct)
            others = (Compared(name, trace) for name, trace in zip(order.names[1:], traces[1:], strict=True))
            return Comparison([first, *others]).picture().svg()
        except PuzzleError as error:  # of a run that stopped in the middle, or that no rank could have had
            return note(f"the schedule cannot be drawn: {type(error).__name__}").svg()


def draw_all(pictures: Pictures, orders: Iterable[Order], jobs: int, done: Callable[[int], None]) -> None:
    """Draw what is missing, in so many processes of this machine. `done` is told how many there are to come."""
    missing = [order for order in dict.fromkeys(orders) if not pictures.path(order).is_file()]
    done(len(missing))
    alone = jobs == 1 or len(missing) < FEW
    at_once, left = 1 if alone else FEW, len(missing)
    parts = [missing[start : start + at_once] for start in range(0, left, at_once)]
    # Whatever cluster grades: the files are to be here, and each of them takes milliseconds.
    for count in shared_out(partial(_several, pictures), parts, 1 if alone else jobs, "drawing", backend="loky"):
        left -= count
        done(left)


def _several(pictures: Pictures, orders: Sequence[Order]) -> int:
    for order in orders:
        write_whole(ready(pictures.path(order)), pictures.draw(order))
    return len(orders)
