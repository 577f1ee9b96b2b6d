"""Is the whole curriculum in order? Every record, source, notebook and reference, and nothing else lying about."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lib.checker.checker import check
from lib.checker.verdict import FunctionVerdict, Verdict
from lib.errors.exceptions import NotSolved, PuzzleError
from lib.puzzles.records import HINTS, PUZZLES, Puzzle
from lib.simulator.model import Model
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course.solutions import FOLDER, alternatives, description
from lib.suite.notebooks.build import Source, build, read_sources, stale, without_demonstrations
from lib.suite.notebooks.exports import read_notebook
from lib.suite.notebooks.kernels import execute
from lib.suite.notebooks.shared_cells import LISTEN, PAGES, ROUND, estimate, near, words
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError, load_function
from lib.suite.submissions.table import ask_here
from lib.trace.trace import Trace

__all__ = ["CHECKS", "Finding", "verify"]

CHECKS = ("record", "generated", "unsolved", "reference", "hidden sizes", "hints", "alternatives", "teaching")
LITTER = ("__pycache__", ".ipynb_checkpoints")
TITLE = "# # $heading"
FEWEST = 5
"""Words that a hint has at least."""
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check of one notebook. `problem` is empty where all is well."""

    stem: str
    check: str
    problem: str = ""


def verify(root: Path, *, stored: bool = False) -> list[Finding]:
    """Check every puzzle in every way, in order. `root` holds puzzles/ and solutions/.

    With `stored` the solved notebooks are not run, nor what the unsolved ones have of them whatever a student writes:
    their outputs are taken to be what they put out, as nbval checks.
    """
    findings = [Finding(record.stem, "record", _record_problem(root, record)) for record in PUZZLES.values()]
    findings += [
        Finding(name, "record", "nobody expects this file: remove it, or give it a record") for name in _extra(root)
    ]
    findings += _generated(root, stored)
    try:
        sources = read_sources(root / "solutions")
    except BuildError:
        sources = []  # which is reported already
    findings += _unsolved(sources, root, stored)
    for record in PUZZLES.values():
        findings += _reference(root, record)
        findings.append(Finding(record.stem, "hints", _hints_problem(record)))
        findings.append(Finding(record.stem, "alternatives", "\n".join(_alternatives(root, record))))
    return findings + list(_teaching(sources))


def _record_problem(root: Path, record: Puzzle) -> str:
    source = root / "solutions" / f"{record.stem}.py"
    if not source.is_file():
        return f"solutions/{source.name} is missing"
    if TITLE not in source.read_text("utf-8").splitlines():
        return f"solutions/{source.name} has no line {TITLE!r}, for its number and its title"
    for easy, hard in pairwise(record.goals):
        if hard.time > easy.time or hard.memory > easy.memory:
            return f"goal {hard.name!r} asks for less than {easy.name!r}"
    if not record.goals and not record.is_function:
        return "it has no goals"
    if record.is_function and not record.table:
        return "its table is empty"
    return _needs_problem(record)


def _needs_problem(record: Puzzle) -> str:
    """Say what is wrong with the puzzles to solve before. Each comes earlier, so there can be no circle."""
    for need in record.needs:
        if need not in PUZZLES:
            return f"it needs {need!r}, and there is no such puzzle"
        if PUZZLES[need].number >= record.number:
            return f"it needs {need!r}, which does not come before it"
    return "" if record.teaches.strip() else "it does not say what it teaches"


def _extra(root: Path) -> list[str]:
    """Find what lies in the two folders and belongs to no puzzle."""
    stems = [*(f"00_{name}" for name in PAGES), *(record.stem for record in PUZZLES.values())]
    expected = {"solutions/alternatives", "solutions/parts", *(f"puzzles/{stem}.ipynb" for stem in stems)}
    expected |= {f"solutions/{stem}{ending}" for stem in stems for ending in (".py", ".ipynb")}
    expected |= {f"solutions/{FOLDER}/{path.name}" for puzzle in PUZZLES for path in alternatives(puzzle, root)}
    folders = ("puzzles", "solutions", f"solutions/{FOLDER}")
    names = (f"{folder}/{path.name}" for folder in folders for path in (root / folder).glob("*"))
    return sorted(name for name in names if name not in expected and not name.endswith(LITTER))


def _generated(root: Path, stored: bool) -> Iterator[Finding]:
    try:
        files = build(root, stored=stored)
    except BuildError as error:
        yield Finding("solutions", "generated", str(error))
        return
    old = stale(files, root)
    for stem in dict.fromkeys(Path(name).stem for name in files):
        mine = [name for name in old if Path(name).stem == stem]
        problem = f"{', '.join(mine)}: not what solutions/{stem}.py gives; run `puzzles build`" if mine else ""
        yield Finding(stem, "generated", problem)


def _unsolved(sources: list[Source], root: Path, stored: bool) -> Iterator[Finding]:
    """Run every student's notebook untouched: it must say that it is not solved, and fail nowhere.

    With `stored` its demonstrations are left out: they are cells of the solved notebooks as well, which nbval runs.
    """
    folder = root / "puzzles"
    there = {folder / f"{source.path.stem}.ipynb": source for source in sources}
    there = {path: source for path, source in there.items() if path.is_file()}
    try:
        notebooks = {path: read_notebook(path) for path in there}
        if stored:
            notebooks = {path: without_demonstrations(notebook) for path, notebook in notebooks.items()}
    except BuildError as error:
        yield Finding("puzzles", "unsolved", str(error))
        return
    for source, ran in zip(there.values(), execute(notebooks, warm=True), strict=True):
        yield Finding(source.path.stem, "unsolved", _unsolved_problem(source, ran, folder))


