"""Is the whole curriculum in order? Every record, source, notebook and reference, and nothing else lying about."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lib.checker.hidden_sizes import wrong_with
from lib.checker.verdict import FunctionVerdict, Verdict, check
from lib.errors.exceptions import NotSolved, PuzzleError
from lib.puzzles.puzzle import HINTS, Puzzle
from lib.puzzles.records import PUZZLES, of_one_notebook
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course.exports import read_notebook
from lib.suite.course.solutions import FOLDER, alternatives, description
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError, load_function
from lib.suite.submissions.locations import PAGES, notebook_in, place_of, source_of
from lib.suite.submissions.table import ask_here
from lib.trace.trace import Trace
from tools.notebooks.build import Source, build, read_sources, stale, without_demonstrations
from tools.notebooks.kernels import execute
from tools.notebooks.shared_cells import LISTEN

CHECKS = ("record", "generated", "unsolved", "reference", "hidden sizes", "hints", "alternatives", "teaching")
LITTER = ("__pycache__", ".ipynb_checkpoints")
TITLE = "# # $heading"
FEWEST = 5  # words that a hint has at least
UNSOLVED = "it raises NotSolved"
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
    their outputs are taken to be what they put out, as tests check.
    """
    findings = [Finding(record.stem, "record", _record_problem(root, record)) for record in PUZZLES.values()]
    unexpected = "nobody expects this file: remove it, or give it a record"
    findings += [Finding(name, "record", unexpected) for name in _extra(root)]
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
    taught = [source for source in sources if source.id in PUZZLES]
    return findings + [Finding(PUZZLES[source.id].stem, "teaching", _teaching_problem(source)) for source in taught]


def _record_problem(root: Path, record: Puzzle) -> str:
    place = f"solutions/{source_of(record.id)}"
    if not (root / place).is_file():
        return f"{place} is missing"
    if TITLE not in (root / place).read_text("utf-8").splitlines():
        return f"{place} has no line {TITLE!r}, for its number and its title"
    for easy, hard in pairwise(record.goals):
        if hard.time > easy.time or hard.memory > easy.memory:
            return f"goal {hard.name!r} asks for less than {easy.name!r}"
    if not record.goals and not record.is_function:
        return "it has no goals"
    if record.kind == "function" and not record.table:
        return "its table is empty"
    before = [one.id for one in PUZZLES.values() if one.number < record.number]
    for need in record.needs:  # each comes earlier, so there can be no circle
        if need not in before:
            why = "which does not come before it" if need in PUZZLES else "and there is no such puzzle"
            return f"it needs {need!r}, {why}"
    if record.deepens and record.deepens not in before:
        return f"it deepens {record.deepens!r}, which is not a puzzle that comes before it"
    if not record.deepens and (deeper := [need for need in record.needs if PUZZLES[need].deepens]):
        return f"it is on the core path, and needs {deeper[0]!r}, which may be skipped"
    return "" if record.teaches.strip() else "it does not say what it teaches"


def _extra(root: Path) -> list[str]:
    """What lies in the two folders and belongs to no puzzle."""
    every = (*PAGES, *PUZZLES)
    expected = {f"{folder}/{place_of(name)}.ipynb" for name in every for folder in ("puzzles", "solutions")}
    expected |= {f"solutions/{source_of(name)}" for name in every}
    expected |= {f"solutions/{FOLDER}/{path.name}" for puzzle in PUZZLES for path in alternatives(puzzle, root)}
    folders = {folder.as_posix() for name in expected for folder in Path(name).parents} - {"."}
    folders.add(f"solutions/{FOLDER}")
    expected |= {*folders, "solutions/parts", "solutions/ruff.toml", f"solutions/{FOLDER}/ruff.toml"}
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
        problem = f"{', '.join(mine)}: not what its source gives; run `puzzles build`" if mine else ""
        yield Finding(stem, "generated", problem)


def _unsolved(sources: list[Source], root: Path, stored: bool) -> Iterator[Finding]:
    """Run every student's notebook untouched: it must say that it is not solved, and fail nowhere.

    With `stored` its demonstrations are left out: they are cells of the solved notebooks as well, which tests run.
    """
    paths = {notebook_in(root / "puzzles", source.id): source for source in sources}
    there = {path: source for path, source in paths.items() if path.is_file()}
    try:
        notebooks = {path: read_notebook(path) for path in there}
        if stored:
            notebooks = {path: without_demonstrations(notebook) for path, notebook in notebooks.items()}
    except BuildError as error:
        yield Finding("puzzles", "unsolved", str(error))
        return
    for (path, source), ran in zip(there.items(), execute(notebooks, warm=True), strict=True):
        problem = str(ran) if isinstance(ran, BuildError) else _unsolved_problem(path, source, root, json.dumps(ran))
        yield Finding(path.stem, "unsolved", problem)


def _unsolved_problem(path: Path, source: Source, root: Path, said: str) -> str:
    for puzzle in (answer.puzzle for answer in source.answers):
        # One without a record is an exercise.
        if puzzle in PUZZLES and _outcome(_function(path, puzzle), PUZZLES[puzzle], root) != UNSOLVED:
            return f"{puzzle} in the student's notebook does not raise NotSolved"
        if f"{puzzle} is not solved yet" not in said:
            return f"run from top to bottom it does not say that {puzzle} is not solved yet"
    return ""


