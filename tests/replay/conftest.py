"""A replay leaves nothing behind: every test here has its own temporary folder, and looks for what is left."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def children() -> set[str]:
    """The child processes of this one, as far as the system tells."""
    found: set[str] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        found |= set(task.read_text().split())
    return found


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, no temporary file, no open file."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    before, files = children(), _open_files()
    yield
    assert children() <= before
    assert list(folder.iterdir()) == []
    assert _open_files() <= files + 2  # torch keeps a pipe of its own


def _open_files() -> int:
    """How many there are, besides those of NVIDIA's driver, which stay open once torch has looked for GPUs."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return 0
    return sum(not os.path.realpath(folder / name).startswith("/dev/nvidia") for name in os.listdir(folder))


@pytest.fixture
def cache_of_torch(nothing_is_left: None) -> Iterator[None]:
    """torch.optim makes an empty folder for torch's compiler when it is first used."""
    yield
    for path in Path(tempfile.gettempdir()).glob("torchinductor_*"):
        shutil.rmtree(path)
