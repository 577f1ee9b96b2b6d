"""The mistakes of students, one file each in cases/: what they thought, what they wrote, and what they are told.

A case starts from the reference solution of a puzzle, or from a function of its own:

    One sentence: what the student thought.

    puzzle: ddp
    line: the student's line that the message must show (without it: a line of the change that begins with +)
    start: fsdp_one_ahead (an alternative from which the student started, instead of the reference)
    rank: none, because ... (where the mistake is not made on a rank)
    driver: simulate, because ... (where the message cannot be the same under asyncio.gather)

    ### change
    -    a line of the reference
    +    what the student wrote instead
    @@
    -    another place

    ### message
    The whole text that the student reads.

    ### fix
    What `fix()` prints, where the message names only the idea.

`### code`, and `sizes: ranks 2, layers 1` where there is no puzzle, is for a function of its own. After a change that
is meant, `python -m tests.diagnosis.corpus` writes the messages anew, of all cases or of those named. Read them all.
"""

import ast
import asyncio
import contextlib
import io
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from lib import (
    PUZZLES,
    CheckError,
    Model,
    NotSolved,
    PuzzleError,
    Unsolved,
    Verdict,
    Weight,
    check,
    fix,
    schedule,
    simulate,
    stages,
)
from lib.errors.fixes import HOW
from lib.schedules import given as helpers
from lib.schedules import steps
from lib.schedules.data_parallel import segments
from lib.schedules.pipelines.generators import one_f_one_b
from lib.suite.submissions.locations import home, reference
from tests.support.drivers import gather

FOLDER = Path(__file__).with_name("cases")
CHECKED = Path(__file__).parents[1] / "checker" / "cases"
"""What is not a mistake of a student's to be taught by: cheats, and what only the checker is asked about."""
FIELDS = ("puzzle", "start", "sizes", "line", "rank", "driver")
SECTIONS = ("change", "code", "message", "fix")


