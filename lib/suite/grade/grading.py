"""grade: a class, graded. Every student's function at every size in isolation, on as many processes as there are.

What is finished is in a journal at once, so that who is stopped, by Ctrl-C or by kill -9, goes on where it was; the
same code, asked the same, is run once, whoever handed it in. The gradebook follows from what was handed in and asked
alone: not from the number of processes, nor from the order in which they finish.

Under `out` are then work/journal.jsonl, and work/traces/ with each distinct schedule.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from lib.processes import shared_out
from lib.puzzles.records import PUZZLES
from lib.suite.grade.assignment import Assignment, Required
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
from lib.suite.grade.intake.submission import Chosen, Collected, File, Submission, chosen, renamed_in, stem_of
from lib.suite.grade.judging import judge_source, reference_result
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import Limits
from lib.suite.submissions.source import STATES, Source

__all__ = ["TRACES", "grade", "worked_on"]

# -- grading -------------------------------------------------------------------------------------------------------

JOURNAL: Final = Path("work", "journal.jsonl")
TRACES: Final = Path("work", "traces")
AT_ONCE: Final = 16
"""Functions that are sent to a process together: each takes hundredths of a second."""
MOST_ATTEMPTS: Final = 10
"""Earlier attempts of a student that are run, where the best counts."""
GONE: Final = 1.0
"""Seconds between two looks of a worker at whether its parent is still there."""


def worked_on(collected: Collected) -> tuple[str, ...]:
    """The puzzles in which somebody has written something; if nobody has, those that somebody handed in."""
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

    `done(so_far, all)` is called with numbers of students now and then. Which processes these are is for joblib to say:
    `joblib.parallel_config(backend="dask")` around the call takes a cluster. OSError where another process is grading
    into the same folder.
    """
    journal, traces = Journal(Path(out) / JOURNAL), Traces(Path(out) / TRACES)
    try:
        asked = tuple(_asked(required, traces) for required in assignment.required)
        grading = _Grading(collected, assignment, journal, traces, done)
        grading.run(jobs)
        return grading.book(asked)
    finally:
        journal.close()


def _asked(required: Required, traces: Traces) -> Asked:
    """Return what is asked of a puzzle, with our own solution, whose schedule is kept."""
    record, ours = required.record, reference_result(required)
    goals = tuple((goal.name, goal.time, goal.memory) for goal in record.goals)
    if ours is not None and ours.schedule is not None:
        traces.keep(ours.schedule)
    own = None if ours is None else ours.score.own
    return Asked(record.id, record.title, record.number, goals, required.need, required.sizes, own)


class _Job(NamedTuple):
    """One function of one source, to be judged. What has the same key is the same."""

    key: str
    source: Source
    required: Required


class _Finished(NamedTuple):
    """The result of a job, and what kept its run apart from everything else."""

    key: str
    score: Score
    schedule: Schedule | None
    features: tuple[str, ...]


@dataclass(slots=True)
class _Row:
    """A student's row: for each puzzle that was handed in every attempt that may count, the latest last, with its
    file and the key of what came of it."""

    submission: Submission
    keys: dict[str, list[tuple[File, str]]] = field(default_factory=dict[str, list[tuple[File, str]]])
    notes: tuple[str, ...] = ()


