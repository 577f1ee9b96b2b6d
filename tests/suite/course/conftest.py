"""A progress file of its own for each test."""

from pathlib import Path

import pytest

from lib.suite.course import progress


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where progress is recorded in this test: a file that does not exist yet, in a folder that does not either."""
    path = tmp_path / "state" / "progress.json"
    monkeypatch.setenv("PUZZLES_PROGRESS", str(path))
    monkeypatch.setattr(progress, "_said", set[str]())
    return path
