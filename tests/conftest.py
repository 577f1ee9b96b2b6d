"""What holds for all tests: nobody's own progress and notebooks are read or written, and hypothesis draws the same
examples in each run and keeps no database."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

os.environ["PUZZLES_PROGRESS"] = "off"  # here and not in a fixture: for modules that run something when imported, too
os.environ.pop("PUZZLES_GRADING", None)  # in most notebooks of tests a stub is no error
_copies = tempfile.TemporaryDirectory(prefix="my_puzzles")  # which goes with the last that knows its name
os.environ["PUZZLES_FOLDER"] = _copies.name

settings.register_profile(
    "same every time",
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same every time")
