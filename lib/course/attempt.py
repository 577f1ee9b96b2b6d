"""Runs one function of a student's file in a process of its own, with a time limit, and says what came of it.

Whatever the function does, the caller goes on: it may loop for ever, exit, or print without end.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

from lib.course.target import judged, run
from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.source_lines import Place, raised_at, resolve
from lib.files import child_environment, write_whole
from lib.submissions.gap import BuildError
from lib.submissions.load import SourceError

__all__ = ["LIMIT", "STATES", "Attempt", "attempt"]

STATES = ("passed", "missed", "unsolved", "failed")
"""Within the easiest tier; correct but not within it; still the stub; anything else."""
LIMIT = 10.0
"""Seconds that a function may run."""
GRACE = 10.0
"""Seconds more, to start Python and to end by itself, before a process is ended from outside."""
MAX_PRINTED = 4000
"""Characters of what a function prints that are kept."""
NOT_THEIRS = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    os.path.dirname(os.__file__) + os.sep,
)
"""Where code lies that is ours or Python's."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of running a puzzle's function. `text` says why, or the verdict; `printed` is what it printed."""

    puzzle: str
    state: str
    text: str = ""
    printed: str = ""


def attempt(file: Path, puzzle: str, limit: float = LIMIT) -> Attempt:
    """Runs the function `puzzle` of a notebook or .py at the puzzle's size, for at most `limit` seconds.

    A run is recorded as progress, as `puzzles run` does. Nothing is raised for anything that the function does.
    """
    with tempfile.TemporaryDirectory(prefix="puzzles") as folder:
        result, noise = Path(folder) / "result.json", Path(folder) / "stderr"
        environment = child_environment(PYTHONDONTWRITEBYTECODE="1")
        # -P: a file of the student's called random.py is not to take the place of Python's own.
        program = [sys.executable, "-P", "-c", "from lib.course.attempt import main; main()"]
        with noise.open("wb") as stderr:
            try:
                done = subprocess.run(
                    [*program, str(file), puzzle, str(limit), str(result)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    timeout=limit + GRACE,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return _endless(puzzle, limit, None)
        return _read(result, puzzle) or _vanished(puzzle, done.returncode, noise)


def _endless(puzzle: str, limit: float, place: Place | None) -> Attempt:
    where = "" if place is None else f"\n  where:    {place}"
    text = (
        f"{puzzle} did not end within {limit:g} seconds, so it was stopped{where}\n"
        "  fix:      look for a loop that never ends, or one that is far too long"
    )
    return Attempt(puzzle, "failed", text)


def _vanished(puzzle: str, status: int, noise: Path) -> Attempt:
    """A process that left no result: it was ended by somebody, or it ended itself."""
    said = noise.read_bytes()[-MAX_PRINTED:].decode("utf-8", "replace").strip()
    last = f": {said.splitlines()[-1]}" if said else ""
    return Attempt(puzzle, "failed", f"{puzzle} ended Python itself (exit status {status}){last}")


def _read(result: Path, puzzle: str) -> Attempt | None:
    """What the other process wrote, if it is whole. Its code was the student's: only text of known fields is taken."""
    try:
        found = json.loads(result.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    state, text, printed = (fields.get(name) for name in ("state", "text", "printed"))
    if state not in STATES or not isinstance(text, str) or not isinstance(printed, str):
        return None
    return Attempt(puzzle, state, text, printed)


# -- in the other process ---------------------------------------------------------------------------------------


class _Kept(io.TextIOBase):
    """Keeps the beginning of what is printed, and forgets the rest."""

    def __init__(self) -> None:
        self.text = ""
        self.more = False

    def write(self, text: str, /) -> int:
        room = MAX_PRINTED - len(self.text)
        self.more |= len(text) > room
        self.text += text[:room]
        return len(text)

    def writable(self) -> bool:
        return True

    def all(self) -> str:
        return self.text + ("\n(and more)" if self.more else "")


def main() -> None:
    """What the other process does: file, puzzle, seconds and where to write the result are its arguments."""
    file, puzzle, limit, result = sys.argv[1:]
    printed, main_thread = _Kept(), threading.get_ident()

    def late() -> None:
        place = _theirs(sys._current_frames().get(main_thread))  # pyright: ignore[reportPrivateUsage]
        _write(_endless(puzzle, float(limit), place), printed, Path(result))
        os._exit(0)

    timer = threading.Timer(float(limit), late)
    timer.daemon = True
    timer.start()
    with redirect_stdout(printed), redirect_stderr(printed):
        found = _attempt(Path(file), puzzle)
    timer.cancel()
    _write(found, printed, Path(result))


def _attempt(file: Path, puzzle: str) -> Attempt:
    try:
        found = run(str(file), puzzle=puzzle)
        if found is None:
            return Attempt(puzzle, "unsolved")
        verdict = judged(found)
    except (PuzzleError, TraceError, SourceError, BuildError) as error:
        return Attempt(puzzle, "failed", str(error))
    except Exception as error:
        place = raised_at(error)
        where = "" if place is None else f"\n  {place}"
        return Attempt(puzzle, "failed", f"{type(error).__name__}: {error}{where}")
    state = "passed" if verdict.passed else "missed" if verdict.correct else "failed"
    return Attempt(puzzle, state, verdict.text())


def _theirs(frame: FrameType | None) -> Place | None:
    """The innermost line of a stack that is neither ours nor Python's."""
    while frame is not None and frame.f_code.co_filename.startswith((*NOT_THEIRS, "<")):
        frame = frame.f_back
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)


def _write(found: Attempt, printed: _Kept, result: Path) -> None:
    said = "" if found.state == "unsolved" else printed.all()
    write_whole(result, json.dumps({**asdict(found), "printed": said}))
