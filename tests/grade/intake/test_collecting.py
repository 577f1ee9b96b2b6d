"""Taking in folders and archives: every file is found, and nothing stops the rest."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from lib.grade.intake.choosing import chosen
from lib.grade.intake.collecting import collect
from lib.submissions.source import Source

FSDP = "async def fsdp(model):\n    return model\n"


def notebook(*cells: str) -> str:
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def zipped(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


TREE = {"ann/05_fsdp.ipynb": notebook(FSDP), "ann/helpers.py": "", "bob/fsdp.py": "import helpers\n" + FSDP}


def test_a_folder_and_a_zip_of_it_are_the_same(tmp_path: Path) -> None:
    folder = collect([made(tmp_path / "hw", TREE)])
    packed = collect([zipped(tmp_path / "hw.zip", TREE)])
    assert [one.student for one in folder.submissions] == ["ann", "bob"]
    for one, other in zip(folder.submissions, packed.submissions, strict=True):
        assert (one.student, [file.parts for file in one.files]) == (
            other.student,
            [file.parts for file in other.files],
        )
        assert [file.digest() for file in one.files] == [file.digest() for file in other.files]


def test_one_puzzle_is_chosen_and_brings_its_modules(tmp_path: Path) -> None:
    files = {"bob/fsdp.py": "import helpers\n" + FSDP, "bob/helpers.py": "import more", "bob/more.py": "x = 1"}
    (bob,) = collect([made(tmp_path / "hw", {**files, "bob/other.py": "y = 1"})]).submissions
    found = chosen(bob, ["fsdp", "ddp"])
    assert list(found.of) == ["fsdp"]
    file, source = found.of["fsdp"]
    assert file.name == "hw/bob/fsdp.py"
    assert source == Source((("fsdp.py", files["bob/fsdp.py"]),), (("helpers.py", "import more"), ("more.py", "x = 1")))
