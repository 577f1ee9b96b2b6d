"""Kernels that begin as copies of one process, which has imported what others wrote and every notebook needs.

A kernel that is started anew spends most of its time on importing ipykernel, chalk, lib and drawing. In the process
that is copied no cell has run and there is no shell, so nothing of one notebook comes into another. Modules of lib and
drawing lie ready until a notebook imports them; the two packages themselves are imported anew, as they look for a shell
then. Notebooks are built in kernels that are started anew; what only looks whether all is as it was may have warm ones:

    pytest -p lib.suite.notebooks.warm_kernels --nbval solutions

Where a process cannot be copied, every kernel is started anew.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import EntryPoint
from importlib.util import find_spec, module_from_spec
from pkgutil import walk_packages
from types import ModuleType
from typing import IO, Any, NoReturn, cast

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from lib.files import child_environment

__all__ = ["COPIES", "WarmProvisioner", "pytest_configure"]

COPIES = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether a process can be copied. On macOS it can, but its own libraries may not work in the copy."""
NAME = "warm-provisioner"
IMPORTED = ("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "IPython.core.oinspect", "chalk")
NO_DEBUGGER = "debugpy"
"""Half of the time in which a kernel starts goes into this, and nobody debugs a notebook that is only run."""
OURS = ("lib", "drawing")
READY = (
    "lib.simulator.simulator",
    "lib.simulator.running_loop",
    "lib.checker.checker",
    "lib.checker.notes",
    "lib.diagnosis.given",
    "lib.suite.course.exercises",
    "lib.suite.course.progress",
    "lib.suite.course.solutions",
)
"""What nearly every notebook imports of lib, with all that these import; of drawing, it imports everything."""
LAUNCHER = ["-m", "ipykernel_launcher"]
"""How the command of a Python kernel goes on after the interpreter."""


def pytest_configure() -> None:
    """Make all kernels of this process warm, those of nbval above all: this module is a plugin of pytest."""
    factory = cast(Any, KernelProvisionerFactory.instance())
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:WarmProvisioner", factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    with suppress(ImportError):
        # nbval lays every message out for a log that nobody reads: 4 of 50 seconds.
        cast(Any, import_module("nbval.kernel")).pformat = repr


class WarmProvisioner(LocalProvisioner):
    """Starts a kernel of this interpreter as a copy of the warm process, and any other as its base does."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        if not COPIES or cmd[:3] != [sys.executable, *LAUNCHER]:
            return await super().launch_kernel(cmd, **kwargs)
        self.process = cast(Any, _Copy(cmd[3:], str(kwargs.get("cwd") or os.getcwd()), kwargs["env"]))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class _Copy:
    """A copy of the warm process, asked for its state as a subprocess.Popen is."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
        orders, answers = _warm_process()
        print(json.dumps([arguments, cwd, env]), file=orders, flush=True)
        self.pid = int(answers.readline())

    def poll(self) -> int | None:
        """None while it runs, and then 0: how it ended only its parent knows, and nobody asks."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        return 0

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


@cache
def _warm_process() -> tuple[IO[str], IO[str]]:
    """Start the process to copy, which ends with this one; return the pipes of its orders and of its answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=child_environment(),
        start_new_session=True,  # Ctrl-C is for those who started it
    )
    atexit.register(process.__exit__, None, None, None)
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """Makes a copy for each line of orders, and answers with its process id."""
    cast(dict[str, Any], sys.modules)[NO_DEBUGGER] = None
    for name in IMPORTED:
        import_module(name)
    sys.meta_path.insert(0, _Ready())
    gc.freeze()
    signal.signal(signal.SIGCHLD, _bury)
    for line in orders:
        pid = os.fork()
        if pid == 0:
            _become_kernel(*json.loads(line))
        print(pid, file=answers, flush=True)


class _Ready(MetaPathFinder):
    """Finds modules of ours that have been imported, where they are what would be found without it."""

    def __init__(self) -> None:
        _forget_ours()
        for package in OURS:  # without its own lines
            spec = find_spec(package)
            assert spec is not None
            sys.modules[package] = module_from_spec(spec)
        drawing = (module.name for module in walk_packages(sys.modules["drawing"].__path__, "drawing."))
        for name in (*READY, *drawing):
            import_module(name)
        len(sys.modules["lib.puzzles.records"].PUZZLES)  # which reads the records
        self.modules = {name: module for name, module in _forget_ours().items() if name not in OURS}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        module = self.modules.get(fullname)
        spec = module and PathFinder.find_spec(fullname, path)
        if module is None or spec is None or spec.origin != module.__file__:
            return None
        spec.loader = _Imported(module)
        return spec


class _Imported(SourceFileLoader):
    """Loads a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, str(module.__file__))
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def _forget_ours() -> dict[str, ModuleType]:
    """Removes all modules of ours from those that are imported, and returns them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in OURS}


def _bury(*_: object) -> None:
    """Lets go of the copies that have ended, which until then would seem to run."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_kernel(arguments: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Does what `python -m ipykernel_launcher` does in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    del sys.path[0]  # the folder in which the warm process was started
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # the pipe of the answers is not for kernels
    status = 1
    try:
        from ipykernel.kernelapp import launch_new_instance

        launch_new_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
