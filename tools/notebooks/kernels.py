"""Runs notebooks, each in a kernel of its own, and keeps of their outputs what is the same every time.

Notebooks are built in kernels that are started anew, which spend most of their time on importing ipykernel, chalk, lib
and drawing. What only looks whether all is as it was may have warm ones, where a process can be copied:

    pytest -p tools.notebooks.kernels --nbval solutions
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any, NoReturn, cast

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from lib.files import ROOT, child_environment
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import Notebook

TIMEOUT = 120  # seconds that a cell may take


# -- running notebooks ----------------------------------------------------------------------------------------------


def execute(notebooks: Mapping[Path, Notebook], *, warm: bool = False) -> list[Notebook | BuildError]:
    """Run notebooks, as many at a time as there are processors, each in the folder of its path and a kernel of its own.

    `warm` kernels are copies of one process, which saves time; others are started anew. What fails, or writes to
    stderr, or puts out what no two runs have in common, gives an error.
    """

    async def run_all(scratch: Path) -> list[Notebook | BuildError]:
        free = asyncio.Semaphore(os.cpu_count() or 1)
        runs = [_run(path, notebook, scratch / path.stem, warm, free) for path, notebook in notebooks.items()]
        return await asyncio.gather(*runs)

    with tempfile.TemporaryDirectory(prefix="nb") as scratch:
        return asyncio.run(run_all(Path(scratch)))


async def _run(
    path: Path, notebook: Notebook, scratch: Path, warm: bool, free: asyncio.Semaphore
) -> Notebook | BuildError:
    # Here and not above: the process that is copied has no need of them.
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    cells: Any = cast(Any, nbformat).reads(json.dumps(notebook), as_version=4)
    # Always this interpreter, whatever kernels a user has; sockets in files, which need no encryption and no ports.
    manager = AsyncKernelManager(
        kernel_name="python3",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
        connection_file=f"{scratch}.json",
        transport="tcp" if os.name == "nt" else "ipc",
    )
    if warm:
        manager.provisioner = WarmProvisioner(parent=manager, kernel_spec=manager.kernel_spec)
    # Building a notebook is not solving a puzzle.
    variables = child_environment(IPYTHONDIR=str(scratch), PUZZLES_PROGRESS="off")
    client = NotebookClient(cells, km=manager, timeout=TIMEOUT, record_timing=False, shutdown_kernel="immediate")
    async with free:
        try:
            await client.async_execute(cwd=str(path.parent), env=variables, cleanup_kc=True)
            return tidied(cells, path)
        except CellExecutionError as error:
            return BuildError(f"{path.name} fails: {error.ename}: {error.evalue}")
        except DeadKernelError:
            return BuildError(f"{path.name}: its kernel died")
        except CellTimeoutError:
            return BuildError(f"{path.name}: a cell took more than {TIMEOUT} seconds")
        except BuildError as error:
            return error


def tidied(notebook: Any, path: Path) -> Notebook:
    """Return a notebook that has been run, with its cells counted from 1. BuildError for an output not to be kept."""
    count = itertools.count(1)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["execution_count"] = next(count)
            cell["outputs"] = joined(cell["outputs"])
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = cell["execution_count"]
                reject(output, f"{path.name}, cell {cell['id']}")
    return dict(notebook)


def joined(outputs: list[Any]) -> list[Any]:
    """Return outputs in which neighbouring pieces of one stream are one: how they were cut up is chance."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output["output_type"] == "stream" and joined[-1].get("name") == output["name"]:
            joined[-1]["text"] += output["text"]
        else:
            joined.append(output)
    return joined


def reject(output: Any, where: str) -> None:
    """Refuse an output that is not the same every time. BuildError says what it is."""
    if output.get("name") == "stderr":
        raise BuildError(f"{where} writes to stderr: {output['text'].strip()}")
    for pattern in (r"\b0x[0-9a-f]{6,}", re.escape(str(ROOT)), re.escape(tempfile.gettempdir())):
        if found := re.search(pattern, json.dumps(output)):
            raise BuildError(f"{where} puts out {found[0]!r}, which is different on every machine or run")


# -- warm kernels ---------------------------------------------------------------------------------------------------

# A warm kernel is a copy of one process, which has imported what others wrote and every notebook needs. No cell has run
# in that process and there is no shell, so nothing of one notebook comes into another. Most modules of lib and drawing
# are there too; the two packages themselves are imported by each notebook, as they look for a shell then.

COPIES = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether a process can be copied. On macOS it can, but its own libraries may not work in the copy."""
NAME = "warm-provisioner"
IMPORTED = ("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger", "IPython.core.oinspect", "chalk")
OURS = ("lib", "drawing")
READY = ("simulator.running_loop", "checker.lateness", "checker.hidden_sizes", "suite.course.exercises")
"""What nearly every notebook imports of lib, with all that these import; of drawing, it imports everything."""


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
        if not COPIES or cmd[:3] != [sys.executable, "-m", "ipykernel_launcher"]:
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
    return cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """Make a copy for each line of orders, and answer with its process id."""
    modules = cast(dict[str, Any], sys.modules)
    # Half of the time in which a kernel starts goes into it, and nobody debugs a notebook that is only run.
    modules["debugpy"] = None
    for name in [name for name in modules if name.partition(".")[0] in OURS]:
        del modules[name]
    for package in OURS:  # without its own lines
        modules[package] = module_from_spec(cast(ModuleSpec, find_spec(package)))
    drawing = (module.name for module in walk_packages(modules["drawing"].__path__, "drawing."))
    for name in (*IMPORTED, *(f"lib.{name}" for name in READY), "lib.suite.course.solutions", *drawing):
        import_module(name)
    len(modules["lib.puzzles.records"].PUZZLES)  # which reads the records
    for package in OURS:
        del modules[package]
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended would seem to run until they are waited for
    for line in orders:
        pid = os.fork()
        if pid == 0:
            _become_kernel(*json.loads(line))
        print(pid, file=answers, flush=True)


def _become_kernel(arguments: list[str], cwd: str, env: dict[str, str]) -> NoReturn:
    """Do what `python -m ipykernel_launcher` does in a process of its own."""
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
