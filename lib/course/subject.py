"""What the command can be pointed at, be it a puzzle's id, a notebook, a .py or a saved Trace: each gives a run.

Our own solutions run here. A function in somebody's own file runs in a limited process (see `lib.course.child`), and
what comes back is judged and recorded here.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib.analysis import figures
from lib.checker.checker import check
from lib.checker.table import Answer, Given, ask_here
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.course import progress
from lib.course.child import LIMIT, Sent, answers_of, run_of
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.puzzles.records import PUZZLES, Size
from lib.simulator.simulator import Unsolved, simulate
from lib.submissions.function_check import judge_answers
from lib.submissions.gap import BuildError
from lib.submissions.load import SourceError, load_function, puzzle_of
from lib.submissions.locations import home, reference, shown
from lib.submissions.workplace import is_edition, located, notebook_of
from lib.trace.event import Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES

__all__ = ["STATES", "Attempt", "Outcome", "Run", "attempt", "outcome", "run"]

STATES = ("passed", "missed", "unsolved", "failed")
"""Within the easiest goal; correct but not within it; still the stub; anything else."""
PATIENCE = 60.0
"""Seconds that a function may run when the command runs it once."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run under a name. `puzzle` is the one whose goals apply; none do at sizes that are not the puzzle's.

    `own`: of a function in somebody's own file. Our solutions and saved Traces are nobody's progress.
    """

    name: str
    trace: Trace
    puzzle: str | None
    own: bool = False
    printed: str = ""

    def figures(self) -> dict[str, str]:
        """What one compares runs by: the verdict, time, memory, the makespan's bubble, and what moves."""
        verdict, traffic = check(self.trace), figures.traffic(self.trace)
        return {
            "correct": "yes" if verdict.correct else "no",
            "time": f"{verdict.time:g}",
            "memory": f"{verdict.memory:,.0f}",
            "bubble": f"{figures.bubbles(self.trace).makespan:.1%}",
            "sent per rank": f"{max(float(sent) for sent, _ in traffic):,.0f}",
            "collectives per rank": f"{max(_count(program, COLLECTIVES) for program in self.trace.programs)}",
            "messages per rank": f"{max(_count(program, ('pass_to',)) for program in self.trace.programs)}",
        }


def _count(program: Program, ops: Container[str]) -> int:
    return sum(event.op in ops for event in program.events)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of running something: the verdict, what was printed, and the run, which a plain function has not."""

    verdict: Verdict | FunctionVerdict
    printed: str = ""
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of running a puzzle's function. `text` says why, or the verdict; `printed` is what it printed."""

    puzzle: str
    state: str
    text: str = ""
    printed: str = ""


