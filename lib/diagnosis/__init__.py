"""Explanations of what went wrong: the likely cause and the likely fix, as in `diagnosis.not_callable(...)`.

Nothing here is needed by a run that goes well, so it is imported when the first of it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.diagnosis.advice import Running
    from lib.diagnosis.deadlock import *  # noqa: F403
    from lib.diagnosis.groups import *  # noqa: F403
    from lib.diagnosis.python_errors import *  # noqa: F403
    from lib.errors.exceptions import PuzzleError
else:

    def __getattr__(name: str) -> Any:
        for home in ("python_errors", "groups", "deadlock"):
            if name in (module := import_module(f"lib.diagnosis.{home}")).__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def advise(error: PuzzleError, program: Running | None = None) -> None:
    """Put the likely reason into the fix of an error that has a fact, once, where anything tells it: what the rank did
    before says more than the values that it ended up with.

    Nothing is decided here: an error is an error, whatever advice there is.
    """
    if error.fact is None or error.advised:
        return
    from lib.diagnosis.advice import Line

    error.advised = True
    found = error.fact.likely_fix(program)
    if isinstance(found, Line):
        error.idea, error.fix = found
    elif found is not None:
        error.fix = found
