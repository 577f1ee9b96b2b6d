"""Runs to compare: from a command's words to runs, and the figures by which they are judged and sorted.

A run that fails, or is not solved, is an entry that says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from lib.analysis.difference import counts
from lib.analysis.figures import bubbles, end, most_sent, peak
from lib.checker.verdict import Verdict, check
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.wording import amount, counted, exact, visible
from lib.puzzles.puzzle import AtSize
from lib.puzzles.records import PUZZLES
from lib.suite.cli.console import progress, say
from lib.suite.course.solutions import OFFICIAL, description, files_of, run_of_file
from lib.suite.course.subject import Run
from lib.suite.course.subject import run as run_subject
from lib.suite.grade.intake import submission as intake
from lib.suite.grade.intake.archives import archive_format
from lib.suite.grade.intake.collecting import collect
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.locations import located
from lib.suite.submissions.source import Source, SourceError
from lib.trace.rebuild import rebuild
from lib.trace.trace import Trace

ALL = "all"  # the name of all our solutions to a puzzle: gpipe:all
DIFFERENT = (
    "name a notebook (.ipynb), Python (.py), a saved Trace (.json), a folder or archive of what was handed in, or a "
    f"puzzle, such as gpipe, gpipe:{OFFICIAL} or gpipe:{ALL}"
)


class Figure(NamedTuple):
    """A figure of a run: its title, in a word or two, what it means, and how it is written.

    If it is `judged`, less is better, and the best of several runs is marked.
    """

    title: str
    means: str
    words: Callable[[float], str] = amount
    judged: bool = True


FIGURES: Final[Mapping[str, Figure]] = {
    "time": Figure("time", "when the last rank is done, in time units", exact),
    "memory": Figure("memory", "elements on the rank with the highest peak"),
    "sent": Figure("sent per rank", "elements that the rank sends that sends most"),
    "bubble": Figure("bubble", "share of the ranks' time in which nothing is computed", "{:.1%}".format),
    "collectives": Figure("collectives", "collectives of the rank that joins most", judged=False),
    "messages": Figure("messages", "messages of the rank that passes most", judged=False),
}


class Cell(NamedTuple):
    """A figure in a table. A missing one has neither value nor words, and sorts last."""

    name: str
    value: str
    words: str
    best: bool


@dataclass(frozen=True)
class Entry:
    """Something to run: its name, what it is, its puzzle if known, and whether it is ours; and the result. A Source was
    handed in, and is not trusted. `short` and `title` are its name in words: "FSDP", "Fully sharded data parallel
    (FSDP)".

    A failed run has a Trace up to there, if there is any, and a `message`; `verdict` is for a whole run.
    """

    name: str
    what: Path | str | Source
    puzzle: str | None = None
    ours: bool = False
    short: str = ""
    title: str = ""
    trace: Trace | None = None
    verdict: Verdict | None = None
    error: str = ""
    solved: bool = True

    @property
    def state(self) -> str:
        """Return "correct", "not correct" (a whole run), "failed" or "not solved"."""
        if self.verdict is None:
            return "failed" if self.solved else "not solved"
        return "correct" if self.correct else "not correct"

    @property
    def correct(self) -> bool:
        """Tell whether it is one correct training step."""
        return self.verdict is not None and self.verdict.correct

    @property
    def message(self) -> str:
        """Return the fault, or the reason why a goal does not count; "" if there is neither."""
        if self.verdict is None:
            return visible(self.error)
        if not self.correct:
            return visible("\n".join(("not one correct training step:", *self.verdict.faults)))
        return "" if self.verdict.passed else visible("\n".join(self.verdict.notes))

    @property
    def goals(self) -> tuple[str, ...]:
        """Return the goals reached, easiest first."""
        return tuple(goal.name for goal in self.verdict.goals if goal.reached) if self.verdict and self.correct else ()

    @cached_property
    def figures(self) -> dict[str, float] | None:
        """Return the figures of a whole run, by the names of their rows; None if there are none."""
        if self.verdict is None or (run := self.trace) is None:
            return None
        calls = counts(run)
        sizes = end(run), float(peak(run).elements), most_sent(run), bubbles(run).makespan
        values = (*sizes, sum(calls.collectives.values()), calls.messages)
        return {name: round(value, 9) for name, value in zip(FIGURES, values, strict=True)}

    def cells(self, lowest: Mapping[str, float]) -> list[Cell]:
        """Return its figures for a table, which marks the lowest if it is correct."""
        if self.figures is None:
            return [Cell(name, "", "", False) for name in FIGURES]
        return [
            Cell(name, repr(value), FIGURES[name].words(value), self.correct and lowest.get(name) == value)
            for name, value in self.figures.items()
        ]


def best(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the lowest value of each judged figure among correct runs, unless all have the same."""
    rows = [entry.figures for entry in entries if entry.correct and entry.figures is not None]
    values = {name: {row[name] for row in rows} for name, figure in FIGURES.items() if figure.judged}
    return {name: min(every) for name, every in values.items() if len(every) > 1}


