"""Runs notebooks, each in a kernel of its own, and keeps of their outputs what is the same every time."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from lib.files import ROOT, child_environment
from lib.suite.notebooks.warm_kernels import WarmProvisioner
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.load import Notebook

__all__ = ["execute", "joined", "reject", "tidied"]

TIMEOUT = 120
"""Seconds that a cell may take."""

ADDRESS = r"\b0x[0-9a-f]{6,}"

_read = cast(Any, nbformat).reads  # which has no types


def execute(notebooks: Mapping[Path, Notebook], *, warm: bool = False) -> list[Notebook | BuildError]:
    """Run notebooks, as many at a time as there are processors, each in the folder of its path.

    `warm` kernels are copies of one process, which saves time; others are started anew. What fails, or writes to
    stderr, or puts out what no two runs have in common, gives an error.
    """
    return asyncio.run(_execute_all(notebooks, warm))


async def _execute_all(notebooks: Mapping[Path, Notebook], warm: bool) -> list[Notebook | BuildError]:
    free = asyncio.Semaphore(os.cpu_count() or 1)

    async def run(path: Path, notebook: Notebook, scratch: Path) -> Notebook | BuildError:
        async with free:
            try:
                return await _execute(path, notebook, scratch, warm)
            except BuildError as error:
                return error

    with tempfile.TemporaryDirectory(prefix="nb") as scratch:
        runs = [run(path, notebook, Path(scratch) / path.stem) for path, notebook in notebooks.items()]
        return await asyncio.gather(*runs)


async def _execute(path: Path, notebook: Notebook, scratch: Path, warm: bool) -> Notebook:
    cells: Any = _read(json.dumps(notebook), as_version=4)
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
    environment = child_environment(IPYTHONDIR=str(scratch), PUZZLES_PROGRESS="off")
    client = NotebookClient(cells, km=manager, timeout=TIMEOUT, record_timing=False, shutdown_kernel="immediate")
    try:
        await client.async_execute(cwd=str(path.parent), env=environment, cleanup_kc=True)
    except CellExecutionError as error:
        raise BuildError(f"{path.name} fails: {error.ename}: {error.evalue}") from None
    except DeadKernelError:
        raise BuildError(f"{path.name}: its kernel died") from None
    except CellTimeoutError:
        raise BuildError(f"{path.name}: a cell took more than {TIMEOUT} seconds") from None
    return tidied(cells, path)


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
        last: Any = joined[-1] if joined else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] += output["text"]
        else:
            joined.append(output)
    return joined


def reject(output: Any, where: str) -> None:
    if output.get("name") == "stderr":
        raise BuildError(f"{where} writes to stderr: {output['text'].strip()}")
    text = json.dumps(output)
    for pattern in (ADDRESS, re.escape(str(ROOT)), re.escape(tempfile.gettempdir())):
        if found := re.search(pattern, text):
            raise BuildError(f"{where} puts out {found[0]!r}, which is different on every machine or run")
