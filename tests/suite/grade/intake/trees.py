"""Folders, zips and tars of submissions, for tests."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

FSDP = "async def fsdp(model):\n    return model\n"
DDP = "async def ddp(model):\n    return model\n"


def stub(puzzle: str) -> str:
    return (
        f"async def {puzzle}(model):\n    # --- your code (about 3 lines) ---\n"
        f'    raise NotSolved("{puzzle}")\n    # --- end of your code ---\n'
    )


def notebook(*cells: str) -> str:
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def in_bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def folder(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A folder with files in it, made in the order that they have."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(in_bytes(content))
    return root


def zip_bytes(files: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, in_bytes(content))
    return made.getvalue()


def tar_bytes(files: Mapping[str, str | bytes], mode: str = "w:gz", form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=form) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(in_bytes(content))
            archive.addfile(member, io.BytesIO(in_bytes(content)))
    return made.getvalue()
