"""Forks students' functions off a Python that has imported everything: the start of a fresh one is most of their cost.

`python -m tests.support.warm SOCKET` is that Python. It forks once a line of JSON, and says how each child ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from lib.files import ROOT

__all__ = ["Warm"]


class Warm:
    """The asking end: `popen` stands for subprocess.Popen in `lib.suite.isolation.isolation`, one process at a time."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", str(theirs.fileno())], cwd=ROOT, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._said = self._control.makefile("rb")

    def popen(
        self, command: Sequence[str], env: Mapping[str, str], stdin: Any, stdout: Any, stderr: Any, **more: Any
    ) -> Any:
        """Starts what a fresh Python does that `lib.suite.isolation.isolation` starts; its server is one of its own."""
        if stdin == subprocess.DEVNULL:
            return subprocess.Popen(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr, **more)
        line = json.dumps([os.getcwd(), dict(env)]).encode() + b"\n"
        socket.send_fds(self._control, [line], [stdin.fileno(), stdout.fileno(), stderr.fileno()])
        self.pid, self._status = int(self._said.readline()), None
        return self

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            self._control.settimeout(timeout)
            try:
                self._status = int(self._said.readline())
            except TimeoutError:
                self._said = self._control.makefile("rb")  # a file that was late once is never read again
                raise subprocess.TimeoutExpired("lib.suite.isolation", timeout or 0) from None
            finally:
                self._control.settimeout(None)
        return self._status

    def kill(self) -> None:
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the server, and waits for it, so that its time counts as that of the tests."""
        self._said.close()
        self._control.close()
        self._server.wait()


def _serve(control: socket.socket) -> None:
    while line := _received(control):
        message, files = line
        child = os.fork()
        if child == 0:
            _begin(control, files, *json.loads(message))
        for file in files:
            os.close(file)
        control.send(b"%d\n" % child)
        control.send(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _received(control: socket.socket) -> tuple[bytes, list[int]] | None:
    message, fds, _, _ = socket.recv_fds(control, 2**16, 3)
    while message and not message.endswith(b"\n"):
        message += control.recv(2**16)
    return (message, fds) if message else None


def _begin(control: socket.socket, files: list[int], where: str, environment: dict[str, str]) -> NoReturn:
    try:
        os.setsid()
        control.close()
        os.chdir(where)
        for number, own in enumerate(files):
            os.dup2(own, number)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(environment)
        running.main()
    finally:
        os._exit(70)


if __name__ == "__main__":
    from lib.suite.isolation import running

    names = ("simulator.simulator", "suite.submissions.function_check", "schedules.written")
    for name in names:
        import_module(f"lib.{name}")
    _serve(socket.socket(fileno=int(sys.argv[1])))
