"""Tests of reviews are the same every time: hypothesis draws the same examples in each run, and keeps no database."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "review",
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("review")
