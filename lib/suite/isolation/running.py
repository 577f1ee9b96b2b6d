"""What the limited process does: it runs a student's function within its limits, and writes down what came of it.

A function that is graded may use what its puzzle builds on of our own code, and nothing that answers it. The solutions
of other puzzles and the schedules of `lib.schedules` that the answer to a puzzle is itself given come with the request,
as text. Of a module these are the functions that the answer uses; what else is imported of it says, when it is called,
that it is not to be had.
"""

from __future__ import annotations

import ast
import faulthandler
import importlib.abc
import importlib.util
import io
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from lib.cluster.costs import costs_from
from lib.cluster.mesh import mesh_from
from lib.errors import fixes
from lib.errors.exceptions import NotSolved, PuzzleError, TraceError
from lib.errors.source_lines import Place, raised_at, resolve, student_frame
from lib.errors.wording import message_of
from lib.files import ROOT
from lib.simulator.simulator import Printed
from lib.suite.isolation.messages import MAX_PRINTED, MORE, Limits, Request, Sent, request_from, written
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import SourceError
from lib.suite.submissions.locations import reference
from lib.suite.submissions.needed import Program
from lib.suite.submissions.statements import statements
from lib.suite.submissions.table import decode
from lib.trace.trace import Trace

__all__ = ["DEAF", "DEAF_SIGNAL", "GRACE", "LATE", "answer", "endless", "limit", "main", "schedules_below", "withhold"]

# -- running -------------------------------------------------------------------------------------------------------

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


def main() -> NoReturn:
    """Answer the request that comes on standard input on what was standard output, in a fresh Python."""
    with open(0, "rb", closefd=False) as file:
        request = request_from(file.read())
    result, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    limit(request.limits)
    with open(result, "wb") as file:
        answer(request, lambda content: (file.write(content), file.flush()))
    os._exit(0)  # nobody waits for threads that the function has started, nor for what it wanted done at the end


def answer(request: Request, send: Callable[[bytes], object], *, told: bool = False) -> None:
    """Run a student's function, and send what came of it. This process ends where that takes too long.

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
    """Return what is said of a function that does not end."""
    where = "" if place is None else f"\n  where:    {place}"
    text = (
        f"{request.puzzle} did not end within {request.limits.seconds:g} seconds, so it was stopped{where}\n"
        "  fix:      look for a loop that never ends, or one that is far too long"
    )
    return Sent("failed", text)


def limit(limits: Limits) -> None:
    """Set the limits that this system has. Each is one that is not set yet, or lower than the one that is."""
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
    from lib.simulator.simulator import Unsolved, simulate
    from lib.suite.isolation.running import withhold
    from lib.suite.submissions.function_check import answering, building_on, where
    from lib.suite.submissions.table import ask_here

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
    from lib.suite.submissions.load import function_of, load_function
    from lib.suite.submissions.source import Source

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


# -- ours ----------------------------------------------------------------------------------------------------------

SCHEDULES: Final = "lib.schedules."
LOADED: Final = (
    "lib.schedules.written",
    *(f"lib.schedules.pipelines.{name}" for name in ("action", "legality", "lowering", "program")),
)
"""What runs a written schedule is no schedule: it is there for every puzzle, and loaded before."""


@cache
def schedules_below(puzzle: str) -> Mapping[str, str]:
    """The modules of lib.schedules that our answer to a puzzle is given, each with the text of what it needs of it."""
    found: dict[str, str] = {}
    waiting = _imported(*_needed(reference(puzzle), [puzzle]))
    while waiting:
        module, names = waiting.popitem()
        if module not in found:
            nodes, used = _needed(ROOT / f"{module.replace('.', '/')}.py", names)
            found[module] = "\n".join(["from __future__ import annotations", *map(ast.unparse, nodes)])
            waiting |= _imported(nodes, used)
    return found


def _needed(path: Path, names: Sequence[str]) -> tuple[list[ast.stmt], frozenset[str]]:
    """The statements of a file of ours that some of its names need, in order, and the names that they use."""
    every, broken = statements([(path.name, path.read_text("utf-8"))])
    program = Program(every, broken)
    found = [next(iter(program.needed(name))) for name in names]
    needed = {id(one.node) for each in found for one in each.statements}
    return [one.node for one in every if id(one.node) in needed], frozenset[str]().union(*(one.names for one in found))


def _imported(nodes: Sequence[ast.stmt], used: frozenset[str]) -> dict[str, list[str]]:
    """The modules of schedules that some statements import, and the names that are used of each."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(SCHEDULES):
            names = [one.name for one in node.names if (one.asname or one.name) in used]
            if names and node.module not in LOADED:
                found.setdefault(node.module, []).extend(names)
    return found


def withhold(given: Mapping[str, str]) -> None:
    """From now on no module of lib.schedules is to be had but what is LOADED and what is given."""
    for name in LOADED:
        import_module(name)
    sys.meta_path.insert(0, _Given(given))


class _Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname.startswith(SCHEDULES) else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__dict__["__getattr__"] = partial(_refusing, name)
        exec(compile(self._given.get(name, ""), f"{name}.py", "exec"), module.__dict__)


def _refusing(module: str, name: str) -> Callable[..., NoReturn]:
    """Return what stands for a function that is not to be had."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def refuse(*given: object, **named: object) -> NoReturn:
        raise PuzzleError(
            f"{module}.{name} is ours, and does not count as yours",
            expected="a function that says itself what each rank does",
            fix="write it yourself; use it to compare with in another cell, which is not graded",
        )

    return refuse