@dataclass(frozen=True)
class Case:
    """One mistake, as its file tells it."""

    name: str
    thought: str
    fields: dict[str, str]
    change: str | None
    code: str | None
    message: str
    fix: str | None = None

    @property
    def puzzle(self) -> str | None:
        return self.fields.get("puzzle")

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of a function of its own; a puzzle brings its own."""
        words = [part.split() for part in self.fields.get("sizes", "").split(",") if part.strip()]
        return {name: int(number) for name, number in words}

    @property
    def source(self) -> str:
        """What the student wrote: the cell of their notebook."""
        if self.code is not None:
            return self.code
        assert self.puzzle is not None
        assert self.change is not None
        return changed(code_of(self.puzzle, self.fields.get("start")), self.change)

    @property
    def lines(self) -> list[str]:
        """The lines of the student's one of which the message has to show."""
        if "line" in self.fields:
            return [self.fields["line"]]
        assert self.change is not None, f"{self.name}: say which line the message shows"
        return [line[1:].strip() for line in self.change.splitlines() if line.startswith("+") and line[1:].strip()]

    def text(self) -> str:
        fields = "".join(f"{name}: {self.fields[name]}\n" for name in FIELDS if name in self.fields)
        body = f"### change\n{self.change}" if self.code is None else f"### code\n{self.code}"
        fix = "" if self.fix is None else f"\n### fix\n{self.fix}\n"
        return f"{self.thought}\n\n{fields}\n{body}\n\n### message\n{self.message}\n{fix}"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: the text that the student reads, and what else there is."""

    text: str
    error: PuzzleError | None = None
    verdict: Verdict | None = None
    models: list[Model] | None = None
    wrong: CheckError | None = None
    """What Model.check raises."""
    fix: str | None = None
    """What fix() prints, where the message names only the idea."""


def parse(path: Path) -> Case:
    """Reads the file of a case. ValueError where it is none."""
    head, *parts = path.read_text("utf-8").split("\n### ")
    sections = {name: body.strip("\n") for name, _, body in (part.partition("\n") for part in parts)}
    thought, _, rest = head.partition("\n\n")
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in rest.split("\n") if line)}
    if not set(sections) <= set(SECTIONS) or not set(fields) <= set(FIELDS):
        raise ValueError(f"{path.name} has parts that no case has: {list(sections)}, {list(fields)}")
    if ("change" in sections) == ("code" in sections):
        raise ValueError(f"{path.name} needs either a change or code")
    change, code = sections.get("change"), sections.get("code")
    return Case(path.stem, thought.strip(), fields, change, code, sections.get("message", ""), sections.get("fix"))


def cases(folder: Path = FOLDER) -> list[Case]:
    return [parse(path) for path in sorted(folder.glob("*.txt"))]


def code_of(puzzle: str, alternative: str | None = None) -> str:
    """The function of a puzzle's reference and those of its notebook that it needs, or all functions of an alternative.
    Without comments and empty lines: what they say may change."""
    text = path_of(puzzle, alternative).read_text("utf-8")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes, lines = {node.name: node for node in ast.parse(text).body if isinstance(node, kinds)}, list[str]()
    wanted = [puzzle] if alternative is None else [*nodes]
    for name in wanted:  # it grows
        names = [node.id for node in ast.walk(nodes[name]) if isinstance(node, ast.Name)]
        wanted += [other for other in dict.fromkeys(names) if other in nodes and other not in wanted]
    for node in nodes.values():
        if node.name in wanted:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines += text.splitlines()[first - 1 : node.end_lineno]
    return "\n".join(line for line in lines if line.strip() and not line.strip().startswith("#"))


def path_of(puzzle: str, alternative: str | None = None) -> Path:
    return reference(puzzle) if alternative is None else home() / "solutions" / "alternatives" / f"{alternative}.py"


def helpers_of(case: Case) -> list[str]:
    """The names that the case's notebook, or the alternative from which it starts, imports from the given helpers."""
    if case.puzzle is None:
        return []
    texts = [path.read_text("utf-8") for path in {path_of(case.puzzle), path_of(case.puzzle, case.fields.get("start"))}]
    imports = [node for text in texts for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    return [one.name for node in imports if node.module in (helpers.__name__, steps.__name__) for one in node.names]


def changed(code: str, change: str) -> str:
    """The code with every hunk of the change applied. ValueError for one whose old lines are not there just once."""
    for hunk in change.split("\n@@\n"):
        lines = hunk.splitlines()
        old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        new = "\n".join(line[1:] for line in lines if not line.startswith("-"))
        if f"\n{code}\n".count(f"\n{old}\n") != 1:
            raise ValueError(f"not just once in the reference:\n{old}")
        code = f"\n{code}\n".replace(f"\n{old}\n", f"\n{new}\n" if new else "\n")[1:-1]
    return code


@contextlib.contextmanager
def function(case: Case) -> Iterator[Callable[[Model], Any]]:
    """The student's function, compiled as the cell of a notebook whose lines an error can show."""
    path = f"/tmp/ipykernel_1/{case.name}.py"
    given = (Model, NotSolved, PuzzleError, Weight, schedule, stages, segments, one_f_one_b, pairwise, combinations)
    namespace: dict[str, Any] = {each.__name__: each for each in given}
    namespace |= {name: getattr(helpers if hasattr(helpers, name) else steps, name) for name in helpers_of(case)}
    linecache.cache[path] = (len(case.source), None, case.source.splitlines(keepends=True), path)
    try:
        exec(compile(case.source, path, "exec", dont_inherit=True), namespace)
        yield namespace[case.puzzle or "student"]
    finally:
        del linecache.cache[path]


def run(case: Case) -> Outcome:
    """Runs a case as the notebook does: simulate, then check, and then ask for the fix."""
    found, printed = _run(case), io.StringIO()
    with contextlib.redirect_stdout(printed):
        fix()
    return replace(found, fix=printed.getvalue().strip() if HOW in found.text else None)


def _run(case: Case) -> Outcome:
    printed = io.StringIO()
    with function(case) as student, contextlib.redirect_stdout(printed):
        try:
            models = simulate(student, puzzle=case.puzzle, **case.sizes)
        except PuzzleError as error:
            return Outcome(str(error), error)
        if isinstance(models, Unsolved):
            return Outcome(printed.getvalue().strip(), models=models)
        verdict, wrong = check(models, case.puzzle), None
        try:
            Model.check(models)  # without the puzzle, for which it would note the attempt
        except CheckError as error:
            wrong = error
        return Outcome(verdict.text(), verdict=verdict, models=models, wrong=wrong)


def run_in_asyncio(case: Case) -> Outcome:
    """Runs a case as notebooks of the original do: asyncio.gather over the ranks."""
    record = PUZZLES[case.puzzle] if case.puzzle is not None else None
    sizes: dict[str, Any] = {}
    if record is not None:
        sizes = {"ranks": record.ranks, "layers": record.layers, "batches": record.batches}
        sizes |= {"mesh": record.mesh, "costs": record.costs, "described": record.described(record.layers)}
    sizes |= case.sizes
    with function(case) as student:
        try:
            verdict = check(asyncio.run(gather(student, **sizes)), case.puzzle)
        except PuzzleError as error:
            return Outcome(str(error), error)
        except Exception as error:
            return Outcome("\n".join(getattr(error, "__notes__", [f"{type(error).__name__}: {error}".rstrip(": ")])))
        return Outcome(verdict.text(), verdict=verdict)


def main(names: list[str]) -> None:
    for folder, case in [(where, case) for where in (FOLDER, CHECKED) for case in cases(where)]:
        if not names or any(name in case.name for name in names):
            found = run(case)
            now = replace(case, message=found.text, fix=found.fix)
            (folder / f"{case.name}.txt").write_text(now.text(), "utf-8")
            mark = "" if now == case else "  (changed)"
            print(f"===== {case.name}{mark}\n{case.thought}\n\n{case.change or case.code}\n\n{now.message}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
