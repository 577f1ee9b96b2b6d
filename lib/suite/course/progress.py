"""What a student has reached so far, kept on their own computer: where it is, what is added to it, what comes next.

The variable PUZZLES_PROGRESS names another file, or is "off". Several notebooks may add at the same time. No clock
time is kept, and nothing is sent anywhere. What cannot be recorded breaks nothing: it is said in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from lib.checker.verdict import FunctionVerdict, Verdict
from lib.errors import graded
from lib.puzzles.records import PUZZLES, Puzzle
from lib.suite.course import progress_file
from lib.suite.course.progress_file import ProgressError, Standing
from lib.trace.trace import Trace

__all__ = [
    "ProgressError",
    "Standing",
    "checked",
    "has_size_of",
    "hinted",
    "is_off",
    "known",
    "load",
    "next_puzzle",
    "passed_here",
    "place",
    "predicted",
    "record",
    "solved",
]

VARIABLE = "PUZZLES_PROGRESS"
FOLDER = "llm-training-puzzles"
BROWSER_FILES = Path("/drive")
passed_here: dict[str, Trace | None] = {}
"""The puzzles that were passed in this process, recorded or not, each with the last run that passed; None for a plain
function."""
_said: set[str] = set()
"""Notes that this process has printed already."""


def is_off() -> bool:
    """Whether recording is turned off. What is graded is not the progress of whoever grades."""
    return graded.is_on() or os.environ.get(VARIABLE, "").lower() == "off"


def place() -> Path | None:
    """Where the progress file is, whether it exists or not. None where recording is off.

    OSError where this system has no home folder.
    """
    if is_off():
        return None
    told = os.environ.get(VARIABLE)
    if told:
        return Path(told)
    try:
        return _state_folder() / FOLDER / "progress.json"
    except RuntimeError as error:  # what Path.home() raises
        raise OSError(f"there is no home folder: {error}") from None


def _state_folder() -> Path:
    """The folder that this system has for what programs remember of a user."""
    if sys.platform == "win32":
        told = os.environ.get("LOCALAPPDATA")
        return Path(told) if told else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "emscripten":
        # What JupyterLite shows as its files. It is there after a page is loaded again, and a home folder is not.
        return BROWSER_FILES if BROWSER_FILES.is_dir() else Path.home()
    told = os.environ.get("XDG_STATE_HOME", "")
    return Path(told) if os.path.isabs(told) else Path.home() / ".local" / "state"


def load() -> dict[str, Standing]:
    """What is recorded, by puzzle; empty where nothing is, or recording is off.

    Raises ProgressError for a damaged file, which is moved aside, and OSError for one that cannot be read.
    """
    file = place()
    return {} if file is None else progress_file.read(file)


def known() -> dict[str, Standing]:
    """What is recorded, as `load` gives it; for a file that is damaged or cannot be read a note and nothing."""
    try:
        return load()
    except ProgressError as error:
        _say(f"Note: {error}.")
    except OSError as error:
        _say(f"Note: your progress cannot be read: {error}.")
    return {}


def solved() -> set[str]:
    """The ids of the puzzles that are passed, as far as is recorded."""
    return {puzzle for puzzle, standing in known().items() if standing.passed}


def record(puzzle: str, more: Standing) -> str:
    """Adds to what is recorded of a puzzle. Gives one line about what went wrong; empty where nothing did."""
    try:
        file = place()
        return "" if file is None else progress_file.add(file, puzzle, more)
    except ProgressError as error:
        return f"Note: your progress is not recorded: {error}."
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        reason = f"{error.strerror or error}{where}"
        return (
            f"Note: your progress is not recorded: {reason}. Set {VARIABLE} to a file that can be written, or to off."
        )


def checked(verdict: Verdict | FunctionVerdict, trace: Trace | None) -> None:
    """Records a check of a run at the size of its puzzle; a sandbox and sizes of one's own are not recorded."""
    if verdict.puzzle is None or (trace is not None and not has_size_of(trace, verdict.puzzle)):
        return
    if verdict.passed:
        passed_here[verdict.puzzle] = trace
    _say(record(verdict.puzzle, Standing.of(verdict)))


def hinted(puzzle: str, opened: int) -> None:
    """Records that the first `opened` hints of a puzzle were read."""
    _say(record(puzzle, Standing(hints=opened)))


def predicted(puzzle: str, made: int, right: int) -> None:
    """Records guesses that were compared with a run, and how many of them were right."""
    _say(record(puzzle, Standing(predictions=made, right=right)))


def has_size_of(trace: Trace, puzzle: str) -> bool:
    """Whether a run is a puzzle at its own size, and no sandbox."""
    return not trace.sandbox and PUZZLES[puzzle].fits(trace)


def next_puzzle(solved: Iterable[str]) -> Puzzle | None:
    """What to solve next: the first unsolved puzzle whose needs are solved. None where everything is solved."""
    done = set(solved)
    left = [puzzle for puzzle in PUZZLES.values() if puzzle.id not in done]
    return next((puzzle for puzzle in left if done.issuperset(puzzle.needs)), None)


def _say(note: str) -> None:
    """Prints a note once: a folder that cannot be written would give one at every check."""
    if note and note not in _said:
        _said.add(note)
        print(note)
