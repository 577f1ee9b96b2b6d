"""grade: grades a class by running every student's function at every size in isolation, in several processes.

Each result goes into a journal at once (work/journal.jsonl; each distinct schedule in work/traces/), so a grading that
was stopped, by Ctrl-C or kill -9, resumes. The same code with the same requirements is run once. The gradebook depends
only on the submissions and the requirements: not on the number of processes, nor on the order in which they finish.

The hidden tests of a notebook for nbgrader call `require`. It takes the function's text from the cells that IPython
has run: what the notebook changed in its own process (`Model.check`, a clock) has no effect.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from lib.errors.exceptions import CheckError
from lib.errors.source_lines import notebook
from lib.errors.wording import visible
from lib.extras import shared_out
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
    Rules,
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
from lib.suite.submissions.source import STATES, Source
from lib.suite.submissions.statements import without_package

JOURNAL: Final = Path("work", "journal.jsonl")
TRACES: Final = Path("work", "traces")
MOST_ATTEMPTS: Final = 10  # earlier attempts of a student that are run if the best one counts
GONE: Final = 1.0  # seconds between a worker's checks that its parent is still alive


def worked_on(collected: Collected) -> tuple[str, ...]:
    """Return the puzzles that any student has worked on; if none has, all that were handed in."""
    touched, there = set[str](), set[str]()
    for submission in collected.submissions:
        for file, source in submission.sources():
            if not isinstance(source, Refused):
                left = [puzzle for puzzle in PUZZLES if puzzle not in touched]
                there.update(found := source.puzzles(left))
                touched.update(row.puzzle for row in renamed_in(file, source, left))
                touched.update(puzzle for puzzle in found if not source.untouched(puzzle))
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

    `done(so_far, all)` is called now and then with numbers of students. Raises OSError if another process is
    grading into the same folder.
    """
    journal, traces = Journal(Path(out) / JOURNAL), Traces(Path(out) / TRACES)
    prefix = sha256(f"{version()} {assignment.limits}".encode()).hexdigest()[:8]
    try:
        asked = [_asked(required, traces) for required in assignment.required]
        known = journal.known(prefix)
        # A known entry counts only if its schedule, if any, is still in the folder.
        there = {key for key, entry in known.items() if not (one := entry.score.own.schedule) or one in traces}
        work = partial(_row, assignment=assignment, prefix=prefix, there=frozenset(there))
        options: dict[str, Any] = {"ends": True, "batch_size": 1, "pre_dispatch": "2*n_jobs"}
        rows: dict[str, _Row] = {}
        for row in chain([None], shared_out(work, collected.submissions, jobs, "grading", **options)):
            if row is not None:
                rows[row.submission.student] = row
                for key, entry, schedule in row.finished:
                    if schedule is not None:  # before the journal line that refers to it
                        traces.keep(schedule)
                    if key not in there:  # another student may have handed in the same code
                        known[key] = entry
                        journal.add(key, entry)
                        there.add(key)
            if done is not None:
                done(len(rows), len(collected.submissions))
        in_order = [rows[submission.student] for submission in collected.submissions]
        return _book(collected, assignment, asked, in_order, known)
    finally:
        _isolation().close()
        journal.close()


class _Row(NamedTuple):
    """A student's row: for each puzzle handed in, the attempts that may count, latest last, each with its key; `notes`
    on the other files; what was `refused`; and the `finished` entries, by key."""

    submission: Submission
    attempts: Mapping[str, Sequence[tuple[File, str]]]
    notes: tuple[str, ...]
    refused: tuple[Refused, ...]
    finished: tuple[tuple[str, Entry, Schedule | None], ...]


def _asked(required: Required, traces: Traces) -> Asked:
    record, ours = required.record, reference_result(required)
    goals = tuple((goal.name, goal.time, goal.memory) for goal in record.goals)
    if ours is not None:
        traces.keep(ours[1])
    return Asked(record.id, record.title, record.number, goals, required.need, required.sizes, ours and ours[0])


