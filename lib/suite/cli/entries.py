"""Runs to compare: from the words of a command to runs, and the figures by which they are judged and sorted.

What fails, or is not solved, is an entry that says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lib.analysis.difference import counts
from lib.analysis.figures import bubbles, end, most_sent, peak
from lib.checker.checker import check
from lib.checker.verdict import Verdict
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.wording import amount, counted, exact, visible
from lib.puzzles.records import PUZZLES
from lib.suite.cli.console import console
from lib.suite.course.solutions import OFFICIAL, description, files_of, run_of_file
from lib.suite.course.subject import Stub, ran
from lib.suite.grade.intake import submission as intake
from lib.suite.grade.intake.archives import archive_format
from lib.suite.grade.intake.collecting import collect
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import AtSize, Limits
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import puzzle_of
from lib.suite.submissions.locations import located
from lib.suite.submissions.source import Source, SourceError
from lib.trace.rebuild import rebuild
from lib.trace.retiming import retime
from lib.trace.trace import Trace
from lib.trace.validation import FORMAT

__all__ = ["ALL", "FIGURES", "Chosen", "Entry", "Subject", "best", "chosen", "entries_of"]


class Figure(NamedTuple):
    """A figure of a run: what it is called, in a word or two and in a sentence; how it is measured, and written.

    Less is better where it is `judged`: then the best of several runs is marked.
    """

    title: str
    means: str
    of: Callable[[Trace], float]
    words: Callable[[float], str] = amount
    judged: bool = True


def _memory(run: Trace) -> float:
    return float(peak(run).elements)


def _bubble(run: Trace) -> float:
    return bubbles(run).makespan


def _collectives(run: Trace) -> float:
    return sum(counts(run).collectives.values())


def _messages(run: Trace) -> float:
    return counts(run).messages


FIGURES: Final[Mapping[str, Figure]] = {
    "time": Figure("time", "when the last rank is done, in time units", end, exact),
    "memory": Figure("memory", "elements on the rank with the highest peak", _memory),
    "sent": Figure("sent per rank", "elements that the rank sends that sends most", most_sent),
    "bubble": Figure("bubble", "share of the ranks' time in which nothing is computed", _bubble, "{:.1%}".format),
    "collectives": Figure("collectives", "collectives of the rank that joins most", _collectives, judged=False),
    "messages": Figure("messages", "messages of the rank that passes most", _messages, judged=False),
}


def best(rows: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    """The lowest of each figure that is judged, where not all runs have the same. None is a run that does not count."""
    found: dict[str, float] = {}
    for name, figure in FIGURES.items():
        every = [round(row[name], 9) for row in rows if row is not None]
        if figure.judged and every and min(every) < max(every):
            found[name] = min(every)
    return found


BEGINNING = 200
"""Characters at the beginning of a file in which a saved Trace says that it is one."""
REFUSED = 5
"""Files that cannot be read that are named; of more it says how many."""


ALL = "all"
"""The name of all our solutions to a puzzle: gpipe:all."""
ENDINGS = (".py", ".ipynb", ".json")
DIFFERENT = (
    "name a notebook (.ipynb), Python (.py), a saved Trace (.json), a folder or archive of what was handed in, or a "
    f"puzzle, such as gpipe, gpipe:{OFFICIAL} or gpipe:{ALL}"
)


class Called(NamedTuple):
    """The name of a run of ours in words, brief and full: "FSDP", "Fully sharded data parallel (FSDP)"."""

    short: str
    full: str


class Subject(NamedTuple):
    """Something to run: what it is called, what it is, its puzzle where that is known, and whether it is ours. A Source
    is somebody else's, of whom nothing is believed. `called` is its name in words, where it has one."""

    name: str
    what: Path | str | Source
    puzzle: str | None = None
    ours: bool = False
    called: Called | None = None


class Chosen(NamedTuple):
    """The subjects that are to run, and what is to be said of the rest."""

    subjects: list[Subject]
    notes: list[str]


