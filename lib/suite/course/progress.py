"""Keeps a student's progress in a file on their own computer, and says what comes next.

The variable PUZZLES_PROGRESS names another file, or is "off". Several notebooks may add at the same time. No clock
times are kept, and nothing is sent anywhere. A failure to record breaks nothing, and prints one line.

    {"format": "llm-training-puzzles progress", "version": 1,
     "puzzles": {"ddp": {"runs": 3, "passed": true, "goal": "passes", "time": 5.6, "memory": 1835008.0,
                         "hints": 1, "predictions": 3, "right": 2}}}

The file comes from outside, so it is read as data, field by field. A damaged one is moved aside, never overwritten.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

from lib.checker.verdict import FunctionVerdict, Verdict
from lib.errors import graded
from lib.files import write_whole
from lib.puzzles.puzzle import Puzzle
from lib.puzzles.records import PUZZLES
from lib.trace.trace import Trace

VARIABLE = "PUZZLES_PROGRESS"
BROWSER_FILES = Path("/drive")
FORMAT = "llm-training-puzzles progress"
VERSION = 1
MAX_BYTES = 2**20
MAX_COUNT = 10**9
PATIENCE = 5.0  # seconds to wait for another process that is writing

passed_here: dict[str, Trace | None] = {}
"""The puzzles passed in this process, each with its last run that passed; None for a plain function."""
judged_here: dict[str, tuple[Trace | None, Verdict | FunctionVerdict]] = {}
"""The last check of each puzzle at its size in this process: its run, and the verdict."""
_said: set[str] = set()  # notes that this process has printed already


class ProgressError(ValueError):
    """The progress file is damaged, or newer than this version. The message says which file, and where it went."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress in one puzzle. `time` and `memory` (elements) are those of the best correct run, and `goal` its best
    goal. `hints`, `predictions` and `right` are the numbers of hints opened, of guesses compared with a run, and of
    right ones."""

    runs: int = 0
    passed: bool = False
    goal: str | None = None
    time: float | None = None
    memory: float | None = None
    hints: int = 0
    predictions: int = 0
    right: int = 0

    @classmethod
    def of(cls, verdict: Verdict | FunctionVerdict) -> Standing:
        """Return what one check adds. An incorrect run only counts as a run; a plain function has no time or memory."""
        if not verdict.correct or isinstance(verdict, FunctionVerdict):
            return cls(runs=1, passed=verdict.correct)
        return cls(1, verdict.passed, verdict.best, verdict.time, verdict.memory)

    def plus(self, more: Standing, puzzle: str) -> Standing:
        """Add up counts, and keep the better run. The same in any order and grouping."""
        best = max(self, more, key=lambda standing: standing._order(puzzle))
        counts = {name: getattr(self, name) + getattr(more, name) for name in ("runs", "predictions", "right")}
        return replace(best, passed=self.passed or more.passed, hints=max(self.hints, more.hints), **counts)

    def _order(self, puzzle: str) -> tuple[int, float, float, str]:
        """Better is greater: a harder goal, then less time, then less memory. Without a correct run it is the least."""
        if self.time is None or self.memory is None:
            return -2, 0.0, 0.0, ""
        goals = [goal.name for goal in PUZZLES[puzzle].goals] if puzzle in PUZZLES else []
        reached = goals.index(self.goal) if self.goal in goals else -1
        return reached, -self.time, -self.memory, self.goal or ""


# -- what is recorded, and what comes next --------------------------------------------------------------------------


def is_off() -> bool:
    """Tell whether recording is off, as it is in grading: that is not the grader's own progress."""
    return graded.is_on() or os.environ.get(VARIABLE, "").lower() == "off"


def place() -> Path | None:
    """Return the path of the progress file, whether it exists or not; None if recording is off. OSError if this system
    has no home folder."""
    if is_off():
        return None
    if told := os.environ.get(VARIABLE):
        return Path(told)
    try:
        if sys.platform == "emscripten":
            # JupyterLite's files, which survive a reload of the page, unlike a home folder.
            folder = BROWSER_FILES if BROWSER_FILES.is_dir() else Path.home()
        else:
            from platformdirs import user_state_path  # not above: a browser does without

            folder = user_state_path()
    except (RuntimeError, ImportError) as error:
        raise OSError(f"there is no home folder: {error}") from None
    return folder / "llm-training-puzzles" / "progress.json"


def known() -> dict[str, Standing]:
    """Return what is recorded, by puzzle; empty if nothing is, or recording is off. Prints a note if the file is
    damaged or cannot be read."""
    try:
        return {} if (file := place()) is None else read(file)
    except (ProgressError, OSError) as error:
        what = "" if isinstance(error, ProgressError) else "your progress cannot be read: "
        _say(f"Note: {what}{error}.")
    return {}


def solved() -> set[str]:
    """Return the ids of the puzzles recorded as passed."""
    return {puzzle for puzzle, standing in known().items() if standing.passed}


def record(puzzle: str, more: Standing) -> None:
    """Add to a puzzle's record. A failure is printed in one line."""
    try:
        note = "" if (file := place()) is None else add(file, puzzle, more)
    except (ProgressError, OSError) as error:
        why = str(error)
        if isinstance(error, OSError):
            where = f": {error.filename}" if error.filename else ""
            why = f"{error.strerror or error}{where}. Set {VARIABLE} to a file that can be written, or to off"
        note = f"Note: your progress is not recorded: {why}."
    _say(note)


def _say(note: str) -> None:
    """Print a note once: a folder that cannot be written would give one at every check."""
    if note and note not in _said:
        _said.add(note)
        print(note)