def _row(submission: Submission, assignment: Assignment, prefix: str, there: frozenset[str]) -> _Row:
    """Read and judge a submission, in this process, except for keys already `there`. If the best attempt counts, the
    file chosen from each earlier attempt may count for a puzzle, too."""
    isolation = _isolation()
    found = chosen(submission, [required.record.id for required in assignment.required])
    attempts: dict[str, list[tuple[File, str]]] = {}
    finished: list[tuple[str, Entry, Schedule | None]] = []
    for required in assignment.required:
        puzzle = required.record.id
        if puzzle not in found.of:
            continue
        latest, files = found.of[puzzle][0].attempt, submission.files if assignment.rules.attempts == "best" else ()
        several: list[tuple[File, Source]] = []
        for attempt in sorted({file.attempt for file in files if file.attempt < latest})[-MOST_ATTEMPTS:]:
            of_attempt = replace(submission, files=tuple(file for file in files if file.attempt == attempt))
            several += chosen(of_attempt, [puzzle]).of.values()
        for file, source in (*several, found.of[puzzle]):
            code = sha256(repr((source.cells, source.modules)).encode("utf-8", "surrogatepass")).hexdigest()
            key = f"{prefix}-{code[:32]}-{puzzle}-{required.key}"
            attempts.setdefault(puzzle, []).append((file, key))
            if key not in there:
                score, schedule = judge_source(source, required, isolation, assignment.limits)
                finished.append((key, Entry(score, isolation.features), schedule))
    return _Row(submission, attempts, (*submission.notes, *found.notes), found.refused, tuple(finished))


def _book(
    collected: Collected, assignment: Assignment, asked: Sequence[Asked], rows: Sequence[_Row], known: dict[str, Entry]
) -> Gradebook:
    """Make the gradebook, once every entry is known."""
    every = {*collected.refused, *(one for row in rows for one in row.refused)}
    ordered = sorted(every, key=lambda one: (one.file, one.why, one.student, one.puzzle))
    features: list[tuple[str, ...]] = []
    students: list[Student] = []
    for row in rows:
        of, notes = row.submission, list(row.notes)
        refused = [one for one in (*collected.refused, *row.refused) if one.student == of.student]
        scores: list[Score] = []
        marks: list[Mark] = []
        for one in asked:
            tried = [(file, known[key]) for file, key in row.attempts.get(one.puzzle, ())]
            if not tried:
                scores.append(missing(one.puzzle, refused, others=bool(row.attempts), anything=bool(of.files)))
                marks.append(_mark(assignment.rules, of, None, scores[-1], one))
                continue
            # The attempt with the most points; ties go to the better result, then to the latest.
            order: list[tuple[float, int, int, int, int]] = []
            for number, (file, entry) in enumerate(tried):
                its, mark = entry.score, _mark(assignment.rules, of, file, entry.score, one)
                rank = -list(STATES).index(its.state), its.hidden_passed, len(its.own.goals)
                order.append((mark.points, *rank, number))
            file, entry = tried[max(order)[-1]]
            features.append(entry.isolation)
            scores.append(replace(entry.score, file=file.name))
            marks.append(_mark(assignment.rules, of, file, entry.score, one))
            if len(tried) > 1:
                notes.append(f"{one.puzzle}: the best of {len(tried)} attempts counts, {file.name}")
        its_id = of.roster_id or of.id
        students.append(Student(of.student, tuple(scores), tuple(notes), its_id, tuple(marks), of.more))
    shared = tuple(word for word in (features or [()])[0] if all(word in kept for kept in features))
    return Gradebook(tuple(asked), tuple(students), tuple(ordered), shared, made_by(), assignment.title)