@dataclass(frozen=True)
class Entry:
    """The result of running a subject. A run that failed has a Trace up to there, if it came so far, and a `message`.

    `verdict` is that on a whole run. `puzzle` is None where it has another size than its puzzle, or is of none; `task`
    is the puzzle whatever the size is, where it is known.
    """

    name: str
    puzzle: str | None = None
    trace: Trace | None = None
    verdict: Verdict | None = None
    error: str = ""
    solved: bool = True
    ours: bool = False
    task: str | None = None
    called: Called | None = None

    @property
    def short(self) -> str:
        """Its name in words, brief."""
        return self.name if self.called is None else self.called.short

    @property
    def title(self) -> str:
        """Its name in words."""
        return self.name if self.called is None else self.called.full

    @property
    def state(self) -> str:
        """One correct training step; a whole run that is none; one that came to no end, or none at all; or the stub."""
        if self.verdict is None:
            return "failed" if self.solved else "not solved"
        return "correct" if self.verdict.correct else "not correct"

    @property
    def correct(self) -> bool:
        """True for one correct training step."""
        return self.verdict is not None and self.verdict.correct

    @property
    def message(self) -> str:
        """The fault, or the reason why a goal does not count; "" where there is nothing to say."""
        if self.verdict is None:
            return visible(self.error)
        if not self.verdict.correct:
            return visible("\n".join(("not one correct training step:", *self.verdict.faults)))
        return "" if self.verdict.passed else visible("\n".join(self.verdict.notes))

    @property
    def goals(self) -> tuple[str, ...]:
        """The goals reached, easiest first."""
        return tuple(goal.name for goal in self.verdict.goals if goal.reached) if self.verdict and self.correct else ()

    @cached_property
    def figures(self) -> dict[str, float] | None:
        """The figures of a whole run, by the names of their rows; None where it has none."""
        if self.verdict is None or self.trace is None:
            return None
        return {name: figure.of(self.trace) for name, figure in FIGURES.items()}


def chosen(whats: Sequence[str], puzzle: str | None = None) -> Chosen:
    """Resolve each NAME=WHAT and WHAT, in their order, before anything runs.

    SourceError for what there is not, and for what makes no sense: a plain function, or another puzzle than `puzzle`.
    """
    if puzzle is not None:
        _need_schedule(puzzle)
    found: list[Subject] = []
    notes: list[str] = []
    for what in whats:
        name, equals, rest = what.partition("=")
        named = bool(equals and name and rest) and not Path(what).exists()
        several = _meant(rest if named else what, puzzle, notes)
        if named:
            said = [name if len(several) == 1 else f"{name}: {one.name}" for one in several]
            several = [one._replace(name=own, called=None) for one, own in zip(several, said, strict=True)]
        found += several
    shown = [one._replace(name=visible(one.name, lines=False)) for one in _told_apart(_short(found))]
    titles = Counter(one.called for one in shown)
    shown = [one if titles[one.called] == 1 else one._replace(called=None) for one in shown]
    return Chosen(shown, [visible(note) for note in notes])


def _meant(what: str, puzzle: str | None, notes: list[str]) -> list[Subject]:
    head, colon, way = what.partition(":")
    path = Path(what)
    if what in PUZZLES or (colon and head in PUZZLES):
        return _ours(head, way, puzzle)
    if path.is_dir() or (archive_format(path.name) is not None and path.is_file()):
        return _of_class(path, puzzle, notes)
    if path.suffix not in ENDINGS:
        known = f"; the puzzles are {', '.join(PUZZLES)}" if not path.suffix and not colon else ""
        raise SourceError(f"{what!r} is nothing to compare: {DIFFERENT}{known}")
    if not (path if path.suffix == ".json" else located(path)).is_file():
        raise SourceError(f"there is no file {what}")
    return [Subject(path.name, path, puzzle)]


