"""The server: it forks a child for each run, ends what the child leaves, and says how it ended. It reads no source.

    python -P -m lib.suite.isolation.server SOCKET ASKER WITHOUT

Its memory is that of every child, so it must never hold anything of a student's: the child itself reads the request
and sends the result, on a socket of its own that comes with the order to fork. The server ends when the other end of
SOCKET is closed or the process ASKER has ended, however it did, and all that it has started ends with it.

A child puts up the walls around itself, reads requests, and runs what they ask. One answers what is asked of one
function, one size after the other: each is loaded anew, and asked when the last has been answered. To fork costs as
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
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final, NoReturn

from lib.suite.isolation import walls as system
from lib.suite.isolation.isolation import FEATURES, OWN
from lib.suite.isolation.messages import QUESTIONS, Limits, Sent, request_from, written
from lib.suite.isolation.running import DEAF, DEAF_SIGNAL, LATE, answer, limit
from lib.suite.isolation.walls import drop_capabilities, prctl
from lib.trace.trace import Trace

__all__ = ["Walls", "main", "prepare", "run"]

# -- server --------------------------------------------------------------------------------------------------------


DEATH_SIGNAL, DUMPABLE, SUBREAPER = 1, 4, 36
SHORT = 0.1
"""Seconds for Python to write down where it is."""


def main(number: int, asker: int, without: frozenset[str]) -> None:
    """What the process does."""
    control = socket.socket(fileno=number)
    watch = os.pidfd_open(asker)
    if os.getppid() != asker:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for who asks to end
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # where memory runs out, it is not the grading that ends
    apart = system.separate(without)
    if "processes" in apart and (child := os.fork()):
        control.close()
        os.waitpid(child, 0)  # the first process of its namespace: with it all others end
        return
    prctl(DEATH_SIGNAL if "processes" in apart else SUBREAPER, signal.SIGKILL if "processes" in apart else 1)
    walls = prepare(apart, without)
    prctl(DUMPABLE, 0)
    control.send(",".join(one for one in FEATURES if one in walls.features).encode())
    try:
        _Server(control, watch, walls).serve()
    finally:
        walls.remove()


class _Server:
    """The loop: one child after the other. `watch` is ready to be read when the asker has ended."""

    def __init__(self, control: socket.socket, watch: int, walls: Walls) -> None:
        self._control, self._watch, self._walls = control, watch, walls
        self._alone = "processes" in walls.features

    def serve(self) -> None:
        """Forks a child for each message, until nobody is left to send one."""
        while self._wait() is not None:
            message, fds, _, _ = socket.recv_fds(self._control, 4096, 2)
            if not message:
                return
            if len(fds) != 2:  # an order to end a child that has ended by itself
                continue
            child = os.fork()
            if child == 0:
                self._begin(message, fds)
            for fd in fds:
                os.close(fd)
            with open(os.pidfd_open(child)) as ended:
                gone = self._watched(child, ended.fileno())
            status = self._end(child)
            self._walls.clean()
            if gone:
                return
            self._control.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _watched(self, child: int, ended: int) -> bool:
        """Waits for a child to end, or for the order to end it. Whether the asker has ended."""
        order = self._wait(ended)
        # To one that is late it is said twice, first so that it can say itself where it is.
        for number, seconds in ((LATE, DEAF), (DEAF_SIGNAL, SHORT)) if order == b"late" else ():
            os.kill(child, number)
            if (order := self._wait(ended, seconds)) != b"":
                break
        return order is None

    def _wait(self, ended: int | None = None, seconds: float | None = None) -> bytes | None:
        """Waits for a message, or for a child to end. An order that came while it ran; None where the asker has ended;
        b"" where nothing was said, though the time was over, and b"ended" where the child has ended."""
        poll = select.poll()
        for number in (self._control.fileno(), self._watch, ended):
            if number is not None:
                poll.register(number, select.POLLIN)
        ready = {number for number, _ in poll.poll(None if seconds is None else seconds * 1000)}
        if self._watch in ready:
            return None
        if ended is None:
            return b""
        if self._control.fileno() in ready:
            return self._control.recv(4096) or None  # nothing is said where the socket was closed
        return b"ended" if ended in ready else b""

    def _begin(self, message: bytes, fds: list[int]) -> NoReturn:
        """What a child does first."""
        try:
            self._control.close()
            os.close(self._watch)
            run(fds[0], fds[1], Limits.from_bytes(message), self._walls)
        finally:
            os._exit(70)

    def _end(self, child: int) -> int:
        """Ends a child and all that it has started. Its status."""
        found = 0
        while True:
            for process in [-1] if self._alone else [child, *_children()]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            try:
                ended, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return found
            if ended == child:
                found = status


def _children() -> list[int]:
    """The processes whose parent this one is, or has become."""
    own, found = str(os.getpid()), list[int]()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[1].decode() == own:
                    found.append(int(name))
    return found


# -- job -----------------------------------------------------------------------------------------------------------


NEEDED: Final = (
    "lib",
    "lib.checker.table",
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
ROOM: Final = 32 * 2**20
"""Bytes that all files of a run may have together, where it has a file system of its own."""


@dataclass(frozen=True, slots=True)
class Walls:
    """What is around each child: the features that this system has, as keys of `isolation.FEATURES`, and what they
    need. `folder` is where it may write, `readable` what Landlock lets it read (None: there is no Landlock)."""

    features: frozenset[str]
    folder: str
    readable: tuple[str, ...] | None = None
    calls: system.Filter | None = None
    nobody: bool = False
    own_count: bool = False

    def clean(self) -> None:
        """Makes the folder empty."""
        if "files" in self.features:
            system.clean(ROOM)
            return
        with os.scandir(self.folder) as entries:
            if next(entries, None) is None:
                return
        with suppress(RecursionError):
            shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)

    def remove(self) -> None:
        """Takes the folder away, where it lies in the file system of others."""
        if "files" not in self.features:
            shutil.rmtree(self.folder, ignore_errors=True)


def prepare(apart: set[str], without: Iterable[str]) -> Walls:
    """Imports what runs need, and makes what walls need: in the server, once."""
    for name in NEEDED:
        import_module(name)
    from lib.puzzles.records import PUZZLES

    len(PUZZLES)  # they are read now
    features, folder = {"server"} | (apart & {"processes", "network"}), system.FOLDER
    paths = system.readable()
    if "files" in apart:
        with suppress(OSError):
            system.own_files(paths, ROOM)
            features.add("files")
    if "files" not in features:
        folder = tempfile.mkdtemp(prefix="puzzles")
    visible = calls = None
    if "landlock" not in without:
        with suppress(OSError):
            # In a file system of its own there is nothing else.
            visible = ("/",) if "files" in features else (*paths, *system.DEVICES)
            os.close(system.rules(visible, [folder]))  # is there Landlock?
            features.add("landlock")
    if "seccomp" not in without and (calls := system.prepared()) is not None:
        features.add("seccomp")
    open_to_all = all(os.stat(path).st_mode & 0o4 for path in (__file__, os.__file__))
    nobody = "nobody" in apart and "files" in features and open_to_all
    _warm_up()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)  # a run makes little garbage, and is short
    return Walls(
        frozenset(features), folder, visible if "landlock" in features else None, calls, nobody, "user" in apart
    )


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
    """Runs what is no training step a few times: Python makes what runs often faster, and children inherit that."""
    from lib.simulator.simulator import simulate
    from lib.suite.submissions.source import Source, function_of

    for _ in range(10):
        models = simulate(function_of(Source.of("warm.py", WARM), "warm"), ranks=4, layers=1, batches=4)
        written(Sent("trace", trace=Trace.of(models)), "")


def run(sock: int, noise: int, limits: Limits, walls: Walls) -> NoReturn:
    """Answers the requests that come on a socket, each a line; so is each half of an answer. Ends when there are no
    more."""
    os.setsid()
    os.dup2(noise, 2)
    os.close(noise)
    os.chdir(walls.folder)
    tempfile.tempdir = walls.folder  # the server has asked, and found a folder that is not to be written here
    # Made anew for each child: a rule is for the very folder that was there, and `clean` puts another in its place.
    rules = None if walls.readable is None else system.rules(walls.readable, [walls.folder], system.LISTED)
    if walls.nobody:
        os.setgroups([])
        os.setresgid(system.NOBODY, system.NOBODY, system.NOBODY)
        os.setresuid(system.NOBODY, system.NOBODY, system.NOBODY)
    if rules is not None:
        system.restrict(rules)
        os.close(rules)
    drop_capabilities()
    limits = replace(limits, seconds=limits.seconds * QUESTIONS)
    # Processes are counted for each user, and so those of others too, unless it has a namespace.
    limit(limits if walls.own_count else replace(limits, processes=OWN.processes))
    if walls.calls is not None:
        system.forbid(walls.calls)
    with socket.socket(fileno=sock) as link:
        for line in link.makefile("rb"):
            answer(request_from(line), lambda content: link.sendall(content + b"\n"), told=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), frozenset(sys.argv[3].split(",")))
