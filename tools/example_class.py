"""A class that nobody attended: notebooks as a learning platform gives them back, to try `puzzles grade` on.

Everybody is called Example. What they hand in stands in example_class.toml and is made of our own solutions. The same
bytes every time.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any, Final

from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.suite.course.exports import read_notebook
from lib.suite.course.solutions import FOLDER, answer
from lib.suite.submissions.locations import home, notebook_in

ASKED: Final = ("ddp", "fsdp", "gpipe")  # the puzzles of the exercise
_CLASS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
STUDENTS: Final[dict[str, list[dict[str, Any]]]] = _CLASS["students"]  # who there is, and the files of each


def write_class(folder: Path, number: int = 0) -> list[Path]:
    """Write a folder for each student into `folder`, named as Moodle names them, and return the files.

    A larger class, of so many (`number`), has everybody several times, with other comments in the code, and beside the
    folders a roster, which knows of one more student: Nobody, who hands in nothing.
    """
    made: dict[Path, str] = {}
    rows = ["id,name"]
    for place in range(number or len(STUDENTS)):
        student, files = [*STUDENTS.items()][place % len(STUDENTS)]
        again = place // len(STUDENTS)
        name, its_id = f"{student} Example{f' {again + 1}' if again else ''}", 1001 + place
        rows.append(f"{its_id},{name}")
        for file in files:
            puzzle, code = file["puzzle"], _code(**file)
            code += f"\n# {name}" if again and code else ""
            called = file.get("name", "{stem}.ipynb").format(stem=PUZZLES[puzzle].stem)
            text = code if called.endswith(".py") else _handed_in(puzzle, code, file.get("hints", 0))
            path = folder / f"{name}_{its_id}_assignsubmission_file_" / called
            made[path] = text[: len(text) // 2] if file.get("cut") else text
    if number:
        made[folder / "roster.csv"] = "\n".join([*rows, f"{1001 + number},Nobody Example", ""])
    for path, text in made.items():
        write_whole(ready(path), text)
    return list(made)


def _handed_in(puzzle: str, code: str, hints: int) -> str:
    """A student's notebook, without outputs, with a code in its gap, or in place of the function."""
    notebook = read_notebook(notebook_in(home() / "puzzles", puzzle))
    stub = f'    raise NotSolved("{puzzle}")'
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace(f'hint("{puzzle}", 0)', f'hint("{puzzle}", {hints})')
            if stub in source and code:
                whole = code.startswith("from ")
                source = code if whole else source.replace(stub, textwrap.indent(code, "    "))
            cell |= {"outputs": [], "source": source.splitlines(keepends=True)}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _code(puzzle: str, way: str = "", change: str = "", code: str | None = None, **_: object) -> str:
    """The code of one file. That of another way is the whole cell, and begins with an import."""
    if code is None and way:
        text = (home() / "solutions" / FOLDER / f"{way}.py").read_text("utf-8")
        code = text[text.index('"""', 3) + 3 :].lstrip()  # it begins with its docstring
    elif code is None:
        code = answer(puzzle)
    for pattern, replacement in _CLASS["changes"].get(change, ()):
        code = re.sub(pattern, replacement.format(**PUZZLES[puzzle].size._asdict()), code, flags=re.MULTILINE)
    return code
