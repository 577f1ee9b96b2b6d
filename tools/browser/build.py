"""Makes the folder: the notebooks, Python and the package for it, and the page around them. The same bytes every time.

index.html app.js style.css worker.js sw.js   the page; sw.js keeps all of it for the time without a network
nb/03_ddp.json                                the notebooks, as `puzzles build` makes them, with their outputs
puzzles.bin                                   the package, as the export for Colab carries it, and our kernel
pyodide/                                      Python
*.whl                                         the same package, which a notebook that is downloaded installs elsewhere
licences.txt                                  of what others wrote
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import inspect
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from lib import Model
from lib.files import ROOT, zipped
from lib.suite.course.exports import chosen, package, pinned, read_notebook
from lib.suite.submissions.gap import BuildError
from lib.suite.submissions.locations import notebook_in
from lib.values.operations import signatures
from tools.browser import chalk_standin, compiled, kernel
from tools.notebooks.shared_cells import reading_order

PAGE: Final = Path(__file__).with_name("page")
MODULES: Final = PAGE / "node_modules"
PYODIDE: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
PARTS: Final = ("style.css", "worker.js")
"""What is copied as it is."""
FIRST: Final = "index"
"""The page of a folder of chosen notebooks."""
ARCHIVE: Final = "puzzles.bin"
"""A line with files and their sizes, then their bytes, packed as a whole with gzip: a sixth smaller than a zip."""
LIMIT: Final = 20
"""Seconds after which a cell is stopped."""
NOT_SHIPPED: Final = ("axe-core", "ws", "@types/")
"""Packages of node's that only tests and node itself use; esbuild has no file that is called LICENSE."""
HASH: Final = re.compile(r"sha256-[A-Za-z0-9+/=]{44}")
GALLERY: Final = ("lib/analysis/bounds/best_orders.json", "lib/schedules/gallery.py")
"""What the notebook of the gallery loads, and no other."""
NOTE: Final = """\
What others wrote, and its licences
===================================

Pyodide {pyodide} (in pyodide/) is under the Mozilla Public License 2.0, which stands at the end; its source is at
https://github.com/pyodide/pyodide/tree/{pyodide}. It has in it CPython {python}, under the licence of the Python
Software Foundation, https://docs.python.org/3/license.html. Of its standard library some modules are compiled here, and
nothing else was changed.
"""


