"""What a child of the server does: it puts up the walls around itself, reads requests, and runs what they ask.

One child answers what is asked of one function, one size after the other: each is loaded anew, and asked when the last
has been answered. To fork costs as much as two such runs, most of it for memory that a process touches first.
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final, NoReturn

from lib.suite.course.child.asking import OWN
from lib.suite.course.child.messages import Limits, Sent, request_from, written
from lib.suite.course.child.running import answer, limit
from lib.suite.grade.isolation import landlock, namespaces, seccomp
from lib.suite.grade.isolation.asked import QUESTIONS
from lib.suite.grade.isolation.kernel import drop_capabilities
from lib.trace.trace import Trace

__all__ = ["Walls", "prepare", "run"]

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
    calls: seccomp.Filter | None = None
    nobody: bool = False
    own_count: bool = False

    def clean(self) -> None:
        """Makes the folder empty."""
        if "files" in self.features:
            namespaces.clean(ROOM)
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
    features, folder = {"server"} | (apart & {"processes", "network"}), namespaces.FOLDER
    paths = namespaces.readable()
    if "files" in apart:
        with suppress(OSError):
            namespaces.own_files(paths, ROOM)
            features.add("files")
    if "files" not in features:
        folder = tempfile.mkdtemp(prefix="puzzles")
    visible = calls = None
    if "landlock" not in without:
        with suppress(OSError):
            # In a file system of its own there is nothing else.
            visible = ("/",) if "files" in features else (*paths, *namespaces.DEVICES)
            os.close(landlock.rules(visible, [folder]))  # is there Landlock?
            features.add("landlock")
    if "seccomp" not in without and (calls := seccomp.prepared()) is not None:
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
    rules = None if walls.readable is None else landlock.rules(walls.readable, [walls.folder], namespaces.LISTED)
    if walls.nobody:
        os.setgroups([])
        os.setresgid(namespaces.NOBODY, namespaces.NOBODY, namespaces.NOBODY)
        os.setresuid(namespaces.NOBODY, namespaces.NOBODY, namespaces.NOBODY)
    if rules is not None:
        landlock.restrict(rules)
        os.close(rules)
    drop_capabilities()
    limits = replace(limits, seconds=limits.seconds * QUESTIONS)
    # Processes are counted for each user, and so those of others too, unless it has a namespace.
    limit(limits if walls.own_count else replace(limits, processes=OWN.processes))
    if walls.calls is not None:
        seccomp.forbid(walls.calls)
    with socket.socket(fileno=sock) as link:
        for line in link.makefile("rb"):
            answer(request_from(line), lambda content: link.sendall(content + b"\n"), told=True)
    os._exit(0)
