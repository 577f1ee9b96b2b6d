"""The limited processes: each runs a student's function within its limits, and sends the result.

A graded function may use the code of ours that its puzzle builds on, but no answer to it: the solutions and schedules
that our own answer uses come with the request; anything else imported from their modules refuses when it is called.

The process is a fresh Python (`main`), or a child of a server (`serve`), which forks it, ends its leftovers, and says
how it ended. The server reads no source: every child inherits its memory, which must never hold anything of a
student's. It ends with the process that asks, and with it all that it has started. A child puts up its walls when its
first request brings the limits, and answers requests for one function, loaded anew for each size: a fork costs as much
as four runs, mostly for memory that a process touches for the first time.
"""

from __future__ import annotations

import ast
import faulthandler
import gc
import importlib.abc
import importlib.util
import marshal
import math
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from lib.errors import fixes
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.source_lines import GIVEN, LIBRARY, Place, raised_at, resolve, student_frame
from lib.errors.wording import message_of
from lib.files import ROOT, table
from lib.puzzles.records import PUZZLES
from lib.simulator.simulator import Printed, Unsolved, simulate
from lib.suite.isolation.messages import QUESTIONS, Kept, Limits, Request, Sent, written
from lib.suite.submissions.function_check import building_on, sources_below, where
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import function_of, load_function, run_extract
from lib.suite.submissions.locations import reference
from lib.suite.submissions.needed import Program
from lib.suite.submissions.source import Source
from lib.suite.submissions.statements import SourceError, statements
from lib.suite.submissions.table import ask_here
from lib.trace.trace import Trace, freeze

if TYPE_CHECKING:
    from lib.suite.isolation.walls import Walls

RUNS: Final[dict[str, Any]] = table("lib.suite.isolation", "runs")
FEATURES: Final[dict[str, str]] = RUNS["features"]
"""What may isolate a run, in words. Each is used if the system has it."""
GRACE = 10.0  # extra seconds to start Python and to end by itself, before a process is ended from outside
DEAF = 1.0
"""Extra seconds for one long operation inside Python that blocks other threads, before it is ended: at most as many as
the function had."""


def main() -> NoReturn:
    """Answer the request on standard input, in a fresh Python, on what was standard output."""
    with open(0, "rb", closefd=False) as file:
        request = pickle.load(file)
    result, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    limit(request.limits)
    with open(result, "wb") as file:
        answer(request, lambda content: (file.write(content), file.flush()))
    os._exit(0)  # don't wait for the function's threads and exit handlers


def answer(request: Request, send: Callable[[bytes], object]) -> None:
    """Run a student's function, and send the result. If that takes too long, a thread sends where it is and ends this
    process; if no Python thread gets a turn, faulthandler does. The function can disable both; then the process is
    ended from outside."""
    printed, main_thread, seconds = Kept(), threading.get_ident(), request.limits.seconds

    def late() -> None:
        if isinstance(sys.stdout, Printed):
            sys.stdout.release()
        frame = student_frame(sys._current_frames().get(main_thread))  # pyright: ignore[reportPrivateUsage]
        place = None if frame is None else resolve(frame.f_code, frame.f_lasti)
        send(written(endless(request, place), printed.text))
        os._exit(0)

    timer = threading.Timer(seconds, late)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + min(DEAF, seconds), exit=True)
    ours = sources_below(request.puzzle) if request.solutions is None else request.solutions
    lines = fixes.shown() if request.lines else nullcontext()
    with redirect_stdout(printed), redirect_stderr(printed), lines, building_on(ours):
        sent = _run(request)
    timer.cancel()
    faulthandler.cancel_dump_traceback_later()
    send(written(sent, printed.text))


def endless(request: Request, place: Place | str | None) -> Sent:
    """Return the result for a function that does not end."""
    where = "" if place is None else f"\n  where:    {place}"
    text = (
        f"{request.puzzle} did not end within {request.limits.seconds:g} seconds, so it was stopped{where}\n"
        "  fix:      look for a loop that never ends, or one that is far too long"
    )
    return Sent("failed", text)


