"""Puzzles as tests of pytest, and what pytest needs to grade notebooks by running them.

    pytest --puzzles notebooks/             one test for each puzzle in each notebook and .py
    pytest --puzzles ann.ipynb -k fsdp      ann.ipynb::test_puzzle[fsdp], and [fsdp-8x2x8] for another size
    pytest --puzzles --puzzles-need best --puzzles-config grade.toml --junitxml=junit.xml notebooks/

Puzzles are judged as `puzzles grade` does: each function runs in isolation, at the puzzle's size and at hidden ones,
and what it sends back is judged here as data. While `--puzzles` is given pytest imports nothing from the folders that
it reads: no conftest.py, no package, no test_*.py, no test*.txt. Without it, this plugin changes nothing.

    PUZZLES_GRADING=1 pytest --nbval-lax notebooks/

runs notebooks instead, cell by cell, with nbval: a cell fails for what is unsolved, not correct or not within the goal
(see `lib.errors.graded`). Whatever a student saved as output counts for nothing there. Both may be given at once.

What running a notebook does not protect from, as a student's code runs there with your rights, in the process in which
it is checked: a check that was deleted, marked NBVAL_SKIP or NBVAL_RAISES_EXCEPTION (or tagged so), caught by
`try`, or replaced (`Model.check = ...`, a module called `lib.py` beside the notebook); a printed "Correct!" in its
place; `%magic` and `!command` cells; a loop that never ends, but for --nbval-cell-timeout; and answers for the
puzzle's own size alone. The tests of `--puzzles`, and `puzzles grade`, look at none of this: they take the function by
its name, run it away from here, and judge the schedule. They do not protect from a solution that somebody else wrote.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from lib.errors import graded

if TYPE_CHECKING:
    from lib.suite.grade.assignment import Required
    from lib.suite.grade.gradebook import Result, Score
    from lib.suite.grade.intake.submission import File
    from lib.suite.isolation.isolation import Isolation
    from lib.suite.submissions.source import Source

__all__: list[str] = []

ENDINGS: Final = (".ipynb", ".py")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("puzzles", "LLM Training Puzzles")
    group.addoption(
        "--puzzles", action="store_true", help="grade the puzzles in notebooks and .py files, each as a test"
    )
    group.addoption("--puzzles-need", metavar="GOAL", help='what passes: "first", "best", "correct" or a goal\'s name')
    group.addoption("--puzzles-config", metavar="FILE", help="the TOML file that `puzzles grade --config` takes")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """A conftest.py among what is graded is somebody's code, too."""
    if early_config.known_args_namespace.puzzles:
        early_config.known_args_namespace.noconftest = True
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.puzzles:
        config.pluginmanager.register(Grading(config), "puzzles that are graded")
    elif config.option.puzzles_need or config.option.puzzles_config:
        raise pytest.UsageError("--puzzles-need and --puzzles-config belong to --puzzles, which is not given")
    if getattr(config.option, "nbval_lax", False) and graded.is_on():
        config.pluginmanager.register(Cells(), "cells that are graded")


class Cells:
    """A plugin that changes nbval under PUZZLES_GRADING: outputs that somebody saved are not looked at."""

    def pytest_itemcollected(self, item: Any) -> None:
        """nbval takes outputs without a number as a mistake, and a mark in a cell may ask to compare them."""
        if type(item).__name__ == "IPyNbCell":
            item.cell.outputs, item.cell.execution_count = [], None
            item.options["check"] = False


# -- puzzles as tests -----------------------------------------------------------------------------------------------


class Failed(Exception):
    """A puzzle that did not pass: what there is to say to whoever wrote it."""


class Grading:
    """The questions, and their runner, in one process of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        from lib.suite.grade.assignment import AssignmentError, Config, read_config

        try:
            file = config.option.puzzles_config
            found = Config() if file is None else read_config(config.invocation_params.dir / file)
            self.config = found.with_options(need=config.option.puzzles_need)
        except (AssignmentError, OSError) as error:
            raise pytest.UsageError(str(error)) from None
        self._required: dict[str, Required] = {}
        self._modules: dict[Path, list[File]] = {}
        self._isolation: Isolation | None = None

    def required(self, puzzle: str) -> Required | None:
        """Return what is asked of a puzzle; None where it is not part of the assignment. AssignmentError where it
        cannot be asked."""
        if self.config.puzzles is not None and puzzle not in self.config.puzzles:
            return None
        if puzzle not in self._required:
            (self._required[puzzle],) = self.config.with_options(puzzles=[puzzle]).assignment().required
        return self._required[puzzle]

    def judged(self, source: Source, required: Required) -> Score:
        """Return what came of a puzzle."""
        from lib.suite.grade.judging import judge_source
        from lib.suite.isolation.isolation import Isolation

        if self._isolation is None:
            self._isolation = Isolation()
        return judge_source(source, required, self._isolation, self.config.limits).score

    def source(self, path: Path, puzzle: str) -> Source:
        """The code of a file with the modules beside it that it imports. What answers a puzzle is no module: a function
        that is somebody else's is not handed in by importing it."""
        from lib.suite.grade.intake.submission import Submission, chosen

        folder = path.parent
        if folder not in self._modules:
            beside = [_file(other) for other in sorted(folder.glob("*.py"))]
            self._modules[folder] = [file for file in beside if not _puzzles_of(file)]
        modules = [file for file in self._modules[folder] if file.parts != (path.name,)]
        return chosen(Submission("", (_file(path), *modules)), [puzzle]).of[puzzle][1]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
        """Notebooks are ours, and those of whoever else was asked to run them; a .py is nobody else's. All other files
        may be anybody's: a test*.txt would be run by doctest."""
        others = yield
        if file_path.suffix not in ENDINGS:
            return []
        ours = [PuzzleFile.of(parent, file_path, self)]
        return [*others, *ours] if file_path.suffix == ".ipynb" else ours

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        """A folder is a folder. As a package its __init__.py would be imported."""
        return pytest.Dir.from_parent(parent, path=path)

    def pytest_unconfigure(self) -> None:
        if self._isolation is not None:
            self._isolation.close()


