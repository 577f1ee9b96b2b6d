"""Classes of students who do not exist: real runs of references, other ways and mistakes, dealt out by arithmetic.

No student's code is isolated here: this is for what reads a gradebook.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

from lib import PUZZLES, PuzzleError, Trace, Unsolved, check, simulate
from lib.puzzles.puzzle import AtSize, Size
from lib.suite.course.solutions import files_of
from lib.suite.grade.gradebook import Asked, Gradebook, Refused, Result, Score, Student, Traces, schedule_of
from lib.suite.submissions.load import load_function
from lib.trace.validation import decode
from tests.diagnosis import corpus

__all__ = ["InMemory", "Way", "asked", "class_of", "ways"]

MISTAKES = 6
"""Of each puzzle, at most."""


@dataclass(frozen=True)
class InMemory(Traces):
    """Schedules by their digests, as `lib.suite.grade.gradebook` keeps them in a folder."""

    packed: Mapping[str, bytes]

    def load(self, digest: str) -> Trace:
        """One of them. FileNotFoundError where it is not there."""
        if digest not in self.packed:
            raise FileNotFoundError(f"there is no schedule {digest}")
        return decode(json.loads(gzip.decompress(self.packed[digest])))


@dataclass(frozen=True)
class Way:
    """A way to hand in a puzzle, and what comes of it at all its sizes."""

    name: str
    own: Result
    hidden: tuple[Result, ...]
    trace: Trace | None

    @property
    def state(self) -> str:
        elsewhere = {one.state for one in self.hidden}
        if self.own.correct and elsewhere & {"failed", "unsolved"}:
            return "partly"
        return "missed" if self.own.correct and "missed" in elsewhere else self.own.state


def run(function: Any, puzzle: str, size: AtSize | None = None) -> tuple[Result, Trace | None]:
    """What comes of a function at a size; at the puzzle's, unless another is given."""
    record = PUZZLES[puzzle]
    given = {} if size is None else size.given()
    words = Size.of(size or record).words()
    try:
        models = simulate(function, puzzle=puzzle, **given)
    except PuzzleError as error:
        trace = error.trace
        digest = "" if trace is None else schedule_of(trace).digest
        return Result(words, "failed", message=str(error), schedule=digest), trace
    if isinstance(models, Unsolved):
        return Result(words, "unsolved", message="the gap is still as it was handed out"), None
    trace = Trace.of(models)
    verdict = check(trace, puzzle) if size is None else check(trace)
    goals = tuple(goal.name for goal in verdict.goals if goal.reached)
    state = "failed" if not verdict.correct else "passed" if size is not None or goals else "missed"
    result = Result(words, state, goals, message=verdict.text(), schedule=schedule_of(trace).digest)
    if verdict.correct:
        figures = {"time": verdict.time, "memory": verdict.memory, "sent": verdict.sent, "rank": verdict.rank}
        result = replace(result, **figures)
    return result, trace


@cache
def ways(puzzle: str) -> tuple[Way, ...]:
    record = PUZZLES[puzzle]
    if record.is_function:
        right = Result("its table, and 400 inputs drawn at random", "passed", message="Correct! Right on all.")
        wrong = replace(right, state="failed", message="Not right yet.\n  [2], [0] should raise a ValueError")
        return Way("reference", right, (), None), Way("mistake", wrong, (), None)
    files = files_of(puzzle).values()
    found = [_way(file.stem, load_function(file, puzzle), puzzle) for file in files]
    for case in corpus.cases():
        if case.puzzle == puzzle and case.change is not None and len(found) < len(files) + MISTAKES:
            with corpus.function(case) as student:
                found.append(_way(case.name, student, puzzle))
    return tuple(found)


def _way(name: str, function: Any, puzzle: str) -> Way:
    own, trace = run(function, puzzle)
    hidden = tuple(run(function, puzzle, size)[0] for size in PUZZLES[puzzle].hidden)
    return Way(name, own, hidden, trace)


def asked(puzzle: str) -> Asked:
    record = PUZZLES[puzzle]
    if record.is_function:
        return Asked(puzzle, record.title, record.number)
    goals = tuple((goal.name, goal.time, goal.memory) for goal in record.goals)
    hidden = tuple(Size.of(size).words() for size in record.hidden)
    return Asked(puzzle, record.title, record.number, goals, goals[0][0], hidden, ways(puzzle)[0].own)


def class_of(students: int, puzzles: Sequence[str]) -> tuple[Gradebook, InMemory]:
    """A gradebook of so many students, and the schedules in it: each hands in another way than the one before."""
    found = [way for puzzle in puzzles for way in ways(puzzle) if way.trace is not None]
    traces = {way.own.schedule: schedule_of(way.trace).packed for way in found if way.trace is not None}
    rows = [
        Student(
            f"{FIRST[number % len(FIRST)]} {LAST[number % len(LAST)]} {number:03d}",
            tuple(_score(puzzle, number + 3 * place, number) for place, puzzle in enumerate(puzzles)),
        )
        for number in range(students)
    ]
    refused = (
        Refused("late/empty.ipynb", "the file is empty: nothing was saved in it"),
        Refused("photo.heic", "neither a notebook (.ipynb) nor Python (.py) nor a zip of them"),
    )
    isolation = ("user namespaces: no network, no other process is seen", "limits on processor time and memory")
    rows.sort(key=lambda row: row.name)
    return Gradebook(tuple(map(asked, puzzles)), tuple(rows), refused, isolation, "0.1.0"), InMemory(traces)


def _score(puzzle: str, turn: int, number: int) -> Score:
    """Nothing, the gap as it was, or one of the ways, in turn."""
    place, file = turn % (len(ways(puzzle)) + 2), f"{number:03d}/{PUZZLES[puzzle].stem}.ipynb"
    if place == 0:
        return Score(puzzle, "absent", Result("", "absent"))
    if place == 1:
        own = Result(ways(puzzle)[0].own.size, "unsolved", message="the gap is still as it was handed out")
        return Score(puzzle, "unsolved", own, file=file)
    way = ways(puzzle)[place - 2]
    source = sha256(f"{way.name} {number % 5}".encode()).hexdigest()[:16]
    return Score(puzzle, way.state, way.own, way.hidden, file, source, (None, 0, 1, 3)[number % 4])


FIRST = ("Anna", "Ben", "Chiamaka", "Duc", "Émile", "Fatima", "Göran", "Hana", "Íris", "José", "Keiko", "Łukasz", "Mei")
LAST = ("Schmidt", "O'Neill", "Nguyễn", "Silva", "Kowalski", "Çelik", "Tanaka", "Okafor", "Li", "al-Haddad", "van Dijk")