def limit(limits: Limits) -> None:
    """Set the limits that this system has, never above those already set."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most_of = {"CPU": math.ceil(limits.seconds + GRACE), "AS": limits.memory, "FSIZE": limits.written, "CORE": 0}
    most_of |= {"NPROC": limits.processes, "NOFILE": limits.files}
    for name, most in most_of.items():
        if (number := getattr(resource, f"RLIMIT_{name}", None)) is not None:
            hard = resource.getrlimit(number)[1]
            value = most if hard == resource.RLIM_INFINITY else min(most, hard)
            with suppress(OSError, ValueError):  # macOS knows RLIMIT_AS and does not let it be set
                resource.setrlimit(number, (value, value))


def _run(request: Request) -> Sent:
    try:
        if request.schedules is not None:
            for name in LOADED:
                import_module(name)
            if not isinstance(sys.meta_path[0], _Given):
                sys.meta_path.insert(0, _Given(request.schedules))
        found = request.extract
        function = run_extract(found) if found is not None else load_function(request.file, request.puzzle)
        if request.inputs is not None:
            return Sent("answers", answers=tuple(ask_here(function, where)(request.inputs)))
        models = simulate(function, puzzle=request.puzzle, **request.size)
        if isinstance(models, Unsolved):
            return Sent("unsolved")
        wrong, record = None, PUZZLES[request.puzzle]
        if record.variants and request.size.get("ranks") is None:  # a refused call leaves no run to judge
            from lib.checker.hidden_sizes import wrong_with  # not above: few puzzles have variants

            wrong = wrong_with(function, record)
        outcome, text = ("trace", "") if wrong is None else ("failed", str(wrong))
        return Sent(outcome, text, trace=Trace.of(models))
    except NotSolved:
        return Sent("unsolved")
    except (SourceError, BuildError) as error:
        return Sent("source", str(error))
    except (PuzzleError, TraceError) as error:
        return Sent("failed", str(error), trace=getattr(error, "trace", None))
    except BaseException as error:
        place = raised_at(error)
        where_raised = "" if place is None else f"\n  where:    {place}"
        return Sent("failed", f"{type(error).__name__}: {message_of(error)}{where_raised}".replace(": \n", "\n"))


# -- ours ----------------------------------------------------------------------------------------------------------

WITHHELD: Final = tuple[str, ...](RUNS["withheld"])
LOADED: Final[list[str]] = RUNS["loaded"]


@cache
def schedules_below(puzzle: str) -> Mapping[str, bytes]:
    """Return the modules of lib.schedules that our answer to a puzzle uses, each with the marshalled code that it
    needs, so that no run compiles it again."""
    found: dict[str, bytes] = {}
    waiting = {"": [puzzle]}
    while waiting:
        module, names = waiting.popitem()
        if module in found:
            continue
        path = ROOT / f"{module.replace('.', '/')}.py" if module else reference(puzzle)
        every, broken = statements([(path.name, path.read_text("utf-8"))])
        program = Program(every, broken)
        needed = [next(program.needed(name)) for name in names]
        kept = {id(one.node) for each in needed for one in each.statements}
        used = frozenset[str]().union(*(each.names for each in needed))
        nodes = [one.node for one in every if id(one.node) in kept]
        text = "\n".join(["from __future__ import annotations", *map(ast.unparse, nodes)])
        # A line that notebooks provide is not the student's: messages recognise it by its file.
        file = os.path.join(LIBRARY, "schedules", GIVEN[0]) if module == "lib.schedules.given" else f"{module}.py"
        found[module] = marshal.dumps(compile(text, file, "exec", dont_inherit=True))
        for node in nodes:
            above = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if isinstance(node, ast.ImportFrom) and above.startswith(WITHHELD) and above not in LOADED:
                given = [one.name for one in node.names if (one.asname or one.name) in used]
                waiting |= {above: [*waiting.get(above, []), *given]} if given else {}
    del found[""]
    return found


@dataclass
class _Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds nothing that is WITHHELD, except what is `given`, or LOADED already."""

    given: Mapping[str, bytes]

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname.startswith(WITHHELD) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__dict__["__getattr__"] = partial(_refusing, name)
        if name in self.given:
            exec(marshal.loads(self.given[name]), module.__dict__)


