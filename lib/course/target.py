"""What the command can be pointed at, be it a puzzle's id, a notebook, a .py or a saved Trace: each gives a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lib.analysis import figures
from lib.checker.checker import check
from lib.checker.verdict import Verdict
from lib.course import progress
from lib.puzzles.records import PUZZLES
from lib.simulator.simulator import Unsolved, simulate
from lib.submissions.load import SourceError, load_function, puzzle_of
from lib.submissions.locations import home, reference
from lib.trace.trace import Trace

__all__ = ["Run", "judged", "run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run under a name. `puzzle` is the one whose targets apply; none do at sizes that are not the puzzle's.

    `own`: of a function in somebody's own file. Our solutions and saved Traces are nobody's progress.
    """

    name: str
    trace: Trace
    puzzle: str | None
    own: bool = False

    def figures(self) -> dict[str, str]:
        """What one compares runs by: the verdict, time, memory, the makespan's bubble, and what moves."""
        verdict, traffic = check(self.trace), figures.traffic(self.trace)
        return {
            "correct": "yes" if verdict.correct else "no",
            "steps": f"{verdict.time:g}",
            "elements": f"{verdict.memory:,.0f}",
            "bubble": f"{figures.bubbles(self.trace).makespan:.1%}",
            "sent a rank": f"{max(float(sent) for sent, _ in traffic):,.0f}",
            "messages": f"{max(messages for _, messages in traffic)}",
        }


def run(
    target: str,
    *,
    puzzle: str | None = None,
    ranks: int | None = None,
    layers: int | None = None,
    batches: int | None = None,
) -> Run | None:
    """Simulates the function of a notebook or .py, or a puzzle's reference solution, or loads a Trace.

    The function is that of `puzzle`, else of the puzzle that the file is about. None where it is not solved yet,
    which simulate has said. Raises SourceError, PuzzleError, or TraceError for a damaged Trace.
    """
    if puzzle is not None and puzzle not in PUZZLES:
        raise SourceError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
    path, resized = Path(target), (ranks, layers, batches) != (None, None, None)
    if path.suffix == ".json":
        if resized:
            raise SourceError(f"{path.name} is a saved Trace: its size is what it is")
        return _load(path, puzzle)
    if target in PUZZLES:
        path, puzzle = reference(target), target
    elif path.suffix in (".py", ".ipynb"):
        puzzle = puzzle or puzzle_of(path)
    else:
        what = "neither a puzzle nor a notebook (.ipynb), Python (.py) or saved Trace (.json)"
        raise SourceError(f"{target!r} is {what}; the puzzles are {', '.join(PUZZLES)}")
    function = load_function(path, puzzle)
    models = simulate(function, puzzle=puzzle, ranks=ranks, layers=layers, batches=batches)
    if isinstance(models, Unsolved):
        return None
    record, trace = PUZZLES[puzzle], Trace.of(models)
    goal = puzzle if record.fits(trace) else None
    own = (home() / "solutions").resolve() not in path.resolve().parents
    return Run(target, replace(trace, puzzle=goal), goal, own)


def judged(found: Run) -> Verdict:
    """The verdict on a run. One of your own function, at the size of its puzzle, is recorded as progress."""
    verdict = check(found.trace, found.puzzle)
    if found.own:
        progress.checked(verdict, found.trace)
    return verdict


def _load(path: Path, puzzle: str | None) -> Run:
    trace = Trace.load(path)
    return Run(path.name, trace, puzzle or (trace.puzzle if trace.puzzle in PUZZLES else None))