class _Grading:
    """One grading under way: what is known, who waits for what."""

    def __init__(
        self,
        collected: Collected,
        assignment: Assignment,
        journal: Journal,
        traces: Traces,
        done: Callable[[int, int], None] | None,
    ) -> None:
        self._collected, self._assignment = collected, assignment
        self._journal, self._traces = journal, traces
        self._done = done
        self._limits = assignment.limits
        self._prefix = sha256(f"{version()} {self._limits}".encode()).hexdigest()[:8]
        known = journal.known(self._prefix)
        self._known = {key: Entry(_shared(entry.score), entry.isolation) for key, entry in known.items()}
        self._rows: list[_Row] = []
        self._refused = list(collected.refused)
        self._pending: dict[str, list[int]] = {}
        """Keys that are under way, with the students who wait for each."""
        self._left: dict[int, int] = defaultdict(int)
        """How many keys a student waits for."""
        self._finished = 0
        self._error: BaseException | None = None

    def run(self, jobs: int | None) -> None:
        """Judge what is not known."""
        self._tell()
        judge = partial(_judge, limits=self._limits, run=secrets.token_hex(8))
        batches = self._batches()
        try:
            for several in shared_out(
                judge, batches, jobs, "grading", ends=True, batch_size=1, pre_dispatch="2*n_jobs"
            ):
                self._take(several)
                self._tell()
        finally:
            while _every:
                _every.pop().close()
        if self._error is not None:
            raise self._error

    def _take(self, several: Iterable[_Finished]) -> None:
        """Keep what came of some jobs."""
        for finished in several:
            if finished.schedule is not None:  # before the line that speaks of it
                self._traces.keep(finished.schedule)
            entry = self._known[finished.key] = Entry(_shared(finished.score), finished.features)
            self._journal.add(finished.key, entry)
            for row in self._pending.pop(finished.key, ()):
                self._left[row] -= 1
                self._finished += not self._left[row]

    def _tell(self) -> None:
        if self._done is not None:
            self._done(self._finished, len(self._collected.submissions))

    def _batches(self) -> Iterator[list[_Job]]:
        """Read one submission after the other, and yield what is to be judged of them. joblib asks for more in threads
        of its own, where an error would be nobody's."""
        batch: list[_Job] = []
        try:
            for submission in self._collected.submissions:
                batch += self._jobs_of(submission)
                while len(batch) >= AT_ONCE:
                    yield batch[:AT_ONCE]
                    batch = batch[AT_ONCE:]
            if batch:
                yield batch
        except BaseException as error:
            self._error = error

    def _jobs_of(self, submission: Submission) -> list[_Job]:
        """Read a submission. What of it is not known, nor under way."""
        found = chosen(submission, [required.record.id for required in self._assignment.required])
        row, number = _Row(submission, notes=(*submission.notes, *found.notes)), len(self._rows)
        self._rows.append(row)
        self._refused += found.refused
        jobs: list[_Job] = []
        for required in self._assignment.required:
            puzzle = required.record.id
            for file, source in (*self._earlier(submission, puzzle, found), *filter(None, [found.of.get(puzzle)])):
                code = repr((source.cells, source.modules)).encode("utf-8", "surrogatepass")
                key = f"{self._prefix}-{sha256(code).hexdigest()[:32]}-{puzzle}-{required.key}"
                row.keys.setdefault(puzzle, []).append((file, key))
                if self._is_known(key):
                    continue
                if key not in self._pending:
                    jobs.append(_Job(key, source, required))
                self._pending.setdefault(key, []).append(number)
                self._left[number] += 1
        self._finished += not self._left[number]
        return jobs

    def _earlier(self, submission: Submission, puzzle: str, found: Chosen) -> Iterator[tuple[File, Source]]:
        """Yield what else may count for a puzzle where the best attempt does: what is chosen of each earlier one."""
        if self._assignment.rules.attempts != "best" or puzzle not in found.of:
            return
        latest = found.of[puzzle][0].attempt
        for attempt in sorted({file.attempt for file in submission.files if file.attempt < latest})[-MOST_ATTEMPTS:]:
            files = tuple(file for file in submission.files if file.attempt == attempt)
            alone = chosen(replace(submission, files=files), [puzzle])
            if puzzle in alone.of:
                yield alone.of[puzzle]

    def _is_known(self, key: str) -> bool:
        """Return whether a score is known, and its schedule is still there."""
        entry = self._known.get(key)
        return entry is not None and (not entry.score.own.schedule or entry.score.own.schedule in self._traces)

    def book(self, asked: Sequence[Asked]) -> Gradebook:
        """The gradebook. All that was handed in is known."""
        features: list[str] | None = None
        students: list[Student] = []
        refused: defaultdict[str, list[Refused]] = defaultdict(list)
        for unread in self._refused:
            refused[unread.student].append(unread)
        for row in self._rows:
            scores: list[Score] = []
            marks: list[Mark] = []
            of, notes = row.submission, list(row.notes)
            for one in asked:
                if one.puzzle not in row.keys:
                    scores.append(
                        missing(one.puzzle, refused[of.student], others=bool(row.keys), anything=bool(of.files))
                    )
                    marks.append(self._mark(of, None, scores[-1], one))
                    continue
                entries = [(file, self._known[key]) for file, key in row.keys[one.puzzle]]
                tried = [(self._mark(of, file, entry.score, one), file, entry) for file, entry in entries]
                # The one with most points, and where they are equal with what they are for; else the latest.
                worth = [
                    (
                        mark.points,
                        -list(STATES).index(entry.score.state),
                        entry.score.hidden_passed,
                        len(entry.score.own.goals),
                        number,
                    )
                    for number, (mark, _, entry) in enumerate(tried)
                ]
                mark, file, entry = tried[max(worth)[-1]]
                score, kept = entry.score, entry.isolation
                features = list(kept) if features is None else [word for word in features if word in kept]
                opened = [count for count in (score.hints, of.hints.get(one.puzzle)) if count is not None]
                scores.append(replace(score, file=file.name, hints=max(opened, default=None)))
                marks.append(mark)
                if len(tried) > 1:
                    notes.append(f"{one.puzzle}: the best of {len(tried)} attempts counts, {file.name}")
            students.append(
                Student(of.student, tuple(scores), tuple(notes), of.roster_id or of.id, tuple(marks), of.more)
            )
        every = sorted(set(self._refused), key=lambda one: (one.file, one.why, one.student, one.puzzle))
        title = self._assignment.title
        return Gradebook(tuple(asked), tuple(students), tuple(every), tuple(features or ()), made_by(), title)

    def _mark(self, submission: Submission, file: File | None, score: Score, asked: Asked) -> Mark:
        """The points of a score, with what it costs that its file came late."""
        rules, cells = self._assignment.rules, {heading.casefold(): text for heading, text in submission.more}
        due = rules.due(submission.roster_id or submission.id, submission.student, moment(cells.get(DEADLINE, "")))
        # Without a platform the time is that of a folder, which a student may have named.
        told = file.attempt[0] if file is not None and submission.platform else ""
        when = moment(told) or next((found for name in SUBMITTED if (found := moment(cells.get(name, "")))), None)
        return rules.mark(score, asked, when, due, submission.late and due == rules.deadline)