def _mark(rules: Rules, submission: Submission, file: File | None, score: Score, asked: Asked) -> Mark:
    """Return the points of a score, less the penalty for a late file."""
    cells = {heading.casefold(): text for heading, text in submission.more}
    until = moment(cells.get(DEADLINE, ""))
    due = rules.due(submission.roster_id or submission.id, submission.student, until)
    # Without a platform, the time comes from the name of a folder, which a student may have chosen.
    told = file.attempt[0] if file is not None and submission.platform else ""
    when = moment(told) or next((found for name in SUBMITTED if (found := moment(cells.get(name, "")))), None)
    return rules.mark(score, asked, when, due, submission.late and due == rules.deadline)


def made_by() -> str:
    """Return this package's name and version, with the digest of its exact code."""
    name = "llm-training-puzzles"
    with suppress(metadata.PackageNotFoundError):
        return f"{name} {metadata.version(name)} ({version()})"
    return f"{name} ({version()})"


def missing(puzzle: str, refused: Sequence[Refused], *, others: bool, anything: bool) -> Score:
    """Return the score of a puzzle found in no readable file. The last of the `refused` files named after the puzzle,
    or else after none, says why; otherwise it depends on whether there are other puzzles (`others`) or any files."""
    rows = {row: row.puzzle or stem_of(row.file.rpartition("/")[2]).puzzle for row in refused}
    about = [row for row, its in rows.items() if its == puzzle] or [row for row, its in rows.items() if its is None]
    if about:
        row = about[-1]
        state, why = row.state, f"{row.file.rpartition('/')[2]} {row.why}"
    else:
        state = "unrelated" if anything and not others and not refused else "absent"
        why = STATES[state].about
    return Score(puzzle, state, Result("", state, message=why))


# -- worker processes -----------------------------------------------------------------------------------------------


@cache
def _isolation() -> Isolation:
    """The Isolation of this process, kept for the next student."""
    if multiprocessing.current_process().name.startswith("Loky"):
        _be_a_worker()
    return Isolation()


def _be_a_worker() -> None:
    """Make a worker end with its parent, even after kill -9; leave Ctrl-C to the parent; and collect garbage seldom, as
    syntax trees need no collection: this saves a tenth of the time per student."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GONE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- for nbgrader --------------------------------------------------------------------------------------------------


def require(puzzle: str, *, need: str = "first") -> None:
    """Raise CheckError unless the function of a puzzle passes at the puzzle's own size.

    `need` is "first", "best", "correct" or a goal's name; AssignmentError for anything else.
    """
    _passes([_score(_cells(), puzzle, need, 0, None).own])


def require_elsewhere(puzzle: str, *, need: str = "first", hidden: int | None = None, seed: str | None = None) -> None:
    """Raise CheckError unless it passes at other sizes: `hidden` is how many to draw from `seed`; without either, the
    sizes are those of the puzzle's record. A plain function gets that many sets of random inputs."""
    score = _score(_cells(), puzzle, need, hidden, seed)
    _passes(score.hidden or [score.own])


def _passes(results: Sequence[Result]) -> None:
    for result in results:
        if result.state != "passed":
            raise CheckError(visible(result.message))


def _cells() -> tuple[str, ...]:
    shell = notebook()
    if shell is None:
        raise ValueError("this is for a cell of a notebook: only there the cells that have run are known")
    return tuple(map(str, shell.history_manager.input_hist_raw[1:]))


@lru_cache(maxsize=4)
def _score(cells: tuple[str, ...], puzzle: str, need: str, hidden: int | None, seed: str | None) -> Score:
    """Return the score of a puzzle in the cells of a notebook, numbered as nbval and nbgrader show them."""
    config = Config().with_options(puzzles=[puzzle], need=need, hidden=hidden, seed=seed)
    (required,) = config.assignment().required
    numbered = tuple((f"code cell {number}", without_package(text)) for number, text in enumerate(cells, 1))
    return judge_source(Source(numbered, name="notebook.ipynb"), required, _isolation(), config.limits).score
