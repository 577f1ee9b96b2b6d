"""What holds for all tests: nobody's own progress and notebooks are read or written, each run tries the same examples,
and what takes long (`@pytest.mark.thorough`) is left to `make test-all`."""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.support.profiles import THOROUGH

os.environ["PUZZLES_PROGRESS"] = "off"  # here and not in a fixture: for modules that run something when imported, too
os.environ.pop("PUZZLES_GRADING", None)  # in most notebooks of tests a stub is no error
_copies = tempfile.TemporaryDirectory(prefix="my_puzzles")  # which goes with the last that knows its name
os.environ["PUZZLES_FOLDER"] = _copies.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes long, but for somebody who asks for it: TESTS=thorough."""
    if THOROUGH:
        return
    long = [item for item in items if item.get_closest_marker("thorough")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
