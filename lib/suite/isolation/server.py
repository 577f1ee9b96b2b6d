"""The server: it forks a child for each run, ends what the child leaves, and says how it ended. It reads no source.

Its memory is that of every child, so it must never hold anything of a student's: the child itself reads the request
and sends the result, on a socket of its own that comes with the order to fork. The server ends when nobody is left who
could ask, however they ended, and all that it has started ends with it.

A child reads its first request, puts up the walls around itself, and runs what is asked. One answers what is asked of
one function, one size after the other: each is loaded anew, and asked when the last has been answered. To fork costs as
much as two such runs, most of it for memory that a process touches first.
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import chain
from typing import Final, NoReturn

from lib.suite.isolation.isolation import FEATURES
from lib.suite.isolation.messages import QUESTIONS, Sent, request_from, written
from lib.suite.isolation.running import answer, limit
from lib.suite.isolation.walls import DEATH_SIGNAL, DUMPABLE, Walls, prctl
from lib.trace.trace import Trace

__all__ = ["main"]

NEEDED: Final = (
    "lib",
    "lib.suite.submissions.table",
    "lib.cluster.network",
    "lib.cluster.reader",
    "lib.diagnosis",
    "lib.diagnosis.facts",
    "lib.puzzles.records",
    "lib.schedules.written",
    "lib.simulator.event_loop",
    "lib.simulator.simulator",
    "lib.suite.submissions.function_check",
    "lib.suite.submissions.source",
    "lib.trace.json_format",
)
"""What a run may need. Nobody imports it again."""


def main() -> None:
    """Serve the socket of the first argument until it is closed or the process has ended whose pidfd is the second one.

    The third names what of FEATURES is not to be used.
    """
    control, asker = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for who asks to end
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
            elif message == b"end":
                control.send(str(_end(child, walls)).encode())
                child, folder = 0, _empty(folder, walls.folder)
            else:
                os.kill(child, int(message))  # who has ended has its number until then
    finally:
        if child:
            _end(child, walls)
        _remove(walls.folder)


def _end(child: int, walls: Walls) -> int:
    """End a child and what it has started, and return its exit status, or the number of a signal with a minus."""
    # Inside of bubblewrap there is nobody else; outside only seccomp keeps one from leaving its session.
    for process in (child, -1 if "bwrap" in walls.features else -child):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    ended = dict[int, int]()
    with suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, 0)
            ended[process] = os.waitstatus_to_exitcode(status)
    return ended[child]


def _empty(folder: str, above: str) -> str:
    """Return a folder in which nothing is: this one, or a new one where a run has left something."""
    with suppress(OSError):
        if not os.listdir(folder):
            return folder
    _remove(folder)
    return tempfile.mkdtemp(dir=above)


def _remove(folder: str) -> None:
    """Remove what a run has left, as far as that goes: folders a thousand deep stay."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


WARM = """
async def warm(model):
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    weights[0], opt_states[0] = model.load_weights(0)
    activations[1] = model.forward(0, activations[0], weights[0])
    grad_activations[1] = model.loss(activations[1])
    grad_weights[0], grad_activations[0] = model.backward(0, activations[0], grad_activations[1], weights[0])
    del activations[1], grad_activations[1]
    grad_weights[0] = await model.allreduce(grad_weights[0], 0)
"""


def _warm_up() -> None:
    """Import what runs need, and run what is no training step a few times: Python makes what runs often faster, and
    children inherit that."""
    for name in NEEDED:
        import_module(name)
    from lib.puzzles.records import PUZZLES
    from lib.simulator.simulator import simulate
    from lib.suite.submissions.load import function_of
    from lib.suite.submissions.source import Source

    len(PUZZLES)  # they are read now
    for _ in range(10):
        models = simulate(function_of(Source.of("warm.py", WARM), "warm"), ranks=4, layers=1, batches=4)
        written(Sent("trace", trace=Trace.of(models)), "")
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)  # a run makes little garbage, and is short


def _answer(walls: Walls, folder: str, sock: int, noise: int) -> NoReturn:
    """Answer the requests that come on a socket, each a line, as long as some come; so is each half of an answer."""
    try:
        prctl(DEATH_SIGNAL, signal.SIGKILL)  # it ends with the server
        os.setsid()
        os.dup2(noise, 2)
        os.close(noise)
        with socket.socket(fileno=sock) as link:
            lines = link.makefile("rb")
            first = next(lines)
            limits = request_from(first).limits
            limit(replace(limits, seconds=limits.seconds * QUESTIONS))
            walls.enter(folder)
            for line in chain([first], lines):
                answer(request_from(line), lambda content: link.sendall(content + b"\n"), told=True)
        os._exit(0)
    finally:
        os._exit(70)
