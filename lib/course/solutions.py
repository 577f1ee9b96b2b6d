"""The official answer to a puzzle, and other ways to do it: their code, their figures, what each is good for."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path

from lib.checker.checker import check
from lib.checker.table import ask_here
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.course.progress import Standing
from lib.errors.wording import amount
from lib.puzzles.records import PUZZLES, puzzle_of_file
from lib.simulator.simulator import Unsolved, simulate
from lib.submissions.function_check import judge_answers
from lib.submissions.gap import BuildError, find
from lib.submissions.load import SourceError, load_function
from lib.submissions.locations import home, reference, shown
from lib.trace.trace import Trace

__all__ = ["FOLDER", "Way", "alternatives", "answer", "description", "owner", "refusal", "ways"]

FOLDER = "alternatives"
"""The folder of the alternatives, in solutions/. Their files are called <puzzle>_<name>.py."""


@dataclass(frozen=True, slots=True)
class Way:
    """One correct way to do a puzzle. `about` says what it does, `worth` what it is good for and what it costs."""

    name: str
    path: Path
    about: str
    worth: str
    code: str
    verdict: Verdict | FunctionVerdict


def answer(puzzle: str) -> str:
    """The lines of the official answer, as they stand between the markers of its source. BuildError without any."""
    path = reference(puzzle)
    text = path.read_text("utf-8")
    for found in find(text, path.name, puzzle if puzzle_of_file(path.stem) else None):
        if found.puzzle == puzzle:
            return textwrap.dedent("\n".join(text.splitlines()[found.first : found.last - 1]))
    raise BuildError(f"{path.name} holds no answer to {puzzle!r}")


def alternatives(puzzle: str, root: Path | None = None) -> list[Path]:
    """The files of solutions/alternatives/ that hold another way to do a puzzle, in order. `root` holds solutions/."""
    folder = (root or home()) / "solutions" / FOLDER
    return [path for path in sorted(folder.glob("*.py")) if owner(path) == puzzle]


def owner(path: Path) -> str | None:
    """The puzzle of an alternative by its name, <puzzle>_<name>.py; None where there is no such puzzle.

    Of two that would do (pipeline, pipeline_fsdp) it is the longer.
    """
    return max((puzzle for puzzle in PUZZLES if path.stem.startswith(f"{puzzle}_")), key=len, default=None)


def ways(puzzle: str) -> list[Way]:
    """The official answer, and then the alternatives. Each is run and checked now."""
    first = Way("official", reference(puzzle), "", "", answer(puzzle), verdict_of(reference(puzzle), puzzle))
    return [first, *(_alternative(path, puzzle) for path in alternatives(puzzle))]


def _alternative(path: Path, puzzle: str) -> Way:
    text = path.read_text("utf-8")
    about, worth = description(text)
    body = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    code = "\n\n\n".join(ast.get_source_segment(text, node) or "" for node in body)
    return Way(path.stem.removeprefix(f"{puzzle}_"), path, about, worth, code, verdict_of(path, puzzle))


def description(text: str) -> tuple[str, str]:
    """What an alternative's docstring says: its first line, and the rest as one paragraph. Empty where it has none."""
    first, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
    return first, " ".join(rest.split())


def verdict_of(path: Path, puzzle: str) -> Verdict | FunctionVerdict:
    """The verdict on the function in a file of ours at the puzzle's size. Raises what running it raises."""
    if PUZZLES[puzzle].is_function:
        return judge_answers(puzzle, ask_here(load_function(path, puzzle)))
    models = simulate(load_function(path, puzzle), puzzle=puzzle)
    if isinstance(models, Unsolved):
        raise SourceError(f"{path.name} is not solved")
    return check(Trace.of(models), puzzle)


def refusal(puzzle: str, standing: Standing | None) -> str | None:
    """What is missing before the answer is shown, in words; None where the puzzle is passed."""
    if standing is not None and standing.passed:
        return None
    if standing is None or not standing.runs:
        missing = f"{puzzle} has not been checked yet."
    elif PUZZLES[puzzle].is_function:
        missing = f"{puzzle} has been checked ({standing.runs} so far), but was not right on every input yet."
    elif standing.time is None or standing.memory is None:
        missing = f"{puzzle} has been checked ({standing.runs} so far), but no run was one correct training step yet."
    elif (easiest := PUZZLES[puzzle].goals[0]).allows(standing.time, standing.memory):
        missing = f"{puzzle} is within its first goal, but that does not count: the note of its check says why."
    else:
        missing = (
            f"{puzzle} is correct, with time {standing.time:g} and memory {amount(standing.memory)} at best, but it "
            f"passes with at most time {easiest.time:g} and memory {easiest.memory:,}."
        )
    where = shown(reference(puzzle))
    return (
        f"{missing} The answer is shown when the puzzle is passed.\n"
        f"For a step in the right direction: puzzles hint {puzzle}\n"
        f"If a file of yours passes already: puzzles reveal {puzzle} --file FILE\n"
        f"The solutions are no secret: they lie in the repository under solutions/, this one in {where}"
    )
