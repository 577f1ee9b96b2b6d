"""grade: a class, graded. Every student's function at every size in isolation, on as many processes as there are.

What is finished is in a journal at once, so that who is stopped, by Ctrl-C or by kill -9, goes on where it was; the
same code, asked the same, is run once, whoever handed it in. The gradebook follows from what was handed in and asked
alone: not from the number of processes, nor from the order in which they finish.

Under `out` are then work/journal.jsonl, and work/traces/ with each distinct schedule.

`require` is what the hidden tests of a notebook for nbgrader call. It takes the function out of the cells that IPython
has run, as text: what the notebook has changed in its own process (`Model.check`, a clock) counts for nothing. nbgrader
itself runs a student's code with your rights next to it: see TEACHING.md.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from lib.errors.exceptions import CheckError
from lib.errors.source_lines import notebook
from lib.errors.wording import visible
from lib.processes import shared_out
from lib.puzzles.records import PUZZLES
from lib.suite.grade.assignment import Assignment, Config
from lib.suite.grade.gradebook import (
    Asked,
    Entry,
    Gradebook,
    Journal,
    Mark,
    Refused,
    Result,
    Schedule,
    Score,
    Student,
    Traces,
    version,
)
from lib.suite.grade.intake.roster import DEADLINE, SUBMITTED, moment
from lib.suite.grade.intake.submission import Collected, File, Submission, chosen, renamed_in, stem_of
from lib.suite.grade.judging import Required, judge_source, reference_result
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.source import STATES, Source
from lib.suite.submissions.statements import without_package

# -- grading -------------------------------------------------------------------------------------------------------

JOURNAL: Final = Path("work", "journal.jsonl")
TRACES: Final = Path("work", "traces")
AT_ONCE: Final = 16  # functions that are sent to a process together: each takes hundredths of a second
MOST_ATTEMPTS: Final = 10  # earlier attempts of a student that are run, where the best counts
GONE: Final = 1.0  # seconds between two looks of a worker at whether its parent is still there


def worked_on(collected: Collected) -> tuple[str, ...]:
    """Return the puzzles in which somebody has written something; if nobody has, those that somebody handed in."""
    touched, there = set[str](), set[str]()
    for submission in collected.submissions:
        for file, source in submission.sources():
            if not isinstance(source, Refused):
                found = source.puzzles()
                there.update(found)
                touched.update(row.puzzle for row in renamed_in(file, source, PUZZLES))
                touched.update(puzzle for puzzle in found if puzzle not in touched and not source.untouched(puzzle))
    return tuple(puzzle for puzzle in PUZZLES if puzzle in (touched or there))


def grade(
    collected: Collected,
    assignment: Assignment,
    out: str | Path,
    *,
    jobs: int | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Gradebook:
    """Grade all submissions, in `jobs` processes (None: in this one, -1: one for each core).

    `done(so_far, all)` is called with numbers of students now and then. OSError where another process is
    grading into the same folder.
    """
    journal, traces = Journal(Path(out) / JOURNAL), Traces(Path(out) / TRACES)
    try:
        asked: list[Asked] = []
        for required in assignment.required:
            record, ours = required.record, reference_result(required)
            goals = tuple((goal.name, goal.time, goal.memory) for goal in record.goals)
            if ours is not None and ours.schedule is not None:
                traces.keep(ours.schedule)
            own = None if ours is None else ours.score.own
            asked.append(Asked(record.id, record.title, record.number, goals, required.need, required.sizes, own))
        prefix = sha256(f"{version()} {assignment.limits}".encode()).hexdigest()[:8]
        grading = _Grading(collected, assignment, journal, traces, prefix, journal.known(prefix))
        grading.run(jobs, done)
        return grading.book(asked)
    finally:
        journal.close()


class _Job(NamedTuple):
    """One function of one source, to be judged. What has the same key is the same."""

    key: str
    source: Source
    required: Required


class _Row(NamedTuple):
    """A student's row: of each puzzle that was handed in every attempt that may count, the latest last, and its key."""

    submission: Submission
    keys: defaultdict[str, list[tuple[File, str]]]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Grading:
    """One grading under way: what is known, and which keys are not yet."""

    collected: Collected
    assignment: Assignment
    journal: Journal
    traces: Traces
    prefix: str
    known: dict[str, Entry]
    rows: list[_Row] = field(default_factory=list[_Row])
    refused: list[Refused] = field(default_factory=list[Refused])
    pending: set[str] = field(default_factory=set[str])
    error: BaseException | None = None

    def run(self, jobs: int | None, done: Callable[[int, int], None] | None) -> None:
        """Judge what is not known."""

        def tell() -> None:
            waits = ((key for several in row.keys.values() for _, key in several) for row in self.rows)
            if done is not None:
                done(sum(map(self.pending.isdisjoint, waits)), len(self.collected.submissions))

        tell()
        judge = partial(_judge, limits=self.assignment.limits)
        batches, options = self._batches(), {"batch_size": 1, "pre_dispatch": "2*n_jobs"}
        try:
            for several in shared_out(judge, batches, jobs, "grading", ends=True, **options):
                for key, entry, schedule in several:
                    if schedule is not None:  # before the line that speaks of it
                        self.traces.keep(schedule)
                    self.known[key] = entry
                    self.journal.add(key, entry)
                    self.pending.discard(key)
                tell()
        finally:
            _isolation().close()
        if self.error is not None:
            raise self.error

    def _batches(self) -> Iterator[list[_Job]]:
        """Yield what is to be judged. joblib asks for more in threads of its own, where an error would be nobody's."""
        batch: list[_Job] = []
        try:
            for submission in self.collected.submissions:
                batch += self._jobs_of(submission)
                while len(batch) >= AT_ONCE:
                    yield batch[:AT_ONCE]
                    batch = batch[AT_ONCE:]
            if batch:
                yield batch
        except BaseException as error:
            self.error = error

    def _jobs_of(self, submission: Submission) -> Iterator[_Job]:
        """Read a submission, and yield what of it is not known, nor under way."""
        found = chosen(submission, [required.record.id for required in self.assignment.required])
        row = _Row(submission, defaultdict(list), (*submission.notes, *found.notes))
        self.rows.append(row)
        self.refused += found.refused
        for required in self.assignment.required:
            puzzle = required.record.id
            if puzzle not in found.of:
                continue
            for file, source in (*self._earlier(submission, puzzle, found.of[puzzle][0]), found.of[puzzle]):
                code = repr((source.cells, source.modules)).encode("utf-8", "surrogatepass")
                key = f"{self.prefix}-{sha256(code).hexdigest()[:32]}-{puzzle}-{required.key}"
                row.keys[puzzle].append((file, key))
                digest = self.known[key].score.own.schedule if key in self.known else None
                # What is known has its schedule, if it has one, still in the folder.
                if key not in self.pending and (digest is None or (digest and digest not in self.traces)):
                    self.pending.add(key)
                    yield _Job(key, source, required)

    def _earlier(self, submission: Submission, puzzle: str, latest: File) -> Iterator[tuple[File, Source]]:
        """Yield what else may count for a puzzle where the best attempt does: what is chosen of each earlier one."""
        is_best = self.assignment.rules.attempts == "best"
        before = {file.attempt for file in submission.files if is_best and file.attempt < latest.attempt}
        for attempt in sorted(before)[-MOST_ATTEMPTS:]:
            files = tuple(file for file in submission.files if file.attempt == attempt)
            yield from chosen(replace(submission, files=files), [puzzle]).of.values()

    def book(self, asked: Sequence[Asked]) -> Gradebook:
        """The gradebook. All that was handed in is known."""
        refused: defaultdict[str, list[Refused]] = defaultdict(list)
        every = (*self.collected.refused, *self.refused)
        for unread in every:
            refused[unread.student].append(unread)
        features: list[tuple[str, ...]] = []
        students: list[Student] = []
        for of, keys, said in self.rows:
            scores: list[Score] = []
            marks: list[Mark] = []
            notes = list(said)
            for one in asked:
                if one.puzzle not in keys:
                    scores.append(missing(one.puzzle, refused[of.student], others=bool(keys), anything=bool(of.files)))
                    marks.append(self._mark(of, None, scores[-1], one))
                    continue
                tried = [(file, self.known[key]) for file, key in keys[one.puzzle]]
                worth = [self._mark(of, file, entry.score, one) for file, entry in tried]
                # The one with most points, and where they are equal with what they are for; else the latest.
                order = [
                    (mark.points, -list(STATES).index(its.state), its.hidden_passed, len(its.own.goals), number)
                    for number, (mark, its) in enumerate(zip(worth, (entry.score for _, entry in tried), strict=True))
                ]
                best = max(order)[-1]
                file, entry = tried[best]
                features.append(entry.isolation)
                opened = [count for count in (entry.score.hints, of.hints.get(one.puzzle)) if count is not None]
                scores.append(replace(entry.score, file=file.name, hints=max(opened, default=None)))
                marks.append(worth[best])
                if len(tried) > 1:
                    notes.append(f"{one.puzzle}: the best of {len(tried)} attempts counts, {file.name}")
            its_id = of.roster_id or of.id
            students.append(Student(of.student, tuple(scores), tuple(notes), its_id, tuple(marks), of.more))
        return Gradebook(
            tuple(asked),
            tuple(students),
            tuple(sorted(set(every), key=lambda one: (one.file, one.why, one.student, one.puzzle))),
            tuple(word for word in (features or [()])[0] if all(word in kept for kept in features)),
            made_by(),
            self.assignment.title,
        )

    def _mark(self, submission: Submission, file: File | None, score: Score, asked: Asked) -> Mark:
        """The points of a score, with what it costs that its file came late."""
        rules, cells = self.assignment.rules, {heading.casefold(): text for heading, text in submission.more}
        until = moment(cells.get(DEADLINE, ""))
        due = rules.due(submission.roster_id or submission.id, submission.student, until)
        # Without a platform the time is that of a folder, which a student may have named.
        told = file.attempt[0] if file is not None and submission.platform else ""
        when = moment(told) or next((found for name in SUBMITTED if (found := moment(cells.get(name, "")))), None)
        return rules.mark(score, asked, when, due, submission.late and due == rules.deadline)


