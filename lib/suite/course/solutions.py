"""Official answers to puzzles, and other ways to do them: code, figures, and what each is good for."""

from __future__ import annotations

import ast
import textwrap
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from lib.analysis import figures
from lib.analysis.bounds.limits import has_bound, lower_bound
from lib.checker.verdict import FunctionVerdict, Verdict, check
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import amount
from lib.puzzles.records import PUZZLES
from lib.simulator.simulator import Unsolved, simulate
from lib.suite.course.progress import Standing, known, passed_here
from lib.suite.submissions.function_check import judge_answers
from lib.suite.submissions.gap import BuildError, find
from lib.suite.submissions.load import SourceError, load_function
from lib.suite.submissions.locations import home, mine, reference, shown, yours
from lib.suite.submissions.table import ask_here
from lib.trace.json_format import with_places
from lib.trace.trace import Trace

FOLDER = "alternatives"  # the folder of the alternatives, in solutions/, with files <puzzle>_<name>.py
OFFICIAL = "official"  # the name of the reference solution


def answer(puzzle: str) -> str:
    """Return the lines of the official answer, between the markers in its source. BuildError if there are none."""
    path = reference(puzzle)
    text = path.read_text("utf-8")
    every = find(text, path.name, path.stem if path.stem in PUZZLES else None)
    if (found := next((one for one in every if one.puzzle == puzzle), None)) is None:
        raise BuildError(f"{path.name} holds no answer to {puzzle!r}")
    return textwrap.dedent("\n".join(text.splitlines()[found.first : found.last - 1]))


def alternatives(puzzle: str, root: Path | None = None) -> list[Path]:
    """Return the files of solutions/alternatives/ with another way to do a puzzle, in order. `root` has solutions/."""
    folder = (root or home()) / "solutions" / FOLDER
    return [path for path in sorted(folder.glob("*.py")) if owner(path) == puzzle]


def owner(path: Path) -> str | None:
    """Return the puzzle of an alternative by its name, <puzzle>_<name>.py; None if there is no such puzzle. If two fit
    (pipeline, pipeline_fsdp), the longer wins."""
    return max((puzzle for puzzle in PUZZLES if path.stem.startswith(f"{puzzle}_")), key=len, default=None)


def files_of(puzzle: str) -> dict[str, Path]:
    """Return the files of all our ways to do a puzzle, by name, the official one first."""
    others = {path.stem.removeprefix(f"{puzzle}_"): path for path in alternatives(puzzle)}
    return {OFFICIAL: reference(puzzle), **others}


def description(text: str) -> tuple[str, str]:
    """Read an alternative's docstring: its first line, and the rest as one paragraph. Empty if it has none."""
    first, _, rest = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
    return first, " ".join(rest.split())


# -- runs ----------------------------------------------------------------------------------------------------------


def run_of_file(path: Path, puzzle: str, **size: Any) -> Trace:
    """Run the function in a file at the puzzle's size, or another. Raises what running does, SourceError for a stub."""
    with redirect_stdout(StringIO()):  # keep a stub's note out of the output
        models = simulate(load_function(path, puzzle), puzzle=puzzle, **size)
    if isinstance(models, Unsolved):
        raise SourceError(f"{path.name} is not solved")
    return Trace.of(models)


def verdict_of(path: Path, puzzle: str) -> Verdict | FunctionVerdict:
    """Judge the function in a file of ours at the puzzle's size. Raises what running it raises."""
    if PUZZLES[puzzle].is_function:
        return judge_answers(puzzle, ask_here(load_function(path, puzzle)))
    return check(run_of_file(path, puzzle), puzzle)


def without_lines(trace: Trace) -> Trace:
    """Return the same run without its lines of code."""
    return with_places(trace, [[None] * len(program.events) for program in trace.programs])


@cache
def schedule_of(puzzle: str) -> Trace:
    """Run the official answer, without its lines of code: what it does when is no secret, but its code is."""
    return without_lines(run_of_file(reference(puzzle), puzzle))


def schedule_to_show(puzzle: str) -> Trace | None:
    """Return the official answer's run once it spoils nothing: after a correct run, or the second hint."""
    standing = known().get(puzzle, Standing())
    gives_nothing = puzzle in passed_here or standing.time is not None or standing.hints > 1
    return schedule_of(puzzle) if gives_nothing else None


def run_of(puzzle: str) -> tuple[Trace, bool]:
    """Return the student's own run of a puzzle they have passed, from this process or their notebook, and True; else
    the official answer's run, and False. For the puzzles that build on it."""
    if (here := passed_here.get(puzzle)) is not None:
        return here, True
    if known().get(puzzle, Standing()).passed:
        with suppress(SourceError, PuzzleError, OSError):
            run = run_of_file(mine(puzzle, yours(Path.cwd())), puzzle)
            if check(run, puzzle).correct:
                return run, True
    return schedule_of(puzzle), False


class Known(NamedTuple):
    """The figures of another way to do a puzzle. `inside`: the puzzle's lower bounds apply to it."""

    name: str
    time: float
    memory: float
    inside: bool


