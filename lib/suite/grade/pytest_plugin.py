"""Puzzles as tests of pytest, and what pytest needs to grade notebooks by running them.

    pytest --puzzles notebooks/             one test for each puzzle in each notebook and .py
    pytest --puzzles ann.ipynb -k fsdp      ann.ipynb::test_puzzle[fsdp], and [fsdp-8x2x8] for another size

judges as `puzzles grade` does, in isolation, and imports nothing from the folders that it reads: no conftest.py, no
package, no test_*.py. With PUZZLES_GRADING=1, `pytest --nbval-lax notebooks/` runs notebooks instead, cell by cell: a
cell fails if its puzzle is unsolved, incorrect or misses the goal (`lib.errors.graded`). TEACHING.md says what that
does not protect against: anything that a student's code does to its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from lib.errors import graded

if TYPE_CHECKING:  # otherwise imported where needed: every pytest imports this, even if nothing is graded
    from lib.suite.grade.gradebook import Score
    from lib.suite.grade.intake.submission import File
    from lib.suite.grade.judging import Required


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("puzzles", "LLM Training Puzzles")
    grades = "grade the puzzles in notebooks and .py files, each as a test"
    group.addoption("--puzzles", action="store_true", help=grades)
    group.addoption("--puzzles-need", metavar="GOAL", help='what passes: "first", "best", "correct" or a goal\'s name')
    group.addoption("--puzzles-config", metavar="FILE", help="the TOML file that `puzzles grade --config` takes")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Load no conftest.py: it could be a student's code, too."""
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
    """A plugin that makes nbval ignore saved outputs under PUZZLES_GRADING."""

    def pytest_itemcollected(self, item: Any) -> None:
        """Drop saved outputs: nbval fails on those without a number, and a mark in a cell may ask to compare them."""
        if type(item).__name__ == "IPyNbCell":
            item.cell.outputs, item.cell.execution_count = [], None
            item.options["check"] = False


# -- puzzles as tests -----------------------------------------------------------------------------------------------


class Grading:
    """The requirements, and what runs functions, in one pytest process."""

    def __init__(self, config: pytest.Config) -> None:
        from lib.suite.grade.assignment import AssignmentError, Config, read_config
        from lib.suite.isolation.isolation import Isolation

        try:
            file = config.option.puzzles_config
            found = Config() if file is None else read_config(config.invocation_params.dir / file)
            self.config = found.with_options(need=config.option.puzzles_need)
        except (AssignmentError, OSError) as error:
            raise pytest.UsageError(str(error)) from None
        self._required: dict[str, Required] = {}
        self._modules: dict[Path, list[File]] = {}
        self._isolation = Isolation()

    def required(self, puzzle: str) -> Required | None:
        """Return the requirements of a puzzle; None if it is not asked. AssignmentError if they are impossible."""
        if self.config.puzzles is not None and puzzle not in self.config.puzzles:
            return None
        if puzzle not in self._required:
            (self._required[puzzle],) = self.config.with_options(puzzles=[puzzle]).assignment().required
        return self._required[puzzle]

    def judged(self, path: Path, required: Required) -> Score:
        """Return the score of a puzzle in a file, with the modules beside it that it imports. A file that answers a
        puzzle is not a module: importing somebody else's function is not handing it in."""
        from lib.suite.grade.intake.submission import Submission, chosen
        from lib.suite.grade.judging import judge_source
        from lib.suite.submissions.source import Source

        if (folder := path.parent) not in self._modules:
            beside = Submission("", tuple(map(_file, sorted(folder.glob("*.py")))))
            answers = [file for file, source in beside.sources() if isinstance(source, Source) and source.puzzles()]
            self._modules[folder] = [file for file in beside.files if file not in answers]
        modules = [file for file in self._modules[folder] if file.parts != (path.name,)]
        puzzle = required.record.id
        _, source = chosen(Submission("", (_file(path), *modules)), [puzzle]).of[puzzle]
        return judge_source(source, required, self._isolation, self.config.limits).score

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
        """Collect notebooks, which other plugins may collect too, and .py files, which they may not. Leave out all
        other files: doctest would run a test*.txt."""
        others = yield
        if file_path.suffix not in (".ipynb", ".py"):
            return []
        ours = cast("Any", PuzzleFile).from_parent(parent, path=file_path)
        ours.grading, ours.scores = self, {}
        return [*(others if file_path.suffix == ".ipynb" else ()), ours]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        """Treat every folder as plain: a package's __init__.py would be imported."""
        return pytest.Dir.from_parent(parent, path=path)

    def pytest_unconfigure(self) -> None:
        self._isolation.close()