def made_by() -> str:
    """Return this package and its version; the digest says exactly which code it was."""
    name = "llm-training-puzzles"
    with suppress(metadata.PackageNotFoundError):
        return f"{name} {metadata.version(name)} ({version()})"
    return f"{name} ({version()})"


def missing(puzzle: str, refused: Sequence[Refused], *, others: bool, anything: bool) -> Score:
    """Return the score of a puzzle that is in no file which could be read: the last of the `refused` that is called
    after it says why, or that may be anything; else whether another puzzle (`others`), or any file, is there."""
    rows = {row: row.puzzle or stem_of(row.file.rpartition("/")[2]).puzzle for row in refused}
    about = [row for row, its in rows.items() if its == puzzle] or [row for row, its in rows.items() if its is None]
    if about:
        row = about[-1]
        state, why = row.state, f"{row.file.rpartition('/')[2]} {row.why}"
    else:
        state = "unrelated" if anything and not others and not refused else "absent"
        why = STATES[state].about
    return Score(puzzle, state, Result("", state, message=why))


# -- in as many processes as there are ------------------------------------------------------------------------------


def _judge(batch: Sequence[_Job], limits: Limits) -> list[tuple[str, Entry, Schedule | None]]:
    """Judge a batch, in whatever process this is: the key, what came of it, and its schedule, if it has one."""
    isolation = _isolation()
    finished: list[tuple[str, Entry, Schedule | None]] = []
    for key, source, required in batch:
        score, schedule = judge_source(source, required, isolation, limits)
        finished.append((key, Entry(score, isolation.features), schedule))
    return finished


