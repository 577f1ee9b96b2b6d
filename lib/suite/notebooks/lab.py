"""How JupyterLab is started for the puzzles: at the map, with the `puzzles` command in reach, without its news.

All of it is said to this one JupyterLab, by variables and options: nobody's own settings are changed.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from lib.extras import need_extra
from lib.suite.submissions.locations import home

__all__ = ["command", "environment", "trust"]

CONFIG = Path(__file__).parent / "lab_config"
"""Settings of JupyterLab's that no option has: the question whether it may show news is not asked."""
FIRST = "00_index.ipynb"
PLACES = ("PUZZLES_FOLDER", "PUZZLES_PROGRESS")
"""The variables that name places, which may be said from the folder where we are."""


def command(options: Sequence[str]) -> list[str]:
    """Return the program that opens the folder in which it is started, with options of the user's after ours.

    ImportError without JupyterLab.
    """
    need_extra("notebook", "JupyterLab needs", "jupyterlab")
    ours = [f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        ours.append("--allow-root")
    if os.name != "nt":
        # A login shell, which it may start otherwise, sets PATH anew and would not find our command.
        shell = os.environ.get("SHELL") or shutil.which("sh") or "/bin/sh"
        ours.append(f"--ServerApp.terminado_settings={{'shell_command': [{shell!r}]}}")
    return [sys.executable, "-m", "jupyterlab", *ours, *options]


def environment() -> dict[str, str]:
    """Return the variables for JupyterLab, which its terminals and kernels inherit: they start in another folder."""
    scripts = sysconfig.get_path("scripts")
    path = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != scripts]
    config = [str(CONFIG), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    told = {name: os.environ.get(name, "") for name in PLACES}
    return {
        **os.environ,
        **{name: os.path.abspath(place) for name, place in told.items() if place and place.lower() != "off"},
        "PATH": os.pathsep.join([scripts, *path]),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(config),
    }


def trust(notebooks: Iterable[Path]) -> None:
    """Sign those that are as we made them, as `jupyter trust` does: the pictures in them are shown at once.

    Where nothing can be signed they appear when the cells are run, and nothing else is lost.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    try:
        notary = cast(Any, NotebookNotary)()
        with closing(notary.store):
            for path in notebooks:
                original = home() / "puzzles" / path.name
                if original.is_file() and original.read_bytes() == path.read_bytes():
                    notary.sign(cast(Any, nbformat).read(path, as_version=4))
    except OSError as error:
        print(f"Note: the pictures in the notebooks appear when you run them, as Jupyter's signatures fail: {error}")