def _refusing(module: str, name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def refuse(*given: object, **named: object) -> NoReturn:
        raise PuzzleError(
            f"{module}.{name} is ours, and does not count as yours",
            expected="a function that says itself what each rank does",
            fix="write it yourself; use it to compare with in another cell, which is not graded",
        )

    return refuse


# -- the server ----------------------------------------------------------------------------------------------------


def serve() -> None:
    """Serve the socket in the first argument until it is closed, or the process with the pidfd in the second has ended.
    The third names FEATURES not to be used."""
    from lib.suite.isolation.walls import DUMPABLE, Walls, prctl  # not above: only Linux has them

    control, asker = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ending is up to the process that asks
    walls = Walls.here(frozenset(sys.argv[3].split(",")))
    _warm_up()
    prctl(DUMPABLE, 0)
    control.send(",".join(one for one in FEATURES if one in walls.features).encode())
    child, folder = 0, tempfile.mkdtemp(dir=walls.folder)
    try:
        while asker not in select.select([control, asker], [], [])[0]:
            message, fds, _, _ = socket.recv_fds(control, 4096, 2)
            if not message:
                break
            if message == b"fork":
                child = os.fork()
                if not child:
                    control.close()
                    os.close(asker)
                    _answer(walls, folder, *fds)
                for fd in fds:
                    os.close(fd)
            else:
                control.send(str(_end(child, walls)).encode())
                child = 0
                _remove(folder)
                folder = tempfile.mkdtemp(dir=walls.folder)
    finally:
        if child:
            _end(child, walls)
        _remove(walls.folder)


def _end(child: int, walls: Walls) -> int:
    """End a child and what it has started. Return its exit status, or a signal's number, negated."""
    # Inside bubblewrap there are no other processes; outside only seccomp keeps a process from leaving its session.
    for process in (child, -1 if "bwrap" in walls.features else -child):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    ended = dict[int, int]()
    with suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, 0)
            ended[process] = os.waitstatus_to_exitcode(status)
    return ended[child]


def _remove(folder: str) -> None:
    with suppress(RecursionError):  # folders nested a thousand deep stay
        shutil.rmtree(folder, ignore_errors=True)


def _warm_up() -> None:
    """Import what runs need, and run it a few times: Python optimises what runs often, and children inherit that."""
    for name in RUNS["needed"]:
        import_module(f"lib.{name}")
    len(PUZZLES)  # they are read now
    for _ in range(10):
        models = simulate(function_of(Source.of("warm.py", RUNS["warm"]), "warm"), ranks=4, layers=1, batches=4)
        written(Sent("trace", trace=Trace.of(models)), "")
    freeze()
    gc.set_threshold(100_000)  # a run makes little garbage, and is short


def _answer(walls: Walls, folder: str, sock: int, noise: int) -> NoReturn:
    """Answer requests on a socket until there are no more."""
    from lib.suite.isolation.walls import DEATH_SIGNAL, prctl

    try:
        prctl(DEATH_SIGNAL, signal.SIGKILL)  # it ends with the server
        os.setsid()
        os.dup2(noise, 2)
        os.close(noise)
        with socket.socket(fileno=sock) as link, link.makefile("rb") as asked:
            request: Request = pickle.load(asked)
            limit(replace(request.limits, seconds=request.limits.seconds * QUESTIONS))
            walls.enter(folder)
            with suppress(EOFError):  # no more requests
                while True:
                    answer(request, lambda content: link.sendall(content + b"\n"))
                    request = pickle.load(asked)
        os._exit(0)
    finally:
        os._exit(70)