def _ours(head: str, way: str, puzzle: str | None) -> list[Subject]:
    """Our solutions: `gpipe`, `gpipe:one_f_one_b`, `gpipe:all`."""
    _need_schedule(head)
    if puzzle not in (None, head):
        raise SourceError(
            f"{head} is another puzzle than {puzzle}. To compare solutions of different puzzles leave --puzzle out"
        )
    if not way:
        return [Subject(head, head, head, ours=True, called=_in_words(head))]
    files = files_of(head)
    if way != ALL and way not in files:
        raise SourceError(f"{head} has no solution called {way!r}; there are {', '.join([*files, ALL])}")
    names = files if way == ALL else (way,)
    return [Subject(f"{head}:{name}", files[name], head, True, _in_words(head, name)) for name in names]


def _in_words(puzzle: str, way: str = "") -> Called:
    """Name our solution to a puzzle, or another one."""
    words = PUZZLES[puzzle].title.partition(":")[0]
    initials = "".join(word[0] for word in words.replace("-", " ").split()).upper()
    known = initials if initials == puzzle.upper() else words
    if not way:
        return Called(known, words if known == words else f"{words} ({known})")
    if way == OFFICIAL:
        return Called(known, known)
    about, _ = description(files_of(puzzle)[way].read_text("utf-8"))
    named = re.search(r"\(([^()]+)\)\.$", about)  # "Begin with a backward ... (1F1B)."
    way = way.replace("_", " ") if named is None else named[1]
    return Called(f"{known}: {way}", f"{known}: {way}")


def _of_class(path: Path, puzzle: str | None, notes: list[str]) -> list[Subject]:
    """Collect what each student handed in for a puzzle, in a folder or an archive, and the Traces that lie in a folder.
    Nothing of it runs."""
    if puzzle is None:
        raise SourceError(f"in {path} there may be many puzzles: say which one with --puzzle")
    collected = collect([path])
    found: list[Subject] = []
    refused = [*collected.refused]
    without: list[str] = []
    for submission in collected.submissions:
        of_student = intake.chosen(submission, (puzzle,))
        refused += of_student.refused
        if puzzle in of_student.of:
            found.append(Subject(submission.student, of_student.of[puzzle][1], puzzle))
        else:
            without.append(submission.student)
    notes += [f"{one.file} is left out: it {one.why}" for one in refused[:REFUSED]]
    if len(refused) > REFUSED:
        notes.append(f"{len(refused) - REFUSED} more files are left out; `puzzles grade` says of each why")
    named = {one.student for one in refused}
    if silent := sum(student not in named for student in without):
        notes.append(f"{counted(silent, 'student')} handed in nothing for {puzzle}")
    traces = [file for file in sorted(path.glob("*.json")) if file.is_file() and _is_trace(file)]
    return found + [Subject(file.name, file, puzzle) for file in traces]


