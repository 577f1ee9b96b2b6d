"""Asks a fresh Python to run a function, wherever there is no better way to start a process.

There is a limit on the time by the clock on the wall; on Linux and macOS on processor time, on memory (Linux), and on
the size of files, too. What it starts ends with it, unless it leaves its session.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import BinaryIO

from lib.cluster.mesh import Mesh
from lib.errors import fixes
from lib.files import child_environment
from lib.suite.isolation.messages import MAX_PRINTED, Limits, Request, Sent, read
from lib.suite.isolation.running import GRACE, endless
from lib.suite.submissions.table import Given, encode

__all__ = ["LIMIT", "answered", "answers_of", "ask", "deaf", "run_of", "vanished"]

LIMIT = 10.0
"""Seconds that a function may run."""
OWN = Limits(memory=4 * 2**30, written=512 * 2**20, sent=32 * 2**20, files=4096)
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
    """Simulate the function `puzzle` of a notebook or .py, at the puzzle's size where none is said.

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
    """Have the function `puzzle` of a notebook or .py answer inputs. Nothing is raised for anything that it does."""
    request = Request(puzzle, replace(OWN, seconds=limit), str(file), inputs=[encode(given) for given in inputs])
    return answered(ask(request), request)


def answered(sent: Sent, request: Request) -> Sent:
    """Make a failure of answers that are not as many as the inputs."""
    if sent.outcome == "answers" and len(sent.answers) != len(request.inputs):
        text = f"{request.puzzle} gave {len(sent.answers)} answers to {len(request.inputs)} inputs"
        return Sent("failed", text, sent.printed)
    return sent


def ask(request: Request, **environment: str) -> Sent:
    """Start a Python for a request, with more variables in its environment, and read what it leaves."""
    # The files have no names: the student's code cannot put anything else there, such as a pipe that never ends.
    with TemporaryFile() as asked, TemporaryFile() as told, TemporaryFile() as noise:
        asked.write(request.to_bytes())
        asked.seek(0)
        process = Popen(
            # -P: a file of the student's called random.py is not to take the place of Python's own.
            [sys.executable, "-P", "-c", "from lib.suite.isolation.running import main; main()"],
            env=child_environment(PYTHONDONTWRITEBYTECODE="1", PUZZLES_PROGRESS="off", **environment),
            stdin=asked,
            stdout=told,
            stderr=noise,
            start_new_session=True,
        )
        try:
            status = process.wait(request.limits.seconds + GRACE)
        except TimeoutExpired:
            return endless(request, None)
        finally:
            if hasattr(os, "killpg"):
                with suppress(ProcessLookupError, PermissionError):  # nobody is left
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        told.seek(0)
        return read(told.read(request.limits.sent + 1), request) or vanished(request, status, noise)


def vanished(request: Request, status: int, noise: BinaryIO) -> Sent:
    """Say how a process ended that left no result: somebody ended it, or it ended itself."""
    said = _said(noise)
    if "Timeout (" in said and status == 1:
        return deaf(request, noise)
    if -status in (getattr(signal, name, 0) for name in ("SIGXCPU", "SIGALRM")):
        return endless(request, None)
    if status < 0:
        known = {one.value: one.name for one in signal.Signals}
        how = f"ended by the system ({known.get(-status, f'signal {-status}')})"
        why = "as it does with what asks for too much memory or breaks Python"
        return Sent("failed", f"{request.puzzle} was {how}, {why}")
    last = f": {said.splitlines()[-1]}" if said else ""
    return Sent("failed", f"{request.puzzle} ended Python itself (exit status {status}){last}")


def deaf(request: Request, noise: BinaryIO) -> Sent:
    """Say that a process did not end in time and was too busy to say so: what faulthandler wrote has the line."""
    said = _said(noise).rpartition("Timeout (")[2]
    name = Path(request.file if request.source is None else request.source[2]).name
    found = re.search(rf'File "[^"\n]*{re.escape(name)}([^"\n]*)", line (\d+) in (\w+)', said)
    return endless(request, None if found is None else f"{name}{found[1]}, line {found[2]}, in {found[3]}")


def _said(noise: BinaryIO) -> str:
    noise.seek(max(0, noise.seek(0, os.SEEK_END) - MAX_PRINTED))
    return noise.read(MAX_PRINTED).decode("utf-8", "replace").strip()
