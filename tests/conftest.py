"""What holds for all tests: nobody's own progress is read or written, and hypothesis draws the same examples in each
run and keeps no database."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

os.environ["PUZZLES_PROGRESS"] = "off"  # here and not in a fixture: for modules that run something when imported, too

settings.register_profile(
    "same every time",
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same every time")