def _reference(root: Path, record: Puzzle) -> Iterator[Finding]:
    function = _function(root / "solutions" / source_of(record.id), record.id)
    outcome = _outcome(function, record, root, record.id)
    problem = outcome if isinstance(outcome, str) else ""
    if isinstance(outcome, Verdict):
        mine = f"time {outcome.time:g} and memory {outcome.memory:,.0f}"
        missed = [goal for goal in record.goals if not goal.allows(outcome.time, outcome.memory)]
        problem = "; ".join(f"{mine} miss {t.name!r}: time {t.time:g} and memory {t.memory:,}" for t in missed)
        if any(not goal.reached for goal in outcome.goals if goal.allows(outcome.time, outcome.memory)):
            problem = outcome.notes[0]
    yield Finding(record.stem, "reference", problem)
    if record.hidden and not isinstance(function, str) and not record.is_function:
        outcomes = [(size, _outcome(function, record, root, **size.given())) for size in record.hidden]
        sizes = "{0.ranks} ranks, {0.layers} layers, {0.batches} batches: {1}"
        said = [sizes.format(size, why) for size, why in outcomes if isinstance(why, str)]
        said += [str(error)] if (error := wrong_with(function, record)) is not None else []
        yield Finding(record.stem, "hidden sizes", "\n".join(said))


def _alternatives(root: Path, record: Puzzle) -> Iterator[str]:
    for path in alternatives(record.id, root):
        outcome = _outcome(_function(path, record.id), record, root, record.id)
        if isinstance(outcome, str):
            yield f"{path.name}: {outcome}"
        elif not all(description(path.read_text("utf-8"))):
            yield f"{path.name}: its docstring is a sentence on what it does, then what it is good for and costs"


def _function(path: Path, name: str) -> Function | str:
    """The function of a file, or why there is none."""
    try:
        return load_function(path, name)
    except SourceError as error:
        return str(error)


def _outcome(
    function: Function | str, record: Puzzle, root: Path, against: str | None = None, **size: Any
) -> Verdict | FunctionVerdict | str:
    """The verdict on a function that is correct, or why there is none; answers are judged by the reference in `root`,
    and figures by the goals of the puzzle `against`."""
    if isinstance(function, str):
        return function
    try:
        if record.is_function:
            verdict = judge_answers(record.id, ask_here(function), root / "solutions" / source_of(record.id))
        else:
            with contextlib.redirect_stdout(io.StringIO()):
                models = simulate(function, puzzle=record.id, **size)
            if isinstance(models, Unsolved):
                return UNSOLVED
            verdict = check(Trace.of(models), against)
    except NotSolved:
        return UNSOLVED
    except (SourceError, PuzzleError) as error:
        return str(error)
    return verdict if verdict.correct else "\n".join(verdict.faults)


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


def _teaching_problem(source: Source) -> str:
    """What is said for a teacher is there, and the minutes are what such a notebook takes."""
    record = PUZZLES[source.id]
    question, listen, answer = record.discuss.partition(LISTEN)
    if "?" not in question or not listen or len(answer.split()) < FEWEST:
        return f"what to discuss is a question, and then {LISTEN} what to listen for"
    estimated = estimate(source.text)
    minutes = record.minutes + sum(part.minutes for part in of_one_notebook(record)[1:])
    if minutes % ROUND or abs(minutes - estimated) > NEAR * estimated:
        return f"minutes are {minutes}: say a multiple of {ROUND} near {estimated:.0f}, the estimate"
    return ""


# -- how long a notebook takes --------------------------------------------------------------------------------------

A_MINUTE = 200  # words that are read in a minute, of a text to think about
# Minutes for a line of the answer, of at most 88 columns: to have the idea, write it, run it, and read what came of it.
# Many lines look alike, and some are there for the harder goals only.
A_LINE = 0.52
A_LINE_READ = 0.06  # minutes for a line of code that is given, where its cell is not folded
AROUND = 8  # minutes for what each notebook asks besides: predict, look at the pictures, check, review
ROUND = 5  # minutes are multiples of this; nobody knows them better
NEAR = 0.25  # how far from the estimate a record may be, as a part of it: some lines take more thought than others
LINES = re.compile(r"^ *# --- your code.*\(about (\d+) lines?\) ---$", re.MULTILINE)
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)


def estimate(source: str) -> float:
    """Estimate the minutes that a source takes a reader who knows PyTorch, and does no more than to pass: of its texts
    all words count that are not folded, without the cells that all notebooks share, the lines to be written, and those
    to be read."""
    cells = re.split(r"^# %%", FOLDED.sub("", source), flags=re.MULTILINE)[1:]
    heads = [cell.partition("\n")[::2] for cell in cells]
    words = sum(len(text.replace("\n#", "\n").split()) for head, text in heads if head == " [markdown]")
    given = [text for head, text in heads if not re.search(r"markdown|source_hidden|judge", head)]
    written = sum(map(int, LINES.findall(source)))
    read = sum(bool(line.strip()) for text in given for line in text.splitlines()) - written
    return AROUND + words / A_MINUTE + A_LINE * written + A_LINE_READ * read