def checked(verdict: Verdict | FunctionVerdict, trace: Trace | None) -> None:
    """Record a check of a run at its puzzle's size; sandboxes and other sizes are not recorded."""
    if verdict.puzzle is None or (trace is not None and not has_size_of(trace, verdict.puzzle)):
        return
    judged_here[verdict.puzzle] = trace, verdict
    if verdict.passed:
        passed_here[verdict.puzzle] = trace
    record(verdict.puzzle, Standing.of(verdict))


def has_size_of(trace: Trace, puzzle: str) -> bool:
    """Tell whether a run has the puzzle's own size, and is not a sandbox."""
    return not trace.sandbox and PUZZLES[puzzle].fits(trace)


def next_puzzle(solved: Iterable[str]) -> Puzzle | None:
    """Return the puzzle to solve next: the first unsolved one whose needs are solved, on the core path if possible.
    None if everything is solved."""
    done = set(solved)
    left = [one for one in PUZZLES.values() if one.id not in done and done.issuperset(one.needs)]
    return min(left, key=lambda one: bool(one.deepens), default=None)


# -- the file -------------------------------------------------------------------------------------------------------


def read(file: Path) -> dict[str, Standing]:
    """Return the contents of a progress file, by puzzle; empty if there is none. Raises ProgressError for a damaged
    file, which is moved aside, and OSError for one that cannot be read."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    try:
        return standings(data, file)
    except ProgressError:
        raise
    except ValueError as error:
        names = (f"{file.name}.damaged{'' if number == 1 else f'.{number}'}" for number in count(1))
        kept = next(path for path in map(file.with_name, names) if not path.exists())
        os.replace(file, kept)
        raise ProgressError(f"{file} was damaged: {error}. It is kept as {kept.name}, and a new one begun") from None


def add(file: Path, puzzle: str, more: Standing) -> str:
    """Add to a puzzle's entry in a file, which is made if missing. Returns a line about a damaged file that was moved
    aside, else "". Raises ProgressError for a file of a newer version, and OSError if the file cannot be written; then
    it stays as it was."""
    file = Path(os.path.realpath(file))  # a link stays a link
    file.parent.mkdir(parents=True, exist_ok=True)
    note = ""
    with _alone(file):
        try:
            found = read(file)
        except ProgressError as error:
            if file.exists():
                raise
            found, note = {}, f"Note: {error}."
        found[puzzle] = found.get(puzzle, Standing()).plus(more, puzzle)
        entries = {name: asdict(standing) for name, standing in sorted(found.items())}
        text = json.dumps({"format": FORMAT, "version": VERSION, "puzzles": entries}, indent=1)
        write_whole(file, text + "\n", 0o600)
    return note


@contextmanager
def _alone(file: Path) -> Generator[None]:
    """Keep other processes from adding to a file meanwhile. OSError if one of them does not release it. The lock is on
    a file beside it, as the file itself is replaced. Without locks on a system we go on: two processes at the same
    moment may then lose a count, but never a whole file."""
    with file.with_name(f".{file.name}.lock").open("a+b") as lock:
        deadline = time.monotonic() + PATIENCE
        while not locked(lock):
            if time.monotonic() > deadline:
                raise OSError(f"another process has kept {lock.name} locked for {PATIENCE:g} seconds")
            time.sleep(0.01)
        yield  # closing releases the lock


def locked(lock: IO[bytes]) -> bool:
    """Lock a file for this process until it is closed; True also if this system has no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            lock.seek(0)
            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            from fcntl import LOCK_EX, LOCK_NB, flock  # missing or empty in a browser

            flock(lock, LOCK_EX | LOCK_NB)
    except (ImportError, OSError) as error:
        return sys.platform != "win32" and not isinstance(error, BlockingIOError)
    return True


def standings(data: bytes, file: Path) -> dict[str, Standing]:
    """Return the contents of a progress file from its bytes; `file` is for messages. ValueError if they are damaged,
    ProgressError if they are of a newer version."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES // 2**20} MiB")
    try:
        found = json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    content = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    version, puzzles = content.get("version"), content.get("puzzles")
    if content.get("format") != FORMAT or type(version) is not int or version < 1:
        raise ValueError(f"it does not say that it is {FORMAT!r}, version {VERSION}")
    if version > VERSION:
        raise ProgressError(f"{file} is of a newer version ({version}) than this package knows ({VERSION})")
    if len(content) != 3 or not isinstance(puzzles, dict):
        raise ValueError("it must have 'format', 'version' and 'puzzles', and nothing else")
    return {puzzle: _standing(puzzle, entry) for puzzle, entry in cast("dict[str, Any]", puzzles).items()}


FITS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("runs", "hints", "predictions", "right"), lambda one: type(one) is int and 0 <= one <= MAX_COUNT),
    **dict.fromkeys(
        ("time", "memory"), lambda one: one is None or (type(one) in (int, float) and 0 <= one <= sys.float_info.max)
    ),
    "goal": lambda one: one is None or (type(one) is str and one.isprintable() and len(one) <= 100),
    "passed": lambda one: type(one) is bool,
}
"""What the fields of an entry may hold."""


def _standing(puzzle: str, entry: Any) -> Standing:
    """One entry. Unknown puzzles are kept: they may be from another version."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", puzzle):
        raise ValueError(f"{puzzle[:70]!r} is not a name of a puzzle")
    found = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if set(found) != set(FITS):
        raise ValueError(f"the entry of {puzzle} must have {', '.join(sorted(FITS))}, and nothing else")
    for name, fits in FITS.items():
        if not fits(found[name]):
            raise ValueError(f"{name} of {puzzle} cannot be {str(found[name])[:40]!r}")
    return Standing(**found)