@cache
def known_ways(puzzle: str) -> tuple[Known, ...]:
    """Return the figures of a puzzle's alternatives, which run once per process."""
    runs = {name: run_of_file(path, puzzle) for name, path in files_of(puzzle).items() if name != OFFICIAL}
    bound = lower_bound(puzzle) if has_bound(puzzle) else None
    return tuple(
        Known(name, figures.end(run), float(figures.peak(run).elements), bound is None or bound.excuse(run) is None)
        for name, run in runs.items()
    )


# -- shown to those who have passed --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """One correct way to do a puzzle. `about` says what it does, `worth` what it is good for and what it costs."""

    name: str
    path: Path
    about: str
    worth: str
    code: str
    verdict: Verdict | FunctionVerdict

    @property
    def figures(self) -> str:
        """Return its time, memory and goal; empty for a plain function."""
        if isinstance(self.verdict, FunctionVerdict):
            return ""
        time, memory, best = self.verdict.time, self.verdict.memory, self.verdict.best
        return f"time {time:g}, memory {amount(memory)}, goal reached: {best or 'none'}"


def ways(puzzle: str) -> list[Way]:
    """Return the official answer, then the alternatives, each run and checked now."""
    every: list[Way] = []
    for name, path in files_of(puzzle).items():
        said = "", "", answer(puzzle)
        if name != OFFICIAL:
            text = path.read_text("utf-8")
            functions = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            firsts = (min(part.lineno for part in (one, *one.decorator_list)) - 1 for one in functions)
            ends = (one.end_lineno for one in functions)
            code = ("\n".join(text.splitlines()[first:end]) for first, end in zip(firsts, ends, strict=True))
            said = *description(text), "\n\n\n".join(code)
        every.append(Way(name, path, *said, verdict_of(path, puzzle)))
    return every


def refusal(puzzle: str, standing: Standing | None) -> str | None:
    """Say what is missing before the command shows the answer; None if the puzzle is passed."""
    if standing is not None and standing.passed:
        return None
    where = shown(reference(puzzle))
    return (
        f"{_missing(puzzle, standing)} The answer is shown when the puzzle is passed.\n"
        f"For a step in the right direction: puzzles hint {puzzle}\n"
        f"If a file of yours passes already: puzzles reveal {puzzle} --file FILE\n"
        f"The solutions are no secret: they lie in the repository under solutions/, this one in {where}"
    )


def _missing(puzzle: str, standing: Standing | None) -> str:
    if standing is None or not standing.runs:
        return f"{puzzle} has not been checked yet."
    if PUZZLES[puzzle].is_function:
        return f"{puzzle} has been checked ({standing.runs} so far), but was not right on every input yet."
    if standing.time is None or standing.memory is None:
        return f"{puzzle} has been checked ({standing.runs} so far), but no run was right at every size yet."
    if (easiest := PUZZLES[puzzle].goals[0]).allows(standing.time, standing.memory):
        return f"{puzzle} is within its first goal, but that does not count: the note of its check says why."
    return (
        f"{puzzle} is correct, with time {standing.time:g} and memory {amount(standing.memory)} at best, but it "
        f"passes with at most time {easiest.time:g} and memory {easiest.memory:,}."
    )


@dataclass(frozen=True, slots=True)
class Revealed:
    """One way to do a puzzle, as Markdown, which a notebook renders, and which prints as is elsewhere; and its file."""

    path: Path
    markdown: str

    def _repr_markdown_(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        return self.markdown


def revealed(puzzle: str, way: str, call: str) -> Revealed:
    """Return one way to do a puzzle with its code and figures, and below the official one all others; `call`, with a
    name filled in, shows another. SourceError for an unknown way."""
    every = {one.name: one for one in ways(puzzle)}
    if way not in every:
        raise SourceError(f"{puzzle} has no solution called {way!r}; there are {', '.join(every)}")
    one = every.pop(way)
    said = [f"**{puzzle}, {one.name}**" + (f": {one.figures}" if one.figures else "")]
    said += [f"{one.about} {one.worth}"] * bool(one.about) + [f"```python\n{one.code}\n```"]
    for other in every.values() if way == OFFICIAL else ():
        name = f"**{other.name}**" + (f" ({other.figures})" if other.figures else "")
        said.append(f"{name}: {other.about} {other.worth} `{call.format(other.name)}` shows its code.")
    return Revealed(one.path, "\n\n".join(said))


def reveal(puzzle: str, way: str = OFFICIAL) -> Revealed | None:
    """Show the official answer to a puzzle with a list of other ways, or the code of one of these, once you have
    passed. Before that, print what is missing, and return None. ValueError for an unknown puzzle or way."""
    record = PUZZLES[puzzle]
    standing = known().get(record.id)
    if record.id not in passed_here and not (standing is not None and standing.passed):
        print(f"{_missing(puzzle, standing)} The answer is shown when the puzzle is passed.")
        print(f'For a step in the right direction: hint("{puzzle}", 1)')
        return None
    return revealed(puzzle, way, f'reveal("{puzzle}", "{{}}")')
