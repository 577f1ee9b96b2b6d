"""What a student needs of this project, as files: the one package that every notebook away from here brings along.

It holds the rooms that a notebook loads, and the references without the prose around them, as `reveal` shows these and
some puzzles build on them. It holds nothing that grades a class, makes notebooks, runs on real hardware or solves a
puzzle.
"""

from __future__ import annotations

import base64
import io
import lzma
import re
import zipfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from lib.files import ROOT
from lib.suite.submissions.locations import home

__all__ = ["ELSEWHERE", "in_text", "package"]

CODE: Final = ("lib", "drawing")
ENDINGS: Final = (".py", ".toml", ".json", ".typed", ".css", ".js", ".html")
ELSEWHERE: Final = (
    "lib/_notebooks/",
    "lib/analysis/bounds/best_orders.",
    "lib/suite/cli/",
    "lib/suite/grade/",
    "lib/suite/isolation/isolation.py",
    "lib/suite/isolation/server.py",
    "lib/suite/isolation/walls.py",
    "lib/suite/notebooks/",
    "lib/processes.py",
    "lib/replay/",
    "lib/schedules/explore.py",
    "lib/schedules/gallery.py",
)
"""How the paths begin of what no student's notebook loads; the orders that are stored there answer puzzles."""
DOORS: Final = ("lib/replay/__init__.py", "lib/replay/errors.py")
"""What is there all the same: it says that the rest is not."""
PROSE: Final = re.compile(r"^# %% \[markdown\].*\n(?:(?!# %%).*\n?)*", re.MULTILINE)
LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file: the same bytes every time."""
PACKER: Final = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""The settings of xz that make text smallest."""
WIDTH: Final = 120


def package() -> dict[str, bytes]:
    """The files by their paths, in order, to be unpacked into a folder from which Python imports."""
    code = (path for folder in CODE for path in _below(ROOT / folder, ROOT))
    found = {name: (ROOT / name).read_bytes() for name in code if name in DOORS or not name.startswith(ELSEWHERE)}
    solutions = home() / "solutions"
    for name in _below(solutions, solutions):
        if name.endswith(".py") and not name.startswith("parts/"):
            text = (solutions / name).read_text("utf-8")
            found[f"lib/_notebooks/solutions/{name}"] = PROSE.sub("", text).encode()
    return found


def in_text(files: Mapping[str, bytes]) -> str:
    """Files as lines of letters and digits, which no editor, form or platform changes: base64 of an xz of a zip."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:  # packed as a whole, which makes it a quarter smaller
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    return _packed(held.getvalue())


@lru_cache(maxsize=1)  # it takes a second, and one package goes into many notebooks
def _packed(data: bytes) -> str:
    text = base64.b64encode(lzma.compress(data, filters=PACKER)).decode()
    return "\n".join(text[place : place + WIDTH] for place in range(0, len(text), WIDTH))


def _below(folder: Path, root: Path) -> Iterable[str]:
    """The paths of the files in a folder, from `root`, without what Python makes of them."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in ENDINGS and "__pycache__" not in path.parts)
    return (path.relative_to(root).as_posix() for path in paths)
