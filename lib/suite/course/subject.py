"""Runs the subject of a command: a puzzle's id, a notebook, a .py or a saved Trace.

A puzzle's id stands for our own solution, which runs here. A function in a file runs in a limited process, even your
own (see `lib.suite.isolation`), and what comes back is judged and recorded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib.checker.verdict import FunctionVerdict, Verdict, check
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.puzzles.puzzle import Size
from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course import progress
from lib.suite.isolation.isolation import LIMIT, answers_of, run_of
from lib.suite.isolation.messages import Sent
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError, load_function, puzzle_of, puzzles_of, source_in
from lib.suite.submissions.locations import is_edition, is_source, located, notebook_of, reference, shown
from lib.suite.submissions.table import Answer, Given, ask_here
from lib.trace.trace import Trace

PATIENCE = 30.0
"""Seconds that a function may run when the command runs it once; four times as many at another size."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run with a name. `about` is its puzzle, None for a saved run of none; `puzzle` the one whose goals apply, None
    at another size."""

    name: str
    trace: Trace
    about: str | None
    puzzle: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of a run: `state` is one of `lib.suite.submissions.source`, "passed" if it reaches the first goal; at
    another size there is no goal, and correct is enough. `why` says why there is no verdict, and `printed` is what the
    function printed. `puzzle` is None if it is unknown, and `run` for a plain function."""

    puzzle: str | None
    state: str
    why: str = ""
    printed: str = ""
    verdict: Verdict | FunctionVerdict | None = None
    run: Run | None = None

    def text(self, width: int = 100) -> str:
        """Return the verdict in words, or why there is none; bars leave room for their figures on lines of `width`
        characters."""
        if not isinstance(self.verdict, Verdict):
            return self.why if self.verdict is None else self.verdict.text()
        text = self.verdict.text(max(4, min(24, width - 42)))
        if self.run is not None and self.run.about is None:
            text += "\nIt is a run of no puzzle, so there is no goal: name one with --puzzle."
        return text


class Stub(NotSolved):
    """A function that is not solved yet. If the file is an edition, the message names the student's own copy."""

    def __init__(self, puzzle: str, path: Path) -> None:
        super().__init__(puzzle)
        self.path = path

    def __str__(self) -> str:
        if not is_edition(self.path):
            return super().__str__()
        own = shown(notebook_of(self.puzzle))
        return f"{super().__str__()}\n{shown(self.path)} is the copy that stays as it is; yours is {own}"


def run(what: str, *, puzzle: str | None = None, limit: float | None = None, prints: bool = True, **size: Any) -> Run:
    """Simulate the function of a notebook or .py, or a puzzle's reference solution, or load a Trace.

    The function is that of `puzzle`, else of the file's puzzle, and `size` are ranks, layers, batches and a mesh, if
    they are not the puzzle's. `prints`: print the function's output. Raises Stub if it is not solved yet, SourceError,
    PuzzleError (whose `trace` is the run up to there, if any), or TraceError for a damaged Trace.
    """
    subject = _Subject(what, puzzle, limit, size)
    try:
        return subject.run()
    finally:
        if prints:
            print(subject.printed, end="")


def outcome(what: str, *, puzzle: str | None = None, limit: float | None = None, **size: Any) -> Attempt:
    """Run and judge what `run` takes, and record progress."""
    subject = _Subject(what, puzzle, limit, size)
    try:
        return subject.outcome()
    finally:
        print(subject.printed, end="")


def attempt(what: str | Path, puzzle: str | None = None, limit: float | None = LIMIT, **size: Any) -> Attempt:
    """Run and judge what `run` takes, and record progress, as `outcome` does, but print nothing, and raise nothing for
    whatever the function does, or for an unusable file. A missing file is not searched for elsewhere."""
    name, subject = puzzle, None
    try:
        subject = _Subject(str(what), puzzle, limit, size, exact=True)
        name = subject.puzzle
        return subject.outcome()
    except Stub as stub:
        return Attempt(name, "unsolved", str(NotSolved(stub.puzzle)))
    except SourceError as error:
        return Attempt(name, _state_of(Path(what), name, error), str(error))
    except (PuzzleError, TraceError, BuildError, OSError) as error:
        return Attempt(name, "failed", str(error), "" if subject is None else subject.printed)


def _state_of(path: Path, puzzle: str | None, error: SourceError) -> str:
    """The state of a file without a function to run. A process in which it did not start sends only words."""
    if not path.is_file():
        return "failed"
    if error.state != "unreadable" or puzzle is None:
        return error.state
    try:
        source = source_in(path)
        source.instead_of(puzzle)  # raises if the source cannot be read
        return "failed" if puzzle in source.puzzles() else "renamed"
    except SourceError as why:
        return why.state


