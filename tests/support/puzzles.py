"""The puzzles by the kind of their answer."""

from __future__ import annotations

from lib import PUZZLES

__all__ = ["FUNCTIONS", "SCHEDULES"]

SCHEDULES = [puzzle for puzzle, record in PUZZLES.items() if not record.is_function]
FUNCTIONS = [puzzle for puzzle, record in PUZZLES.items() if record.is_function]