def _unsolved_problem(source: Source, ran: dict[str, Any] | BuildError, folder: Path) -> str:
    if isinstance(ran, BuildError):
        return str(ran)
    said = json.dumps(ran)
    for answer in source.answers:
        if answer.puzzle in PUZZLES:  # else it is an exercise
            function = _function(folder / f"{source.path.stem}.ipynb", answer.puzzle)
            if isinstance(function, str):
                return function
            if not _is_unsolved(function, answer.puzzle):
                return f"{answer.puzzle} in the student's notebook does not raise NotSolved"
        if f"{answer.puzzle} is not solved yet" not in said:
            return f"run from top to bottom it does not say that {answer.puzzle} is not solved yet"
    return ""


def _reference(root: Path, record: Puzzle) -> Iterator[Finding]:
    function = _function(root / "solutions" / f"{record.stem}.py", record.id)
    if isinstance(function, str):
        yield Finding(record.stem, "reference", function)
        return
    if record.is_function:
        verdict = _answered(function, record, root)
        yield Finding(record.stem, "reference", verdict if isinstance(verdict, str) else "\n".join(verdict.faults))
        return
    yield Finding(record.stem, "reference", _at_full_size(function, record))
    problems: list[str] = []
    for size in record.hidden:
        verdict = _verdict(function, None, puzzle=record.id, **size._asdict())
        if isinstance(verdict, str):
            problems.append(f"{size.ranks} ranks, {size.layers} layers, {size.batches} batches: {verdict}")
    if record.hidden:
        yield Finding(record.stem, "hidden sizes", "\n".join(problems))


def _hints_problem(record: Puzzle) -> str:
    """A question, an idea, nearly the code: each says something of its own."""
    if len(record.hints) != len(HINTS):
        return f"it has {len(record.hints)} hints, and not {len(HINTS)}: {', '.join(HINTS)}"
    for number, hint in enumerate(record.hints, 1):
        if len(hint.split()) < FEWEST:
            return f"hint {number} says nothing: {hint!r}"
    if len(set(record.hints)) < len(record.hints):
        return "two of its hints are the same"
    return "" if "?" in record.hints[0] else "its first hint asks nothing: it has no question mark"


def _teaching(sources: list[Source]) -> Iterator[Finding]:
    """Check that what is said for a teacher is there, and that the minutes are what such a notebook takes."""
    for source in sources:
        if source.id in PUZZLES:
            yield Finding(source.path.stem, "teaching", _teaching_problem(source, PUZZLES[source.id]))


def _teaching_problem(source: Source, record: Puzzle) -> str:
    question, listen, answer = record.discuss.partition(LISTEN)
    if "?" not in question or not listen or len(answer.split()) < FEWEST:
        return f"what to discuss is a question, and then {LISTEN} what to listen for"
    lines = sum(answer.lines for answer in source.answers)
    estimated = estimate(words(source.text), lines)
    if not near(record.minutes, estimated):
        return f"minutes are {record.minutes}: say a multiple of {ROUND} near {estimated:.0f}, the estimate"
    return ""


def _alternatives(root: Path, record: Puzzle) -> Iterator[str]:
    """Say what is wrong with the other ways to do a puzzle."""
    for path in alternatives(record.id, root):
        function = _function(path, record.id)
        if isinstance(function, str):
            verdict = function
        elif record.is_function:
            verdict = _answered(function, record, root)
        else:
            verdict = _verdict(function, record.id, puzzle=record.id)
        if isinstance(verdict, str) or not verdict.correct:
            yield f"{path.name}: {verdict if isinstance(verdict, str) else verdict.text()}"
        elif not all(description(path.read_text("utf-8"))):
            yield f"{path.name}: its docstring is a sentence on what it does, then what it is good for and costs"


def _at_full_size(function: Function, record: Puzzle) -> str:
    verdict = _verdict(function, record.id, puzzle=record.id)
    if isinstance(verdict, str):
        return verdict
    if any(not goal.reached for goal in verdict.goals if goal.allows(verdict.time, verdict.memory)):
        return verdict.notes[0]
    missed = [goal for goal in record.goals if not goal.allows(verdict.time, verdict.memory)]
    mine = f"time {verdict.time:g} and memory {verdict.memory:,.0f}"
    return "; ".join(f"{mine} miss {t.name!r}: time {t.time:g} and memory {t.memory:,}" for t in missed)


def _function(path: Path, name: str) -> Function | str:
    try:
        return load_function(path, name)
    except SourceError as error:
        return str(error)


def _is_unsolved(function: Function, puzzle: str) -> bool:
    """Tell whether a function is the stub, and says so."""
    record = PUZZLES[puzzle]
    if not record.is_function:
        return isinstance(_simulated(function, puzzle=puzzle), Unsolved)
    try:
        ask_here(function)([row.given for row in record.table[:1]])
    except NotSolved:
        return True
    return False


def _answered(function: Function, record: Puzzle, root: Path) -> FunctionVerdict | str:
    """The verdict on a plain function by the reference in `root`, or why there is none."""
    try:
        return judge_answers(record.id, ask_here(function), root / "solutions" / f"{record.stem}.py")
    except NotSolved:
        return "it raises NotSolved"
    except SourceError as error:
        return str(error)


def _verdict(function: Function, against: str | None, **sizes: Any) -> Verdict | str:
    """The verdict on a correct run, or why it is not one."""
    try:
        models = _simulated(function, **sizes)
    except PuzzleError as error:
        return str(error)
    if isinstance(models, Unsolved):
        return "it raises NotSolved"
    verdict = check(Trace.of(models), against)
    return verdict if verdict.correct else "\n".join(verdict.faults)


def _simulated(function: Function, **sizes: Any) -> list[Model]:
    with contextlib.redirect_stdout(io.StringIO()):
        return simulate(function, **sizes)
