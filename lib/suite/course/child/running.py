"""What the other process does: it runs a student's function within its limits, and writes down what came of it."""

from __future__ import annotations

import faulthandler
import io
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from lib.checker.table import decode
from lib.cluster.costs import costs_from
from lib.cluster.mesh import mesh_from
from lib.errors import fixes
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.source_lines import Place, raised_at, resolve, student_frame
from lib.errors.wording import message_of
from lib.files import write_whole
from lib.simulator.simulator import Printed
from lib.suite.course.child.messages import MAX_PRINTED, MORE, Limits, Request, Sent, request_from, written
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError
from lib.trace.trace import Trace

__all__ = ["DEAF", "DEAF_SIGNAL", "GRACE", "LATE", "answer", "endless", "limit", "main"]

GRACE = 10.0
"""Seconds more, to start Python and to end by itself, before a process is ended from outside."""
DEAF = 1.0
"""Seconds more for one long operation of Python's own, which lets no other thread run, before it is ended: no more than
the function itself had."""


LATE = getattr(signal, "SIGALRM", signal.SIGTERM)
DEAF_SIGNAL = getattr(signal, "SIGUSR2", signal.SIGTERM)
"""It is time to say where it is and to end; and, should nobody hear that, to have Python itself say where it is."""


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
        return self.text + (MORE if self.more else "")


def main(folder: str) -> NoReturn:
    """What a fresh Python does. The folder holds the request, and gets the result."""
    result = Path(folder, "result.json")
    request = request_from(Path(folder, "request.json").read_bytes())
    limit(request.limits)
    answer(request, lambda content: write_whole(result, content.decode()))
    os._exit(0)  # nobody waits for threads that the function has started, nor for what it wanted done at the end


def answer(request: Request, send: Callable[[bytes], object], *, told: bool = False) -> None:
    """Runs a student's function, and sends what came of it. This process ends where that takes too long.

    It sees to it itself that it ends in time, with a thread, unless it is `told`: then who watches it sends LATE, and
    to one that does not hear it DEAF_SIGNAL, before it is ended.
    """
    printed, main_thread = _Kept(), threading.get_ident()

    def late(*_: object) -> None:
        if isinstance(sys.stdout, Printed):
            sys.stdout.release()
        send(written(endless(request, _theirs(main_thread)), printed.all()))
        os._exit(0)

    if told:
        signal.signal(LATE, late)
        faulthandler.register(DEAF_SIGNAL, all_threads=False)
        in_time = partial(signal.signal, LATE, signal.SIG_IGN)
    else:
        timer = threading.Timer(request.limits.seconds, late)
        timer.daemon = True
        timer.start()
        seconds = request.limits.seconds
        faulthandler.dump_traceback_later(seconds + min(DEAF, seconds), exit=True)
        in_time = timer.cancel
    with redirect_stdout(printed), redirect_stderr(printed), fixes.shown() if request.lines else nullcontext():
        sent = _run(request)
    in_time()
    send(written(sent, printed.all()))


def endless(request: Request, place: Place | str | None) -> Sent:
    """What is said of a function that does not end."""
    where = "" if place is None else f"\n  where:    {place}"
    text = (
        f"{request.puzzle} did not end within {request.limits.seconds:g} seconds, so it was stopped{where}\n"
        "  fix:      look for a loop that never ends, or one that is far too long"
    )
    return Sent("failed", text)


def limit(limits: Limits) -> None:
    """Sets the limits that this system has. Each is one that is not set yet, or lower than the one that is."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most = {
        "RLIMIT_CPU": math.ceil(limits.seconds + GRACE),
        "RLIMIT_AS": limits.memory,
        "RLIMIT_FSIZE": limits.written,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_NOFILE": limits.files,
        "RLIMIT_CORE": 0,
    }
    for name, value in most.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(OSError, ValueError):  # macOS knows RLIMIT_AS and does not let it be set
            resource.setrlimit(number, (value, value))


def _run(request: Request) -> Sent:
    # Here and not above: whoever only asks needs no simulator.
    from lib.checker.table import ask_here
    from lib.simulator.simulator import Unsolved, simulate
    from lib.suite.course.child.ours import withhold
    from lib.suite.submissions.function_check import answering, building_on, where

    try:
        if request.schedules is not None:
            withhold(request.schedules)
        with nullcontext() if request.solutions is None else building_on(request.solutions):
            function = _function(request)
            if request.inputs is not None:
                inputs = [tuple(decode(given)) for given in request.inputs]
                with answering(request.puzzle):
                    return Sent("answers", answers=tuple(ask_here(function, where)(inputs)))
            size = {name: getattr(request, name) for name in ("ranks", "layers", "batches")}
            mesh = None if request.mesh is None else mesh_from(request.mesh)
            costs = None if request.costs is None else costs_from(request.costs)
            models = simulate(function, puzzle=request.puzzle, mesh=mesh, costs=costs, **size)
            return Sent("unsolved") if isinstance(models, Unsolved) else Sent("trace", trace=Trace.of(models))
    except NotSolved:
        return Sent("unsolved")
    except (SourceError, BuildError) as error:
        return Sent("source", str(error))
    except PuzzleError as error:
        return Sent("failed", str(error), trace=error.trace)
    except TraceError as error:
        return Sent("failed", str(error))
    except BaseException as error:
        place = raised_at(error)
        where_raised = "" if place is None else f"\n  where:    {place}"
        return Sent("failed", f"{type(error).__name__}: {message_of(error)}{where_raised}".replace(": \n", "\n"))


def _function(request: Request) -> Callable[..., Any]:
    """The student's function, of a file or of a source that came with the request."""
    from lib.suite.submissions.load import load_function
    from lib.suite.submissions.source import Source, function_of

    if request.source is None:
        return load_function(request.file, request.puzzle)
    cells, modules, name, needs = request.source
    needed = None if needs is None else (frozenset(needs[0]), frozenset(needs[1]))
    return function_of(Source(_pairs(cells), _pairs(modules), name, needed), request.puzzle)


def _pairs(items: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in items)


def _theirs(thread: int) -> Place | None:
    """The line of the student's at which a thread is."""
    frame = student_frame(sys._current_frames().get(thread))  # pyright: ignore[reportPrivateUsage]
    return None if frame is None else resolve(frame.f_code, frame.f_lasti)
