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

from .answers import BuildError
from .check import check
from .errors import PuzzleError
from .kernels import execute
from .model import Model
from .notebooks import INTRODUCTION, Source, build, read_sources, stale
from .puzzles import PUZZLES, Puzzle
from .simulate import Unsolved, simulate
from .sources import SourceError, load_function
from .trace import Trace
from .verdict import Verdict

__all__ = ["CHECKS", "Finding", "verify"]

CHECKS = ("record", "generated", "unsolved", "reference", "hidden sizes")
LITTER = ("__pycache__", ".ipynb_checkpoints")
FIRST = f"00_{INTRODUCTION}"
Function = Callable[[Model], Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check of one notebook. `problem` is empty where all is well."""

    stem: str
    check: str
    problem: str = ""


def verify(root: Path) -> list[Finding]:
    """Every check of every puzzle, in order. `root` holds puzzles/ and solutions/."""
    findings = [Finding(record.stem, "record", _record_problem(root, record)) for record in PUZZLES.values()]
    findings += [
        Finding(name, "record", "nobody expects this file: remove it, or give it a record") for name in _extra(root)
    ]
    findings += _generated(root)
    findings += _unsolved(root)
    for record in PUZZLES.values():
        findings += _reference(root, record)
    return findings


def _record_problem(root: Path, record: Puzzle) -> str:
    source = root / "solutions" / f"{record.stem}.py"
    if not source.is_file():
        return f"solutions/{source.name} is missing"
    title = f"# # {record.number + 1}. {record.title}"
    if title not in source.read_text("utf-8").splitlines():
        return f"solutions/{source.name} has no line {title!r}: the title of the record"
    for easy, hard in pairwise(record.tiers):
        if hard.time > easy.time or hard.memory > easy.memory:
            return f"tier {hard.name!r} asks for less than {easy.name!r}"
    return "" if record.tiers else "it has no tiers"


def _extra(root: Path) -> list[str]:
    """What lies in the two folders and belongs to no puzzle."""
    stems = [FIRST, *(record.stem for record in PUZZLES.values())]
    expected = {f"puzzles/{stem}.ipynb" for stem in stems}
    expected |= {f"solutions/{stem}{ending}" for stem in stems for ending in (".py", ".ipynb")}
    names = (f"{folder}/{path.name}" for folder in ("puzzles", "solutions") for path in (root / folder).glob("*"))
    return sorted(name for name in names if name not in expected and not name.endswith(LITTER))


def _generated(root: Path) -> Iterator[Finding]:
    try:
        files = build(root)
    except BuildError as error:
        yield Finding("solutions", "generated", str(error))
        return
    old = stale(files, root)
    for stem in dict.fromkeys(Path(name).stem for name in files):
        mine = [name for name in old if Path(name).stem == stem]
        problem = f"{', '.join(mine)}: not what solutions/{stem}.py gives; run `puzzles build`" if mine else ""
        yield Finding(stem, "generated", problem)


def _unsolved(root: Path) -> Iterator[Finding]:
    """Runs every student's notebook untouched: it must say that it is not solved, and fail nowhere."""
    try:
        sources = read_sources(root / "solutions")
    except BuildError:
        return  # which is reported already
    folder = root / "puzzles"
    there = [source for source in sources if (folder / f"{source.path.stem}.ipynb").is_file()]
    runs = execute({folder / f"{source.path.stem}.ipynb": source.student() for source in there})
    for source, ran in zip(there, runs, strict=True):
        yield Finding(source.path.stem, "unsolved", _unsolved_problem(source, ran, folder))


def _unsolved_problem(source: Source, ran: dict[str, Any] | BuildError, folder: Path) -> str:
    if isinstance(ran, BuildError):
        return str(ran)
    said = json.dumps(ran)
    for answer in source.answers:
        function = _function(folder / f"{source.path.stem}.ipynb", answer.puzzle)
        if isinstance(function, str):
            return function
        if not isinstance(_simulated(function, puzzle=answer.puzzle), Unsolved):
            return f"{answer.puzzle} in the student's notebook does not raise NotSolved"
        if f"{answer.puzzle} is not solved yet" not in said:
            return f"run from top to bottom it does not say that {answer.puzzle} is not solved yet"
    return ""


def _reference(root: Path, record: Puzzle) -> Iterator[Finding]:
    function = _function(root / "solutions" / f"{record.stem}.py", record.id)
    if isinstance(function, str):
        yield Finding(record.stem, "reference", function)
        return
    yield Finding(record.stem, "reference", _at_full_size(function, record))
    problems: list[str] = []
    for size in record.hidden:
        verdict = _verdict(
            function, None, ranks=size.ranks, layers=size.layers, batches=size.batches, costs=record.costs
        )
        if isinstance(verdict, str):
            problems.append(f"{size.ranks} ranks, {size.layers} layers, {size.batches} batches: {verdict}")
    if record.hidden:
        yield Finding(record.stem, "hidden sizes", "\n".join(problems))


def _at_full_size(function: Function, record: Puzzle) -> str:
    verdict = _verdict(function, record.id, puzzle=record.id)
    if isinstance(verdict, str):
        return verdict
    missed = [tier for tier in record.tiers if not tier.reached(verdict.time, verdict.memory)]
    mine = f"{verdict.time:g} steps and {verdict.memory:,.0f} elements"
    return "; ".join(f"{mine} miss {t.name!r}: {t.time:g} and {t.memory:,}" for t in missed)


def _function(path: Path, name: str) -> Function | str:
    try:
        return load_function(path, name)
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
