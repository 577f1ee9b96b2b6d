"""What the hidden tests of an nbgrader notebook call: the cells that have run are judged as `puzzles grade` does.

    from lib.suite.grade.plugins.nbgrader_tests import require
    require("fsdp", need="first")

stands in the notebooks that `puzzles export --nbgrader` writes. The function is taken out of the cells that IPython has
run, as text, and runs in isolation; what comes back is judged as data. What the notebook has changed in its own process
(`Model.check`, a cost, a clock) counts for nothing there.

nbgrader itself runs a student's notebook with your rights, next to these lines: code that is written against them could
replace `require` as well, read what is hidden in this cell, or your files. Where that matters, run nbgrader in a
container, and compare with `puzzles grade`, which runs nothing of a student's outside of its isolation.
"""

from __future__ import annotations

from functools import cache, lru_cache

from lib.errors.exceptions import CheckError
from lib.errors.source_lines import notebook
from lib.errors.wording import visible
from lib.suite.grade.assignment import Config
from lib.suite.grade.gradebook import Result, Score
from lib.suite.grade.judging import judge_source
from lib.suite.isolation.isolation import Isolation
from lib.suite.submissions.source import Source
from lib.suite.submissions.statements import without_package

__all__ = ["require", "require_elsewhere"]


def require(puzzle: str, *, need: str = "first") -> None:
    """Raise CheckError unless the function of a puzzle passes at the puzzle's own size.

    `need` is "first", "best", "correct" or a goal's name; AssignmentError for another.
    """
    _passes([_score(_cells(), puzzle, need, 0, None).own])


def require_elsewhere(puzzle: str, *, need: str = "first", hidden: int | None = None, seed: str | None = None) -> None:
    """Raise CheckError unless it passes at other sizes: so many `hidden` ones drawn from `seed`; where neither is
    said, those of the puzzle's record. A plain function is asked so many sets of random inputs."""
    score = _score(_cells(), puzzle, need, hidden, seed)
    _passes(score.hidden or [score.own])


def _passes(results: list[Result] | tuple[Result, ...]) -> None:
    for result in results:
        if result.state != "passed":
            raise CheckError(visible(result.message))


def _cells() -> tuple[str, ...]:
    """The cells that this notebook has run. ValueError where this is none."""
    shell = notebook()
    if shell is None:
        raise ValueError("this is for a cell of a notebook: only there the cells that have run are known")
    return tuple(map(str, shell.history_manager.input_hist_raw[1:]))


@lru_cache(maxsize=4)
def _score(cells: tuple[str, ...], puzzle: str, need: str, hidden: int | None, seed: str | None) -> Score:
    """Return what came of a puzzle in the cells of a notebook, each called as nbval and nbgrader show them."""
    config = Config().with_options(puzzles=[puzzle], need=need, hidden=hidden, seed=seed)
    (required,) = config.assignment().required
    numbered = tuple((f"code cell {number}", without_package(text)) for number, text in enumerate(cells, 1))
    source = Source(numbered, name="notebook.ipynb")
    return judge_source(source, required, _isolation(), config.limits).score


@cache
def _isolation() -> Isolation:
    """The Isolation of this notebook: it ends with its process."""
    return Isolation()