def _file(path: Path) -> File:
    from lib.suite.grade.intake.archives import Place
    from lib.suite.grade.intake.submission import File

    return File(path.name, Place(str(path)), 0, (path.name,))


def _puzzles_of(file: File) -> tuple[str, ...]:
    """The puzzles that a file answers; none where it cannot be read."""
    from lib.suite.grade.intake.archives import Unreadable

    try:
        return file.source().puzzles()
    except Unreadable:
        return ()


class PuzzleFile(pytest.File):
    """A notebook or .py: a test for each puzzle that it answers, at each size."""

    grading: Grading
    scores: dict[str, Score]

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, grading: Grading) -> PuzzleFile:
        """A file that has something to grade."""
        file: PuzzleFile = cast("Any", cls).from_parent(parent, path=path)
        file.grading = grading
        file.scores = {}
        return file

    def collect(self) -> Iterator[pytest.Item]:
        """A file that cannot be read is a test that fails, and stops none of the others."""
        from lib.puzzles.records import PUZZLES
        from lib.suite.grade.assignment import AssignmentError
        from lib.suite.grade.intake.archives import Unreadable
        from lib.suite.grade.intake.submission import renamed_in

        file = _file(self.path)
        try:
            source = file.source()
            puzzles = source.puzzles()
            asked = PUZZLES if self.grading.config.puzzles is None else self.grading.config.puzzles
            is_module = bool(file.stem.rest) and self.path.suffix == ".py"  # such as fsdp_helpers.py
            renamed = [] if is_module else renamed_in(file, source, asked)
        except Unreadable as error:
            yield Unread.of(self, f"{self.path.name} {error}")
            return
        try:
            required = [found for puzzle in puzzles if (found := self.grading.required(puzzle)) is not None]
        except AssignmentError as error:
            raise self.CollectError(str(error)) from None
        for one in required:
            for number, words in enumerate(_names(one)):
                yield PuzzleItem.of(self, one, number, words)
        for row in renamed:
            yield Unread.of(self, f"{self.path.name} {row.why}")
        if not required and not renamed and self.session.isinitpath(self.path):
            yield Unread.of(self, f"{self.path.name} defines the function of no puzzle that is asked")

    def result(self, required: Required, number: int) -> Result | None:
        """Return what came of a puzzle at its size (0) or at a hidden one; None where it did not get there."""
        puzzle = required.record.id
        if puzzle not in self.scores:
            self.scores[puzzle] = self.grading.judged(self.grading.source(self.path, puzzle), required)
        score = self.scores[puzzle]
        results = [score.own, *score.hidden]
        return results[number] if number < len(results) else None


def _names(required: Required) -> Iterator[str]:
    """Yield what the tests of a puzzle are called: its id; then the id and a size, or a number."""
    puzzle, seen = required.record.id, dict[str, int]()
    yield puzzle
    for number, _ in enumerate(required.sizes, 1):
        size = (
            f"inputs{number}" if required.record.is_function else "x".join(map(str, required.hidden[number - 1].size))
        )
        seen[size] = seen.get(size, 0) + 1
        yield f"{puzzle}-{size}" if seen[size] == 1 else f"{puzzle}-{size}-{seen[size]}"


class _Item(pytest.Item):
    """A test of ours: what is said of a failure is said to whoever wrote the code, without a line of ours."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from lib.errors.wording import visible

        if isinstance(excinfo.value, Failed):
            return visible(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        assert self.parent is not None, "a test lies in its file"
        return self.path, None, f"{self.name} in {self.parent.nodeid}"


class PuzzleItem(_Item):
    """One puzzle of one file at one size."""

    file: PuzzleFile
    required: Required
    number: int

    @classmethod
    def of(cls, file: PuzzleFile, required: Required, number: int, words: str) -> PuzzleItem:
        """The test of a size: 0 is the puzzle's own."""
        item: PuzzleItem = cast("Any", cls).from_parent(file, name=f"test_puzzle[{words}]")
        item.file, item.required, item.number = file, required, number
        return item

    def runtest(self) -> None:
        result = self.file.result(self.required, self.number)
        if result is None:
            pytest.skip(f"not run: it does not come to its end in test_puzzle[{self.required.record.id}]")
        if result.state != "passed":
            needed = f'\nneeded is the goal "{self.required.need}"' if result.state == "missed" else ""
            raise Failed(f"{result.message}{needed}")


class Unread(_Item):
    """A file in which there is nothing to grade, as a test that fails."""

    why: str

    @classmethod
    def of(cls, file: PuzzleFile, why: str) -> Unread:
        """The test of a file, and why it fails."""
        item: Unread = cast("Any", cls).from_parent(file, name="test_puzzle")
        item.why = why
        return item

    def runtest(self) -> None:
        raise Failed(self.why)
