"""Subjects of a command, be it a puzzle's id, a notebook, a .py or a saved Trace: each gives a run.

A puzzle's id stands for our own solution, which runs here. A function in a file runs in a limited process, whoever has
written it (see `lib.suite.isolation`), and what comes back is judged and recorded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from lib.checker.checker import check
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.puzzles.records import PUZZLES, Puzzle, Size, puzzle_of_file
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course import progress
from lib.suite.isolation.asking import LIMIT, answers_of, run_of
from lib.suite.isolation.messages import Sent
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError, load_function, puzzle_of, puzzles_of, source_in
from lib.suite.submissions.locations import home, reference, shown
from lib.suite.submissions.table import Answer, Ask, Given, ask_here
from lib.suite.submissions.workplace import is_edition, located, notebook_of
from lib.trace.trace import Trace

__all__ = ["Attempt", "Outcome", "Run", "Stub", "attempt", "outcome", "ran", "run", "subjects"]

R = TypeVar("R", "Run", "Outcome")
PATIENCE = 30.0
"""Seconds that a function may run when the command runs it once; more, where somebody asks for another size."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run under a name. `puzzle` is the one whose goals apply; none do at sizes that are not the puzzle's.

    `own`: of a function in somebody's own file. Our solutions and saved Traces are nobody's progress. `sized`: somebody
    asked for a size, whatever the puzzle's is.
    """

    name: str
    trace: Trace
    puzzle: str | None
    own: bool = False
    printed: str = ""
    sized: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of running something: the verdict, what was printed, and the run, which a plain function has not."""

    verdict: Verdict | FunctionVerdict
    printed: str = ""
    run: Run | None = None

    @property
    def passed(self) -> bool:
        """True where it reaches the first goal. At a size that was asked for there is none, and correct is enough."""
        return self.verdict.passed and not self.aimless

    @property
    def aimless(self) -> bool:
        """True for a run of no puzzle, although nobody has asked for another size: then there is no goal to reach."""
        return self.run is not None and self.run.puzzle is None and not self.run.sized

    def text(self, width: int = 100) -> str:
        """The verdict in words, with bars that leave room for their figures on lines of so many characters."""
        bars = max(4, min(24, width - 42))
        text = self.verdict.text(bars) if isinstance(self.verdict, Verdict) else self.verdict.text()
        return (
            f"{text}\nIt is a run of no puzzle, so there is no goal: name one with --puzzle." if self.aimless else text
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """The state of running something: `state` is one of `lib.suite.submissions.source`. `text` says why there is
    no verdict, or is the verdict's; `printed` is what the function printed. `puzzle` is None where it could not be
    told."""

    puzzle: str | None
    state: str
    text: str = ""
    printed: str = ""
    outcome: Outcome | None = None


class Failed(PuzzleError):
    """A run in a process of its own that came to no end, in the words that it sent, and what it printed before."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(sent.text)
        self.trace = sent.trace
        self.printed = sent.printed


class Stub(Exception):
    """A function that is not solved yet: its text says so, as simulate does."""

    def __init__(self, puzzle: str, path: Path) -> None:
        text = str(NotSolved(puzzle))
        if is_edition(path):
            text += f"\n{shown(path)} is the copy that stays as it is; yours is {shown(notebook_of(puzzle))}"
        super().__init__(text)


def run(what: str, *, puzzle: str | None = None, limit: float | None = None, **size: Any) -> Run:
    """Simulate the function of a notebook or .py, or a puzzle's reference solution, or load a Trace.

    The function is that of `puzzle`, else of the puzzle that the file is about, and `size` are ranks, layers, batches
    and a mesh, if they are not the puzzle's. What it prints is printed. Raises Stub where it is not solved yet,
    SourceError, PuzzleError (whose `trace` is the run up to there, if there was any), or TraceError for a damaged
    Trace.
    """
    path, name = _found(what, puzzle)
    return _printed(lambda: _ran(what, path, name, limit, size))


def ran(what: str, *, puzzle: str | None = None, limit: float | None = None, **size: Any) -> Run:
    """Do the same, and print nothing."""
    path, name = _found(what, puzzle)
    return _ran(what, path, name, limit, size)


def outcome(what: str, *, puzzle: str | None = None, limit: float | None = None, **size: Any) -> Outcome:
    """Run it as `run` does, and judge it. What is solved is recorded as progress."""
    path, name = _found(what, puzzle)
    return _printed(lambda: _judged(what, path, name, limit, size))


def _printed(what: Callable[[], R]) -> R:
    """Print what a function printed, even where it failed."""
    try:
        found = what()
    except Failed as failed:
        print(failed.printed, end="")
        raise
    print(found.printed, end="")
    return found


def attempt(what: str | Path, puzzle: str | None = None, limit: float | None = LIMIT, **size: Any) -> Attempt:
    """Try it: see `run`, which says what it may be. Recorded as progress, as `outcome` does.

    Prints nothing, and raises nothing for anything that the function does, or for a file that will not do. A file that
    is not there is not looked for elsewhere.
    """
    name = puzzle
    try:
        path, name = _found(str(what), puzzle, exact=True)
        found = _judged(str(what), path, name, limit, size)
    except Stub:
        return Attempt(name, "unsolved")
    except Failed as failed:
        return Attempt(name, "failed", str(failed), failed.printed)
    except SourceError as error:
        return Attempt(name, _state_of(str(what), name, error), str(error))
    except (PuzzleError, TraceError, BuildError, OSError) as error:
        return Attempt(name, "failed", str(error))
    state = "passed" if found.passed else "missed" if found.verdict.correct else "failed"
    return Attempt(name, state, found.text(), found.printed, found)


def subjects(what: str) -> tuple[str | None, ...]:
    """Return the puzzles that something is about, where it is one of several; else (None,): `attempt` finds which.

    A file of several is about one whose function it defines, and about one that it only has the text of, too: its
    function has another name there.
    """
    path = located(Path(what))
    if what in PUZZLES or path.suffix not in (".py", ".ipynb"):
        return (None,)
    try:
        about = {*puzzles_of(path), *(source_in(path).spoken_of() if puzzle_of_file(path.stem) is None else ())}
    except SourceError:
        return (None,)
    found = tuple(puzzle for puzzle in PUZZLES if puzzle in about)
    return found if len(found) > 1 else (None,)


def _state_of(what: str, puzzle: str | None, error: SourceError) -> str:
    """The state of what has no function that could run. A process in which it did not begin sends words alone."""
    path = Path(what)
    if not path.is_file():
        return "failed"
    if error.state != "unreadable" or puzzle is None:
        return error.state
    try:
        source = source_in(path)
        source.instead_of(puzzle)  # of what nobody reads
        return "failed" if puzzle in source.puzzles() else "renamed"
    except SourceError as why:
        return why.state


def judged(found: Run) -> Verdict:
    """The verdict on a run. One of your own function, at the size of its puzzle, is recorded as progress."""
    verdict = check(found.trace, found.puzzle)
    if found.own:
        progress.checked(verdict, found.trace)
    return verdict


def _found(what: str, puzzle: str | None, *, exact: bool = False) -> tuple[Path, str | None]:
    """The file to run, and its puzzle. SourceError where there is none. Unless it is to be `exact`, the name of a
    notebook that is not here stands for the student's own copy."""
    if puzzle is not None and puzzle not in PUZZLES:
        raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
    path = Path(what)
    if path.suffix == ".json":
        return path, puzzle
    if what in PUZZLES:
        return reference(what), what
    if path.suffix in (".py", ".ipynb"):
        path = path if exact else located(path)
        return path, puzzle or puzzle_of(path)
    wanted = "neither a puzzle nor a notebook (.ipynb), Python (.py) or saved Trace (.json)"
    raise SourceError(f"{what!r} is {wanted}; the puzzles are {', '.join(PUZZLES)}")


def _ran(what: str, path: Path, puzzle: str | None, limit: float | None, size: Mapping[str, Any]) -> Run:
    """The run of what was found. Stub, or Failed, where there is none."""
    given = {name: number for name, number in size.items() if number is not None}
    if path.suffix == ".json":
        if given:
            raise SourceError(f"{path.name} is a saved Trace: its size is what it is")
        trace = Trace.load(path)
        return Run(path.name, trace, puzzle or (trace.puzzle if trace.puzzle in PUZZLES else None))
    assert puzzle is not None, "only a Trace may be about no puzzle"
    if PUZZLES[puzzle].is_function:
        raise SourceError(f"the answer to {puzzle} is a plain function: there is no run of it, only `puzzles run`")
    if (why := _size(PUZZLES[puzzle], **given).too_large()) is not None:
        raise SourceError(why)
    if what in PUZZLES and not given:
        models = simulate(load_function(path, puzzle), puzzle=puzzle)
        if isinstance(models, Unsolved):
            raise Stub(puzzle, path)
        return _run(Run(what, Trace.of(models), puzzle))
    sent = _whole(run_of(path, puzzle, **given, limit=limit or (4 * PATIENCE if given else PATIENCE)), puzzle, path)
    assert sent.trace is not None, "what ran has a Trace"
    found = _run(Run(what, sent.trace, puzzle, _is_own(path), sent.printed, sized=bool(given)))
    return replace(found, trace=replace(found.trace, puzzle=None), puzzle=None) if "mesh" in given else found


def _size(record: Puzzle, mesh: Mesh | None = None, **given: int) -> Size:
    """The size of a puzzle's run, where some of it was asked for."""
    ranks = given.get("ranks", record.ranks if mesh is None else len(mesh))
    return Size(ranks, given.get("layers", record.layers), given.get("batches", record.batches))


def _judged(what: str, path: Path, puzzle: str | None, limit: float | None, size: Mapping[str, Any]) -> Outcome:
    if puzzle is not None and path.suffix != ".json" and PUZZLES[puzzle].is_function:
        return _answered(what, path, puzzle, limit or PATIENCE)
    found = _ran(what, path, puzzle, limit, size)
    return Outcome(judged(found), found.printed, found)


def _is_own(path: Path) -> bool:
    return (home() / "solutions").resolve() not in path.resolve().parents


def _run(found: Run) -> Run:
    """A run that is about its puzzle only if it has the size of it."""
    assert found.puzzle is not None, "what was simulated is about a puzzle"
    puzzle = found.puzzle if PUZZLES[found.puzzle].fits(found.trace) else None
    return replace(found, trace=replace(found.trace, puzzle=puzzle), puzzle=puzzle)


def _answered(what: str, path: Path, puzzle: str, limit: float) -> Outcome:
    """The verdict on the answers of a plain function: that of a file gives them in a process of its own."""
    if what in PUZZLES:
        return Outcome(judge_answers(puzzle, ask_here(load_function(path, puzzle))))
    printed: list[str] = []
    verdict = judge_answers(puzzle, _asked(path, puzzle, limit, printed))
    if _is_own(path):
        progress.checked(verdict, None)
    return Outcome(verdict, printed[0])


def _asked(path: Path, puzzle: str, limit: float, printed: list[str]) -> Ask:
    """Ask the plain function of a file in a process of its own, and keeps what it printed."""

    def ask(inputs: Sequence[Given]) -> Sequence[Answer]:
        sent = _whole(answers_of(path, puzzle, inputs, limit), puzzle, path)
        printed.append(sent.printed)
        return sent.answers

    return ask


def _whole(sent: Sent, puzzle: str, path: Path) -> Sent:
    """Return what a process sent, if the function came to its end."""
    if sent.outcome == "unsolved":
        raise Stub(puzzle, path)
    if sent.outcome == "source":
        raise SourceError(sent.text)
    if sent.outcome == "failed":
        raise Failed(sent)
    return sent