def made_by() -> str:
    """This package and its version; the digest says exactly which code it was."""
    name = "llm-training-puzzles"
    try:
        return f"{name} {metadata.version(name)} ({version()})"
    except metadata.PackageNotFoundError:
        return f"{name} ({version()})"


def _shared(score: Score) -> Score:
    """The same score, whose texts are held once, however many students have them."""

    def shared(result: Result) -> Result:
        goals = tuple(map(sys.intern, result.goals))
        return replace(result, size=sys.intern(result.size), goals=goals, message=sys.intern(result.message))

    return replace(score, own=shared(score.own), hidden=tuple(map(shared, score.hidden)))


# -- in as many processes as there are ------------------------------------------------------------------------------


_mine = threading.local()
_every: list[Isolation] = []
"""The Isolation of this thread, and of all threads of this process."""
_sent: tuple[str, set[str]] = "", set()
"""The schedules that this process has sent in a run: nobody needs them twice."""


def _judge(batch: Sequence[_Job], limits: Limits, run: str) -> list[_Finished]:
    """Judge a batch, in whatever process this is."""
    global _sent
    if _sent[0] != run:
        _sent = run, set()
    isolation = _isolation()
    finished: list[_Finished] = []
    for key, source, required in batch:
        score, schedule = judge_source(source, required, isolation, limits)
        if schedule is not None and schedule.digest in _sent[1]:
            schedule = None
        elif schedule is not None:
            _sent[1].add(schedule.digest)
        finished.append(_Finished(key, score, schedule, isolation.features))
    return finished


def _isolation() -> Isolation:
    """The Isolation of this thread, which stays for the next batch."""
    found = getattr(_mine, "isolation", None)
    if not isinstance(found, Isolation):
        found = _mine.isolation = Isolation()
        _every.append(found)
        if multiprocessing.current_process().name.startswith("Loky"):
            _end_with_parent()
    return found


def _end_with_parent() -> None:
    """Have a worker end when its parent does, even by kill -9; and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GONE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- missing -------------------------------------------------------------------------------------------------------


def missing(puzzle: str, refused: Sequence[Refused], *, others: bool, anything: bool) -> Score:
    """The score of a puzzle that is in no file which could be read. `refused` are the student's files that could not be
    graded, `others` says whether another puzzle could, and `anything` whether there is a file at all.

    A file counts that is called after the puzzle; else one that may be anything, as nothing says what it was for.
    """
    rows = {row: row.puzzle or stem_of(row.file.rpartition("/")[2]).puzzle for row in refused}
    about = [row for row, its in rows.items() if its == puzzle] or [row for row, its in rows.items() if its is None]
    if about:
        row = about[-1]
        state, why = row.state, f"{row.file.rpartition('/')[2]} {row.why}"
    else:
        state = "unrelated" if anything and not others and not refused else "absent"
        why = STATES[state].about
    return Score(puzzle, state, Result("", state, message=why))