# -- what is to run -------------------------------------------------------------------------------------------------


def chosen(whats: Sequence[str], puzzle: str | None = None) -> list[Entry]:
    """Resolve each NAME=WHAT and WHAT, in order, before anything runs, and say what is left out.

    BadParameter for what does not exist, or makes no sense: a plain function, or a puzzle other than `puzzle`.
    """
    subjects: list[Entry] = []
    try:
        if puzzle is not None:
            _need_schedule(puzzle)
        for what in whats:
            name, equals, rest = what.partition("=")
            named = bool(equals and name and rest) and not Path(what).exists()
            several = _meant(rest if named else what, puzzle)
            if named:
                own = [name] if len(several) == 1 else [f"{name}: {one.name}" for one in several]
                several = [replace(one, name=own, short="", title="") for one, own in zip(several, own, strict=True)]
            subjects += several
    except (SourceError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    # Different files with one name are named by their paths; and all names are printable.
    files = Counter(name for name, _ in {(one.name, one.what) for one in subjects if isinstance(one.what, Path)})
    found: list[Entry] = []
    for one in subjects:
        clash = isinstance(one.what, Path) and files[one.name] > 1
        name = visible(str(one.what) if clash else one.name, lines=False)
        found.append(replace(one, name=name, short=one.short or name, title=one.title or name))
    return found


def _meant(what: str, puzzle: str | None) -> list[Entry]:
    head, colon, way = what.partition(":")
    path = Path(what)
    if what in PUZZLES or (colon and head in PUZZLES):
        return _ours(head, way, puzzle)
    if path.is_dir() or (archive_format(path.name) and path.is_file()):
        return _of_class(path, puzzle)
    if path.suffix not in (".py", ".ipynb", ".json"):
        known = f"; the puzzles are {', '.join(PUZZLES)}" if not path.suffix and not colon else ""
        raise SourceError(f"{what!r} is nothing to compare: {DIFFERENT}{known}")
    if not (path if path.suffix == ".json" else located(path)).is_file():
        raise SourceError(f"there is no file {what}")
    return [Entry(path.name, path, puzzle)]


def _ours(head: str, way: str, puzzle: str | None) -> list[Entry]:
    """Our solutions: `gpipe`, `gpipe:one_f_one_b`, `gpipe:all`."""
    _need_schedule(head)
    if puzzle not in (None, head):
        way_out = "To compare solutions of different puzzles leave --puzzle out"
        raise SourceError(f"{head} is another puzzle than {puzzle}. {way_out}")
    words = PUZZLES[head].title.partition(":")[0]
    initials = "".join(word[0] for word in words.replace("-", " ").split()).upper()
    known = initials if initials == head.upper() else words
    if not way:
        return [Entry(head, head, head, True, known, words if known == words else f"{words} ({known})")]
    files = files_of(head)
    if way != ALL and way not in files:
        raise SourceError(f"{head} has no solution called {way!r}; there are {', '.join([*files, ALL])}")
    subjects: list[Entry] = []
    for name in files if way == ALL else (way,):
        said = known
        if name != OFFICIAL:
            about, _ = description(files[name].read_text("utf-8"))
            named = re.search(r"\(([^()]+)\)\.$", about)  # "Begin with a backward ... (1F1B)."
            said = f"{known}: {name.replace('_', ' ') if named is None else named[1]}"
        subjects.append(Entry(f"{head}:{name}", files[name], head, True, said, said))
    return subjects


def _of_class(path: Path, puzzle: str | None) -> list[Entry]:
    """Collect what each student handed in for a puzzle, in a folder or an archive, without running it."""
    if puzzle is None:
        raise SourceError(f"in {path} there may be many puzzles: say which one with --puzzle")
    collected = collect([path])
    subjects, refused = list[Entry](), [*collected.refused]
    for submission in collected.submissions:
        of_student = intake.chosen(submission, (puzzle,))
        refused += of_student.refused
        if puzzle in of_student.of:
            subjects.append(Entry(submission.student, of_student.of[puzzle][1], puzzle))
    for one in refused:
        say(visible(f"{one.file} is left out: it {one.why}"))
    there = {one.student for one in refused} | {one.name for one in subjects}
    if silent := sum(one.student not in there for one in collected.submissions):
        say(visible(f"{counted(silent, 'student')} handed in nothing for {puzzle}"))
    return subjects


def _need_schedule(puzzle: str) -> None:
    if puzzle not in PUZZLES:
        raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
    if PUZZLES[puzzle].is_function:
        raise SourceError(
            f"the answer to {puzzle} is a plain function: no rank runs it, so there is no schedule to compare. "
            f"`puzzles run {puzzle}` says whether its answers are right"
        )


# -- running it -----------------------------------------------------------------------------------------------------


def entries_of(subjects: Sequence[Entry], limit: float | None = None, **size: Any) -> list[Entry]:
    """Run each subject, and show a bar meanwhile. Nothing that a function does makes this raise, nor does an unusable
    file. `size` are ranks, layers, batches and a mesh other than the puzzle's."""
    given = {name: number for name, number in size.items() if number is not None}
    entries: list[Entry] = []
    with Isolation() as isolation, progress("running") as done:
        for subject in subjects:
            done(len(entries), len(subjects))
            try:
                if isinstance(what := subject.what, Source):
                    entries.append(_run_apart(isolation, subject, what, limit, given))
                else:
                    entries.append(_run(subject, what, limit, given))
            except NotSolved as stub:
                entries.append(replace(subject, solved=False, error=str(NotSolved(stub.puzzle))))
            except (PuzzleError, TraceError, SourceError, BuildError, OSError) as error:
                entries.append(replace(subject, error=str(error), trace=getattr(error, "trace", None)))
    return entries


def _run(subject: Entry, what: Path | str, limit: float | None, given: Mapping[str, Any]) -> Entry:
    """Run our solutions, and the user's own files: see `lib.suite.course.subject`."""
    asked = subject.puzzle
    if subject.ours and asked is not None and isinstance(what, Path) and not given:
        run = Run(subject.name, run_of_file(what, asked), asked, asked)
    else:
        run = run_subject(str(what), puzzle=asked, limit=limit, prints=False, **given)
        if asked is not None and run.trace.puzzle not in (None, asked):
            return replace(subject, error=f"{subject.name} is a run of {run.trace.puzzle}, not of {asked}")
    if run.trace.error is not None:
        return replace(subject, puzzle=run.about, trace=run.trace, error=run.trace.error)
    return replace(subject, puzzle=run.about, trace=run.trace, verdict=check(run.trace, run.puzzle))


def _run_apart(
    isolation: Isolation, subject: Entry, source: Source, limit: float | None, given: Mapping[str, Any]
) -> Entry:
    """Run what was handed in, in isolation. Its Trace is timed anew, as it may state any times."""
    record = PUZZLES[str(subject.puzzle)]  # a hand-in always has a puzzle
    size, mesh = {**record.size._asdict(), **given}, given.get("mesh")
    ranks = size["ranks"] if mesh is None else len(mesh)
    at = AtSize(ranks, size["layers"], size["batches"], mesh) if given else None
    sent = isolation.run(source, record.id, at, Limits() if limit is None else Limits(seconds=limit))
    if sent.outcome == "unsolved":
        raise NotSolved(record.id)
    if sent.outcome != "trace" or sent.trace is None:
        return replace(subject, error=sent.text, trace=sent.trace)
    trace = sent.trace
    with suppress(PuzzleError, TraceError):  # the check says what is wrong with it
        trace = rebuild(trace).run
    return replace(subject, trace=trace, verdict=check(sent.trace, None if given else record.id))
