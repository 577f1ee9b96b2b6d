"""Asks a fresh Python, wherever there is no better way to start a process.

Wherever it runs there is a limit on the time by the clock on the wall; on Linux and macOS on processor time, on memory
(Linux), and on the size of files, too. What it starts ends with it, unless it leaves its session.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import BinaryIO

from lib.checker.table import Given, encode
from lib.cluster.mesh import Mesh
from lib.errors import fixes
from lib.files import child_environment, write_whole
from lib.suite.course.child.messages import MAX_PRINTED, Limits, Request, Sent, read
from lib.suite.course.child.running import GRACE, endless

__all__ = ["LIMIT", "OWN", "answered", "answers_of", "ask", "deaf", "run_of", "vanished"]

LIMIT = 10.0
"""Seconds that a function may run."""
OWN = Limits(memory=4 * 2**30, written=512 * 2**20, sent=32 * 2**20, processes=4096, files=4096)
"""What somebody's own function may use on their machine, at the size of a puzzle, where a run has a budget: so much
that only what goes on without end is stopped."""


def run_of(
    file: Path,
    puzzle: str,
    *,
    ranks: int | None = None,
    layers: int | None = None,
    batches: int | None = None,
    mesh: Mesh | None = None,
    limit: float = LIMIT,
) -> Sent:
    """Simulates the function `puzzle` of a notebook or .py, at the puzzle's size where none is said.

    Nothing is raised for anything that the function does.
    """
    at_own_size = (ranks, layers, batches, mesh) == (None, None, None, None)
    request = Request(
        puzzle,
        replace(OWN, seconds=limit, sent=OWN.sent if at_own_size else OWN.written),
        str(file),
        ranks=ranks,
        layers=layers,
        batches=batches,
        mesh=None if mesh is None else mesh.to_json(),
        lines=fixes.are_shown(),
    )
    return ask(request)


def answers_of(file: Path, puzzle: str, inputs: Sequence[Given], limit: float = LIMIT) -> Sent:
    """Has the function `puzzle` of a notebook or .py answer inputs. Nothing is raised for anything that it does."""
    request = Request(puzzle, replace(OWN, seconds=limit), str(file), inputs=[encode(given) for given in inputs])
    return answered(ask(request), request)


def answered(sent: Sent, request: Request) -> Sent:
    """What was sent by a process that was to answer inputs: to all of them, or it failed."""
    if sent.outcome == "answers" and len(sent.answers) != len(request.inputs):
        text = f"{request.puzzle} gave {len(sent.answers)} answers to {len(request.inputs)} inputs"
        return Sent("failed", text, sent.printed)
    return sent


def ask(request: Request, **environment: str) -> Sent:
    """Starts a Python for a request, with more variables in its environment, and reads what it leaves."""
    with _folder() as name:
        folder = Path(name)
        write_whole(folder / "request.json", request.to_bytes().decode())
        # -P: a file of the student's called random.py is not to take the place of Python's own.
        program = [sys.executable, "-P", "-m", "lib.suite.course.child", name]
        # It has no name there, or one would open what the student's code has put in its place: a pipe waits for ever.
        with tempfile.TemporaryFile() as noise:
            process = Popen(
                program,
                env=child_environment(PYTHONDONTWRITEBYTECODE="1", PUZZLES_PROGRESS="off", **environment),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=noise,
                start_new_session=True,
            )
            try:
                status = process.wait(request.limits.seconds + GRACE)
            except TimeoutExpired:
                return endless(request, None)
            finally:
                _end(process)
            return _read(folder / "result.json", request) or vanished(request, status, noise)


@contextmanager
def _folder() -> Generator[str]:
    """A folder for a while. What was left in it goes as far as it can: folders a thousand deep stay."""
    name = tempfile.mkdtemp(prefix="puzzles")
    try:
        yield name
    finally:
        with suppress(RecursionError):
            shutil.rmtree(name, ignore_errors=True)


def _end(process: Popen[bytes]) -> None:
    """Ends a process, and what it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # nobody is left
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def vanished(request: Request, status: int, noise: BinaryIO) -> Sent:
    """A process that left no result: it was ended by somebody, or it ended itself."""
    said = _said(noise)
    if "Timeout (" in said and status == 1:
        return deaf(request, noise)
    if -status in (getattr(signal, name, 0) for name in ("SIGXCPU", "SIGALRM")):
        return endless(request, None)
    if status < 0:
        how = (
            f"ended by the system ({_signal(-status)}), as it does with what asks for too much memory or breaks Python"
        )
        return Sent("failed", f"{request.puzzle} was {how}")
    last = f": {said.splitlines()[-1]}" if said else ""
    return Sent("failed", f"{request.puzzle} ended Python itself (exit status {status}){last}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def deaf(request: Request, noise: BinaryIO) -> Sent:
    """A process that did not end in time and was too busy to say so: what faulthandler wrote has the line."""
    said = _said(noise).rpartition("Timeout (")[2]
    name = Path(request.file if request.source is None else request.source[2]).name
    found = re.search(rf'File "[^"\n]*{re.escape(name)}([^"\n]*)", line (\d+) in (\w+)', said)
    return endless(request, None if found is None else f"{name}{found[1]}, line {found[2]}, in {found[3]}")


def _said(noise: BinaryIO) -> str:
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - MAX_PRINTED))
    return noise.read(MAX_PRINTED).decode("utf-8", "replace").strip()


def _read(result: Path, request: Request) -> Sent | None:
    """What the other process wrote, if it is whole."""
    try:
        return read(_content(result, request.limits.sent), request)
    except (OSError, ValueError):
        return None


def _content(result: Path, most: int) -> bytes:
    """The bytes of a plain file, if it is one: who reads a pipe may wait for ever, and a link may lead anywhere."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(result, flags), "rb") as file:
        size = os.fstat(file.fileno())
        if not stat.S_ISREG(size.st_mode) or size.st_size > most:
            raise ValueError("this is no result")
        return file.read(most)
