"""Step through a run: one page that scrubs through simulated time, in a notebook or as a file.

`step_through(models)` shows one run, `step_through(one, other)` two on one time axis. The page is `template.html` with
its styles, its scripts and the run as JSON inside: it needs no server and no network.
"""

from __future__ import annotations

from drawing.stepper.view import View, step_through

__all__ = ["View", "step_through"]