def _is_trace(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return FORMAT in file.read(BEGINNING)


def _need_schedule(puzzle: str) -> None:
    if puzzle not in PUZZLES:
        raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
    if PUZZLES[puzzle].is_function:
        raise SourceError(
            f"the answer to {puzzle} is a plain function: no rank runs it, so there is no schedule to compare. "
            f"`puzzles run {puzzle}` says whether its answers are right"
        )


def _short(found: list[Subject]) -> list[Subject]:
    """Shorten our names where all are of one puzzle: gpipe:interleaved is interleaved."""
    short = [
        one._replace(name=one.name.rpartition(":")[2], called=one.called and Called(*map(_way, one.called)))
        if one.ours
        else one
        for one in found
    ]
    of_one = len({one.puzzle for one in found}) == 1
    return short if of_one and len({one.name for one in short}) == len({one.name for one in found}) else found


def _way(words: str) -> str:
    way = words.rpartition(": ")[2]
    return way[:1].upper() + way[1:]


def _told_apart(found: list[Subject]) -> list[Subject]:
    """Files of one name in different folders are called by their paths."""
    names = Counter(name for name, _ in {(one.name, one.what) for one in found if isinstance(one.what, Path)})
    return [
        one._replace(name=str(one.what)) if isinstance(one.what, Path) and names[one.name] > 1 else one for one in found
    ]


def entries_of(subjects: Sequence[Subject], limit: float | None = None, **size: Any) -> list[Entry]:
    """Run each subject, with a bar meanwhile. Nothing is raised for anything that a function does, or for a file
    that will not do. `size` are ranks, layers, batches and a mesh in place of the puzzle's."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[name]}")
    given = {name: number for name, number in size.items() if number is not None}
    with Isolation() as isolation, Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("running", total=len(subjects), name="")
        found: list[Entry] = []
        for subject in subjects:
            progress.update(task, name=escape(subject.name))
            if isinstance(subject.what, Source):
                found.append(_kept_apart(isolation, subject, subject.what, limit, given))
            else:
                found.append(_entry(subject, subject.what, limit, given))
            progress.advance(task)
        return found


def _entry(subject: Subject, what: Path | str, limit: float | None, given: Mapping[str, Any]) -> Entry:
    """Run our solutions, and the user's own files: see `lib.suite.course.subject`."""
    start = _start(subject)
    try:
        if subject.ours and isinstance(what, Path) and not given:
            assert subject.puzzle is not None, "ours are of a puzzle"
            trace, puzzle = run_of_file(what, subject.puzzle), subject.puzzle
        else:
            found = ran(str(what), puzzle=subject.puzzle, limit=limit, **given)
            trace, puzzle = found.trace, found.puzzle
            if subject.puzzle is not None and trace.puzzle not in (None, subject.puzzle):
                return replace(start, error=f"{subject.name} is a run of {trace.puzzle}, not of {subject.puzzle}")
    except Stub:
        return _unsolved(start)
    except (PuzzleError, TraceError, SourceError, BuildError, OSError) as error:
        return replace(start, error=str(error), trace=getattr(error, "trace", None))
    start = replace(start, task=start.task or trace.puzzle or puzzle or _named(what))
    if trace.error is not None:
        return replace(start, puzzle=puzzle, trace=trace, error=trace.error)
    return replace(start, puzzle=puzzle, trace=trace, verdict=check(trace, puzzle))


def _start(subject: Subject) -> Entry:
    return Entry(subject.name, subject.puzzle, ours=subject.ours, task=subject.puzzle, called=subject.called)


def _named(what: Path | str) -> str | None:
    """The puzzle that a file of the user's is about, at whatever size it ran."""
    try:
        return None if str(what).endswith(".json") else puzzle_of(what)
    except (SourceError, OSError):
        return None


def _kept_apart(
    isolation: Isolation, subject: Subject, source: Source, limit: float | None, given: Mapping[str, Any]
) -> Entry:
    """Run what somebody else handed in, kept apart. Its Trace is timed anew: it may state any times."""
    assert subject.puzzle is not None, "what is handed in is of a puzzle"
    record, start = PUZZLES[subject.puzzle], _start(subject)
    if source.untouched(record.id):
        return _unsolved(start)
    mesh = given.get("mesh")
    size: dict[str, int] = {name: given.get(name, number) for name, number in record.size._asdict().items()}
    ranks = size["ranks"] if mesh is None else len(mesh)
    at = AtSize(ranks, size["layers"], size["batches"], mesh) if given else None
    limits = Limits() if limit is None else Limits(seconds=limit)
    sent = isolation.run(source, record.id, at, limits)
    if sent.outcome == "unsolved":
        return _unsolved(start)
    if sent.outcome != "trace" or sent.trace is None:
        return replace(start, error=sent.text, trace=sent.trace)
    puzzle = record.id if at is None else None
    try:
        trace = retime(rebuild(sent.trace).run, sent.trace.costs)
    except (PuzzleError, TraceError):
        trace = sent.trace  # the check says what is wrong with it
    return replace(start, puzzle=puzzle, trace=trace, verdict=check(sent.trace, puzzle))


def _unsolved(start: Entry) -> Entry:
    return replace(start, solved=False, error=str(NotSolved(start.puzzle or start.name)))