def _file(path: Path) -> File:
    from lib.suite.grade.intake.archives import Place
    from lib.suite.grade.intake.submission import File

    return File(path.name, Place(str(path)), 0, (path.name,))


class PuzzleFile(pytest.File):
    """A notebook or .py, with a test for each puzzle that it answers, at each size."""

    grading: Grading
    scores: dict[str, Score]

    def collect(self) -> Iterator[pytest.Item]:
        """Make a test for each function and size. A file that cannot be read becomes a test that fails, and stops no
        other."""
        from lib.puzzles.records import PUZZLES
        from lib.suite.grade.assignment import AssignmentError
        from lib.suite.grade.intake.archives import Unreadable
        from lib.suite.grade.intake.submission import renamed_in

        def test(name: str, check: Callable[[], str]) -> pytest.Item:
            item = cast("Any", PuzzleTest).from_parent(self, name=name)
            item.check = check
            return item

        file, asked = _file(self.path), self.grading.config.puzzles
        required: list[Required] = []
        wrong: list[str] = []
        try:
            source = file.source()
            required = [found for puzzle in source.puzzles() if (found := self.grading.required(puzzle)) is not None]
            is_module = bool(file.stem.rest) and self.path.suffix == ".py"  # such as fsdp_helpers.py
            renamed = [] if is_module else renamed_in(file, source, PUZZLES if asked is None else asked)
            wrong += [row.why for row in renamed]
            if not required and not renamed and self.session.isinitpath(self.path):
                wrong.append("defines the function of no puzzle that is asked")
        except Unreadable as error:
            wrong.append(str(error))
        except AssignmentError as error:
            raise self.CollectError(str(error)) from None
        for one in required:
            for number, words in enumerate(_names(one)):
                yield test(f"test_puzzle[{words}]", partial(self._check, one, number))
        yield from (test("test_puzzle", partial(str, f"{self.path.name} {why}")) for why in wrong)

    def _check(self, required: Required, number: int) -> str:
        """Say what is wrong with a puzzle at its size (0) or at a hidden one."""
        puzzle = required.record.id
        if puzzle not in self.scores:
            self.scores[puzzle] = self.grading.judged(self.path, required)
        results = (self.scores[puzzle].own, *self.scores[puzzle].hidden)
        if number >= len(results):
            pytest.skip(f"not run: it does not come to its end in test_puzzle[{puzzle}]")
        result = results[number]
        needed = f'\nneeded is the goal "{required.need}"' if result.state == "missed" else ""
        return "" if result.state == "passed" else f"{result.message}{needed}"


def _names(required: Required) -> Iterator[str]:
    """Yield the names of a puzzle's tests: its id; then the id with each size, or set of inputs."""
    puzzle, seen = required.record.id, dict[str, int]()
    yield puzzle
    inputs = (f"inputs{number}" for number, _ in enumerate(required.seeds, 1))
    for size in (*inputs, *("x".join(map(str, record.size)) for record in required.hidden)):
        seen[size] = seen.get(size, 0) + 1
        yield f"{puzzle}-{size}" if seen[size] == 1 else f"{puzzle}-{size}-{seen[size]}"


class PuzzleTest(pytest.Item):
    """A test of ours: a failure's message is for the author of the code, without a traceback of ours."""

    check: Callable[[], str]

    def runtest(self) -> None:
        from lib.errors.wording import visible

        if why := self.check():
            pytest.fail(visible(why), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        assert self.parent is not None, "a test lies in its file"
        return self.path, None, f"{self.name} in {self.parent.nodeid}"