@cache
def _isolation() -> Isolation:
    """The Isolation of this process, which stays for the next batch."""
    if multiprocessing.current_process().name.startswith("Loky"):
        _end_with_parent()
    return Isolation()


def _end_with_parent() -> None:
    """Have a worker end when its parent does, even by kill -9; and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GONE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- for nbgrader --------------------------------------------------------------------------------------------------


def require(puzzle: str, *, need: str = "first") -> None:
    """Raise CheckError unless the function of a puzzle passes at the puzzle's own size.

    `need` is "first", "best", "correct" or a goal's name; AssignmentError for another.
    """
    _passes([_score(_cells(), puzzle, need, 0, None).own])


def require_elsewhere(puzzle: str, *, need: str = "first", hidden: int | None = None, seed: str | None = None) -> None:
    """Raise CheckError unless it passes at other sizes: so many `hidden` ones drawn from `seed`; where neither is
    said, those of the puzzle's record. A plain function is asked so many sets of random inputs."""
    score = _score(_cells(), puzzle, need, hidden, seed)
    _passes(score.hidden or [score.own])


def _passes(results: Sequence[Result]) -> None:
    for result in results:
        if result.state != "passed":
            raise CheckError(visible(result.message))


def _cells() -> tuple[str, ...]:
    """The cells that this notebook has run. ValueError where this is none."""
    shell = notebook()
    if shell is None:
        raise ValueError("this is for a cell of a notebook: only there the cells that have run are known")
    return tuple(map(str, shell.history_manager.input_hist_raw[1:]))


@lru_cache(maxsize=4)
def _score(cells: tuple[str, ...], puzzle: str, need: str, hidden: int | None, seed: str | None) -> Score:
    """Return what came of a puzzle in the cells of a notebook, each called as nbval and nbgrader show them."""
    config = Config().with_options(puzzles=[puzzle], need=need, hidden=hidden, seed=seed)
    (required,) = config.assignment().required
    numbered = tuple((f"code cell {number}", without_package(text)) for number, text in enumerate(cells, 1))
    return judge_source(Source(numbered, name="notebook.ipynb"), required, _isolation(), config.limits).score