def subjects(what: str) -> tuple[str | None, ...]:
    """Return the puzzles of a file if it has several; else (None,), and `attempt` finds the one. A file counts for a
    puzzle if it defines its function, or only has its notebook's text: then the function has another name."""
    path = located(Path(what))
    if what in PUZZLES or path.suffix not in (".py", ".ipynb"):
        return (None,)
    try:
        about = {*puzzles_of(path), *(source_in(path).spoken_of() if puzzle_of_file(path.stem) is None else ())}
    except SourceError:
        return (None,)
    found = tuple(puzzle for puzzle in PUZZLES if puzzle in about)
    return found if len(found) > 1 else (None,)


class _Subject:
    """What a command names: the file to run, its puzzle, and how. SourceError if there is none. Unless `exact`, the
    name of a missing notebook stands for the student's own copy."""

    def __init__(
        self, what: str, puzzle: str | None, limit: float | None, size: dict[str, Any], *, exact: bool = False
    ) -> None:
        if puzzle is not None and puzzle not in PUZZLES:
            raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
        if not Path(what).suffix and (record := puzzle_of_file(Path(what).name)) is not None:
            what = record.id  # by the name of its notebook: 08_pipeline_fsdp
        self.what, self.path, self.puzzle, self.limit = what, Path(what), puzzle, limit
        self.size = {name: number for name, number in size.items() if number is not None}
        self.printed = ""
        self.is_trace = self.path.suffix == ".json"
        self.is_ours = what in PUZZLES and not self.is_trace
        if self.is_ours:
            self.path, self.puzzle = reference(what), what
        elif self.path.suffix in (".py", ".ipynb"):
            self.path = self.path if exact else located(self.path)
            self.puzzle = puzzle or puzzle_of(self.path)
        elif not self.is_trace:
            wanted = "neither a puzzle nor a notebook (.ipynb), Python (.py) or saved Trace (.json)"
            raise SourceError(f"{what!r} is {wanted}; the puzzles are {', '.join(PUZZLES)}")
        self.is_own = not self.is_trace and not is_source(self.path)  # others are not the student's progress
        self.is_function = self.puzzle is not None and not self.is_trace and PUZZLES[self.puzzle].is_function

    def run(self) -> Run:
        """Return its run. Raises Stub, SourceError or PuzzleError if there is none."""
        size, puzzle, path = self.size, self.puzzle, self.path
        if self.is_trace:
            if size:
                raise SourceError(f"{path.name} is a saved Trace: its size is what it is")
            trace = Trace.load(path)
            about = puzzle or (trace.puzzle if trace.puzzle in PUZZLES else None)
            return Run(path.name, trace, about, about)
        assert puzzle is not None, "only a Trace may be about no puzzle"
        record = PUZZLES[puzzle]
        if record.is_function:
            raise SourceError(f"the answer to {puzzle} is a plain function: there is no run of it, only `puzzles run`")
        ranks = len(size["mesh"]) if "mesh" in size else record.ranks
        asked = (size.get("ranks", ranks), size.get("layers", record.layers), size.get("batches", record.batches))
        if (why := Size(*asked).too_large()) is not None:
            raise SourceError(why)
        if self.is_ours and not size:
            models = simulate(load_function(path, puzzle), puzzle=puzzle)
            if isinstance(models, Unsolved):
                raise Stub(puzzle, path)
            trace = Trace.of(models)
        else:
            sent = self._whole(run_of(path, puzzle, **size, limit=self.limit or (4 * PATIENCE if size else PATIENCE)))
            assert sent.trace is not None, "what ran has a Trace"
            trace = sent.trace
        # The goals apply at the puzzle's size, if no mesh was asked for.
        judged = puzzle if record.fits(trace) and "mesh" not in size else None
        return Run(self.what, replace(trace, puzzle=judged), puzzle, judged)

    def outcome(self) -> Attempt:
        """Judge it. A verdict on your own function, at its puzzle's size, is recorded as progress."""
        found = None
        if self.is_function:
            assert self.puzzle is not None, "a function is about its puzzle"
            verdict = judge_answers(self.puzzle, self.ask)
        else:
            found = self.run()
            verdict = check(found.trace, found.puzzle)
        if self.is_own:
            progress.checked(verdict, found and found.trace)
        passed = verdict.passed and (found is None or found.about is not None)
        state = "passed" if passed else "missed" if verdict.correct else "failed"
        return Attempt(self.puzzle, state, printed=self.printed, verdict=verdict, run=found)

    def ask(self, inputs: Sequence[Given]) -> Sequence[Answer]:
        """Ask the plain function; one in a file runs in a process of its own."""
        assert self.puzzle is not None, "a function is about its puzzle"
        if self.is_ours:
            return ask_here(load_function(self.path, self.puzzle))(inputs)
        return self._whole(answers_of(self.path, self.puzzle, inputs, self.limit or PATIENCE)).answers

    def _whole(self, sent: Sent) -> Sent:
        """Return what a process sent, if the function finished. Keep only the first output: a plain function is asked
        several times, and prints the same."""
        self.printed = self.printed or sent.printed
        if sent.outcome == "unsolved":
            raise Stub(self.puzzle or "", self.path)
        if sent.outcome == "source":
            raise SourceError(sent.text)
        if sent.outcome == "failed":
            error = PuzzleError(sent.text)
            error.trace = sent.trace
            raise error
        return sent
