"""Compiles what the page loads, in the very Python that will load it: that is half of the time to the first picture.

`page/compile.mjs` runs this in Pyodide, with the folder that is being built at /out. Only what a learner's first run
and first check load is compiled, as the rest would make the download larger by a fifth. The package lies without its
sources then, but for what messages show lines of.
"""

from __future__ import annotations

import importlib.util
import marshal
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import invalidate_caches
from pathlib import Path

LONG_AGO = (1980, 1, 1, 0, 0, 0)
SHOWN = (
    "lib/schedules/data_parallel.py",
    "lib/schedules/mesh_parallel.py",
    "lib/schedules/steps.py",
    "lib/schedules/pipelines/",
)
"""How the paths begin of what stands for a student's own: messages show its lines."""
ABSENT = re.compile(
    r"_pyrepl/(?!__init__|pager)|(ctypes|curses|dbm|ensurepip|idlelib|multiprocessing|sqlite3|tkinter|turtledemo|venv|wsgiref|xmlrpc)/"
    r"|xml/(dom|sax)/|email/mime/|(_pydatetime|_pydecimal|_pyio|bdb|cmd|doctest|ftplib|imaplib|mailbox|pdb)\.py$"
    r"|(optparse|pickletools|poplib|smtplib|turtle|zipapp)\.py$"
    r"|encodings/(big5|cp|euc|gb|hz|iso|johab|koi|kz|mac|ptcp|quopri|rot|shift|tis|uu|bz2|hp)(?!437\.|1252\.|8859_1\.)"
)
"""What of the standard library has no use in a page: processes, terminals, windows, mail, databases, debuggers, and the
encodings of old files. It is a tenth of what is transferred."""
FIRST = "ddp"
"""The puzzle that is run and checked to know what that loads."""
CHECKED = 0b01
"""The flag of a .pyc whose source is known by its hash, and is not compared: there is no source to compare it with."""

Files = Iterable[tuple[str, bytes]]


def compiled(data: bytes, file: str, optimize: int = 0) -> bytes:
    """Return the .pyc of a source that will lie at `file`."""
    code = compile(data, file, "exec", dont_inherit=True, optimize=optimize)
    head = importlib.util.MAGIC_NUMBER + CHECKED.to_bytes(4, "little") + importlib.util.source_hash(data)
    return head + marshal.dumps(code)


def package(files: Files, site: str, loaded: set[str]) -> Iterator[tuple[str, bytes]]:
    """Compile what is `loaded` of the package, which will lie in the folder `site`. Its asserts stay."""
    tag = sys.implementation.cache_tag
    for name, data in files:
        if f"{site}/{name}" not in loaded:
            yield name, data
        elif name.startswith(SHOWN):
            folder, _, file = name.rpartition("/")
            yield name, data
            yield f"{folder}/__pycache__/{file.removesuffix('.py')}.{tag}.pyc", compiled(data, f"{site}/{name}")
        else:
            yield f"{name}c", compiled(data, f"{site}/{name}")


def library(files: Files, place: str, loaded: set[str]) -> Iterator[tuple[str, bytes]]:
    """Compile what is `loaded` of the standard library, which lies in the zip file `place`, without its docstrings, and
    leave out what is ABSENT."""
    for name, data in files:
        if ABSENT.match(name):
            continue
        if f"{place}/{name}" in loaded:
            yield f"{name}c", compiled(data, f"{place}/{name}", optimize=2)
        else:
            yield name, data


def read(path: Path) -> list[tuple[str, bytes]]:
    """Return the files of an archive."""
    with zipfile.ZipFile(path) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist() if not info.is_dir()]


def write(path: Path, files: Files) -> None:
    """Write an archive: the same files give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data, zipfile.ZIP_DEFLATED, 9)


def loaded() -> set[str]:
    """Do what a learner does first, and return the files that were loaded for it: a run that is drawn and checked, and
    one that stands still."""
    from kernel import begin  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    begin()
    from drawing import draw
    from lib import Model, PuzzleError, check, goal, hint, predict, review, simulate
    from lib.suite.course.solutions import reference
    from lib.suite.submissions.load import load_function

    for function in (check, hint, predict, review):
        function.__module__  # noqa: B018 - names of lib are imported when they are first asked for

    async def nobody_sends(model: Model) -> None:
        await model.receive(0)

    goal(FIRST)
    models = simulate(load_function(reference(FIRST), FIRST), puzzle=FIRST)
    draw(models)._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    Model.check(models, puzzle=FIRST)
    with suppress(PuzzleError):
        simulate(nobody_sends, ranks=2)
    return {str(getattr(module, "__file__", "")) for module in [*sys.modules.values()]}


def main(out: Path, site: str) -> None:
    """Compile the archives of the folder `out`."""
    archive, site = out / "puzzles.zip", f"/{site.lstrip('/')}"  # it begins with two of them
    sources = read(archive)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(site)
    invalidate_caches()
    files = loaded()
    place = next(path for path in sys.path if path.endswith(".zip"))
    write(archive, package(sources, site, files))
    stdlib = out / "pyodide" / "python_stdlib.zip"
    write(stdlib, library(read(stdlib), place, files))
