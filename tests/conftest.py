"""What holds for all tests: nobody's own progress is read or written."""

from __future__ import annotations

import os

os.environ["PUZZLES_PROGRESS"] = "off"  # here and not in a fixture: for modules that run something when imported, too