def build(folder: Path, names: Sequence[str] = (), text: Path | None = None) -> list[Path]:
    """Make the folder with all notebooks of the suite, or with those called by a puzzle's id, which then has a first
    page with the Markdown of the file `text` on it. Returns its files.

    Raises BuildError where node's packages are missing, for names that are none, and for a folder of something else.
    """
    if not (MODULES / ".bin" / "esbuild").exists():
        raise BuildError(
            f"node's packages are missing: run `npm ci --ignore-scripts` in {PAGE}, as `make browser` does"
        )
    if folder.exists() and any(folder.iterdir()) and not (folder / "sw.js").is_file():
        raise BuildError(f"{folder} holds something else; say a folder that is not there yet, or empty")
    made = notebooks(names, text)
    folder = folder.resolve()  # node runs in the folder of the page
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        out = Path(scratch, "site")
        (out / "pyodide").mkdir(parents=True)
        for name in PYODIDE:
            shutil.copyfile(MODULES / "pyodide" / name, out / "pyodide" / name)
        compiled.write(out / "puzzles.zip", contents().items())
        _node("compile.mjs", out, compiled.__file__)
        pack(out / "puzzles.zip", out / ARCHIVE)
        (out / "nb").mkdir()
        for stem, notebook in made.items():
            _write(out / "nb" / f"{stem}.json", json.dumps(notebook, separators=(",", ":"), ensure_ascii=False))
        for name in PARTS:
            shutil.copyfile(PAGE / name, out / name)
        _write(out / "index.html", _filled("index.html", hashes=" ".join(f"'{one}'" for one in hashes())))
        _write(out / "licences.txt", licences())
        name, data = wheel()
        (out / name).write_bytes(data)
        bundle(out, {stem: title(notebook) for stem, notebook in made.items()}, Path(scratch))
        _write(out / "sw.js", _filled("sw.js", **version(out)))
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def wheel() -> tuple[str, bytes]:
    """Return the package as a wheel, which pip installs with what it draws with: its name, and the same bytes every
    time. The wheel of `make dist` has the commands, the grader and the notebooks, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    name, number = project["name"].replace("-", "_"), project["version"]
    # What a student's notebook needs of what the whole package depends on.
    needs = [line for line in project["dependencies"] if line.startswith(("chalk-diagrams", "platformdirs"))]
    about = [f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {number}"]
    about += [f"Requires-Python: {project['requires-python']}", *(f"Requires-Dist: {line}" for line in needs)]
    info = f"{name}-{number}.dist-info"
    files = package()
    files[f"{info}/METADATA"] = "\n".join([*about, ""]).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: puzzles\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    return f"{name}-{number}-py3-none-any.whl", zipped(files)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def contents() -> dict[str, bytes]:
    """Return the files that Python imports in the page: what a student needs, and what stands for IPython and chalk."""
    ours = (Path(str(module.__file__)) for module in (kernel, chalk_standin))
    return package(GALLERY) | {path.name: path.read_bytes() for path in ours}


def pack(archive: Path, packed: Path) -> None:
    """Pack an archive anew, as a whole; alike files next to each other make it smaller."""
    files = sorted(compiled.read(archive), key=lambda file: (Path(file[0]).suffix, file[0]))
    head = json.dumps([(name, len(data)) for name, data in files], separators=(",", ":"))
    whole = b"".join((head.encode(), b"\n", *(data for _, data in files)))
    packed.write_bytes(gzip.compress(whole, 9, mtime=0))
    archive.unlink()


def notebooks(names: Sequence[str], text: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the notebooks by the stems of their files, the first page first."""
    if not names:
        paths = [notebook_in(ROOT / "puzzles", name) for name in reading_order()]
        return {path.stem: read_notebook(path) for path in paths}
    found = {path.stem: read_notebook(path) for path in chosen(names)}
    said = "# Puzzles" if text is None else text.read_text("utf-8").rstrip()
    links = "\n".join(f"- [{title(notebook)}]({stem}.ipynb)" for stem, notebook in found.items())
    first: dict[str, Any] = {
        "cells": [{"cell_type": "markdown", "id": FIRST, "metadata": {}, "source": f"{said}\n\n{links}\n"}]
    }
    return {FIRST: {**first, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, **found}


def title(notebook: dict[str, Any]) -> str:
    """Return the first heading of a notebook."""
    texts = ("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    lines = (line for text in texts for line in text.splitlines())
    return next((line[2:].strip() for line in lines if line.startswith("# ")), "Puzzles")


def hashes() -> list[str]:
    """Return the hashes of all scripts in frames of ours, as notebooks have them: a page's frames obey its policy."""
    paths = [*(ROOT / "puzzles").rglob("*.ipynb"), *(ROOT / "solutions").rglob("*.ipynb")]
    return sorted({one for path in paths for one in HASH.findall(path.read_text("utf-8"))})


def methods() -> Iterator[tuple[str, str, str]]:
    """Name what an editor offers after `model.`: a name, how it is called, and what it does."""
    known = signatures()
    for name in (name for name in dir(Model) if not name.startswith("_")):
        member = getattr(Model, name)
        words = inspect.getdoc(member) if callable(member) or isinstance(member, property) else None
        own = str(inspect.signature(member)).replace("'", "") if callable(member) else ""
        call = known.get(name) or f"model.{name}" + re.sub(r"^\((?:self|cls)(?:, )?", "(", own)
        yield name, call, (words or "").partition("\n\n")[0].replace("\n", " ")


def bundle(out: Path, titles: dict[str, str], scratch: Path) -> None:
    """Make app.js of our modules and node's packages, and of what is known when the page is built."""
    known: dict[str, Any] = {
        "NOTEBOOKS": [*titles.items()],
        "METHODS": [*methods()],
        "LIMIT": LIMIT,
        "WHEEL": next(out.glob("*.whl")).name,
        "SETUP_CELL": set_up(),
        "PYTHON": python(out),
    }
    site = scratch / "site.js"
    _write(site, "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in known.items()))
    flags = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--log-level=warning")
    _node("node_modules/.bin/esbuild", "app.js", *flags, f"--alias:site={site}", f"--outfile={out / 'app.js'}")


def python(out: Path) -> dict[str, Any]:
    """Return what the page tells its Python when it starts: the archive, where that goes, and what its memory is called
    once it is ready, which is kept for the same files only."""
    info = _lock()["info"]
    return {
        "lock": {"info": info, "packages": {}},
        "archive": ARCHIVE,
        "site": f"/lib/python{info['python'].rpartition('.')[0]}/site-packages",
        "memory": f"memory-{_digest(out, [ARCHIVE, *(f'pyodide/{name}' for name in PYODIDE)])}",
    }


def _lock() -> dict[str, Any]:
    return json.loads((MODULES / "pyodide" / "pyodide-lock.json").read_text("utf-8"))


def set_up() -> str:
    """Return the set-up cell of a notebook that is downloaded: it installs the package from this site ("$site")."""
    text = (ROOT / "solutions" / "parts" / "setup.py").read_text("utf-8").partition("\n")[2].rstrip("\n")
    return text.replace("$requirements", " ".join(["$site", *pinned(ROOT)]))


def version(out: Path) -> dict[str, str]:
    """Return what sw.js has to know: the files, and a name for just these."""
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file() and on_a_visit(path))
    files = ["./", *(name for name in names if name != "index.html")]
    return {"version": _digest(out, names), "files": json.dumps(files)}


def on_a_visit(path: Path) -> bool:
    """Check that a file is for whoever visits the page, and not only for a notebook that was taken elsewhere."""
    return path.suffix != ".whl"


def _digest(folder: Path, names: Iterable[str]) -> str:
    """A name for files with just these bytes."""
    held = hashlib.sha256(b"".join(hashlib.sha256((folder / name).read_bytes()).digest() for name in names))
    return held.hexdigest()[:12]


def licences() -> str:
    """Return the licences of what is in the folder and was written by others: all that is bundled, and Python."""
    lock = json.loads((PAGE / "package-lock.json").read_text("utf-8"))["packages"]
    parts = [NOTE.format(pyodide=lock["node_modules/pyodide"]["version"], python=_lock()["info"]["python"])]
    for place in filter(None, sorted(lock)):
        name, text = place.removeprefix("node_modules/"), PAGE / place / "LICENSE"
        if text.is_file() and not name.startswith(NOT_SHIPPED):
            parts.append(f"{name} {lock[place]['version']}\n\n{text.read_text('utf-8').strip()}\n")
    parts.append((MODULES / "axe-core" / "LICENSE").read_text("utf-8"))  # the same licence as that of Pyodide
    return f"\n{'-' * 80}\n\n".join(parts)


def _filled(name: str, **words: str) -> str:
    text = (PAGE / name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"{{{{{word}}}}}", value)
    return text


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8", newline="\n")


def _node(program: str, *arguments: str | Path | None) -> None:
    """Run a program of node's in the folder of the page. BuildError with what it says where it fails."""
    try:
        done = subprocess.run(
            ["node", program, *map(str, arguments)], cwd=PAGE, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise BuildError(
            "node is missing, which builds the page: see https://nodejs.org, version 20 or newer"
        ) from None
    if done.returncode:
        raise BuildError(f"node {program} failed: {(done.stderr or done.stdout).strip()[-2000:]}")