class Failed(PuzzleError):
    """A run in a process of its own that came to no end, in the words that it sent, and what it printed before."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(sent.text)
        self.trace = sent.trace
        self.printed = sent.printed


class Stub(Exception):
    """A function that is not solved yet."""


def run(what: str, *, puzzle: str | None = None, limit: float = PATIENCE, **size: int | None) -> Run | None:
    """Simulates the function of a notebook or .py, or a puzzle's reference solution, or loads a Trace.

    The function is that of `puzzle`, else of the puzzle that the file is about, and `size` are ranks, layers and
    batches in place of the puzzle's. None where it is not solved yet, which is said. Raises SourceError, PuzzleError,
    or TraceError for a damaged Trace.
    """
    path, puzzle = _found(what, puzzle)
    if path.suffix == ".json":
        if any(number is not None for number in size.values()):
            raise SourceError(f"{path.name} is a saved Trace: its size is what it is")
        trace = Trace.load(path)
        return Run(path.name, trace, puzzle or (trace.puzzle if trace.puzzle in PUZZLES else None))
    assert puzzle is not None, "only a Trace may be about no puzzle"
    if PUZZLES[puzzle].is_function:
        raise SourceError(f"the answer to {puzzle} is a plain function: there is no run of it, only `puzzles run`")
    if not _is_own(path):
        models = simulate(load_function(path, puzzle), puzzle=puzzle, **_sizes(size))
        return None if isinstance(models, Unsolved) else _run(what, Trace.of(models), puzzle, own=False)
    with _said(puzzle, path):
        found = _simulated(what, path, puzzle, limit, size)
        print(found.printed, end="")
        return found
    return None


def outcome(what: str, *, puzzle: str | None = None, limit: float = PATIENCE, **size: int | None) -> Outcome | None:
    """The verdict on it: see `run`, which says what it may be. What is solved is recorded as progress."""
    path, name = _found(what, puzzle)
    if name is None or path.suffix == ".json" or not PUZZLES[name].is_function:
        found = run(what, puzzle=puzzle, limit=limit, **size)
        return None if found is None else Outcome(judged(found), found.printed, found)
    with _said(name, path):
        answered = _answered(path, name, limit)
        print(answered.printed, end="")
        return answered
    return None


@contextmanager
def _said(puzzle: str, path: Path) -> Generator[None]:
    """Says that a function is not solved yet, as simulate does, and what it printed before it failed."""
    try:
        yield
    except Stub:
        print(NotSolved(puzzle))
        if is_edition(path):
            print(f"{shown(path)} is the copy that stays as it is; yours is {shown(notebook_of(puzzle))}")
    except Failed as failed:
        print(failed.printed, end="")
        raise


def attempt(file: Path, puzzle: str, limit: float = LIMIT) -> Attempt:
    """What comes of the function `puzzle` of a notebook or .py at the puzzle's size, in at most `limit` seconds.

    It is recorded as progress, as `puzzles run` does. Nothing is raised for anything that the function does.
    """
    try:
        # As a student's in any case: what the function prints, and that it is not solved, is for our caller to say.
        if PUZZLES[puzzle].is_function:
            found = _answered(file, puzzle, limit)
        else:
            run = _simulated(str(file), file, puzzle, limit, {})
            found = Outcome(judged(run), run.printed, run)
    except Stub:
        return Attempt(puzzle, "unsolved")
    except Failed as failed:
        return Attempt(puzzle, "failed", str(failed), failed.printed)
    except (PuzzleError, TraceError, SourceError, BuildError) as error:
        return Attempt(puzzle, "failed", str(error))
    state = "passed" if found.verdict.passed else "missed" if found.verdict.correct else "failed"
    return Attempt(puzzle, state, found.verdict.text(), found.printed)


def judged(found: Run) -> Verdict:
    """The verdict on a run. One of your own function, at the size of its puzzle, is recorded as progress."""
    verdict = check(found.trace, found.puzzle)
    if found.own:
        progress.checked(verdict, found.trace)
    return verdict


def _found(what: str, puzzle: str | None) -> tuple[Path, str | None]:
    """The file to run, and its puzzle. SourceError where there is none."""
    if puzzle is not None and puzzle not in PUZZLES:
        raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
    path = Path(what)
    if path.suffix == ".json":
        return path, puzzle
    if what in PUZZLES:
        return reference(what), what
    if path.suffix in (".py", ".ipynb"):
        path = located(path)
        return path, puzzle or puzzle_of(path)
    wanted = "neither a puzzle nor a notebook (.ipynb), Python (.py) or saved Trace (.json)"
    raise SourceError(f"{what!r} is {wanted}; the puzzles are {', '.join(PUZZLES)}")


def _is_own(path: Path) -> bool:
    return (home() / "solutions").resolve() not in path.resolve().parents


def _sizes(size: dict[str, int | None]) -> dict[str, Any]:
    return {name: size.get(name) for name in Size._fields}


def _simulated(name: str, path: Path, puzzle: str, limit: float, size: dict[str, int | None]) -> Run:
    """A run of anybody's function, in a process of its own."""
    sent = _whole(run_of(path, puzzle, **_sizes(size), limit=limit))
    assert sent.trace is not None, "what ran has a Trace"
    return _run(name, sent.trace, puzzle, own=_is_own(path), printed=sent.printed)


def _run(name: str, trace: Trace, puzzle: str, *, own: bool, printed: str = "") -> Run:
    of = puzzle if PUZZLES[puzzle].fits(trace) else None
    return Run(name, replace(trace, puzzle=of), of, own, printed)


def _answered(path: Path, puzzle: str, limit: float) -> Outcome:
    """The verdict on the answers of a plain function: somebody's own gives them in a process of its own."""
    if not _is_own(path):
        return Outcome(judge_answers(puzzle, ask_here(load_function(path, puzzle))))
    printed: list[str] = []

    def ask(inputs: Sequence[Given]) -> Sequence[Answer]:
        sent = _whole(answers_of(path, puzzle, inputs, limit))
        printed.append(sent.printed)
        return sent.answers

    verdict = judge_answers(puzzle, ask)
    progress.checked(verdict, None)
    return Outcome(verdict, printed[0])


def _whole(sent: Sent) -> Sent:
    """What a process sent, if the function came to its end."""
    if sent.outcome == "unsolved":
        raise Stub
    if sent.outcome == "source":
        raise SourceError(sent.text)
    if sent.outcome == "failed":
        raise Failed(sent)
    return sent
