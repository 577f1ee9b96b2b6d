"""The likely reason for a broken rule: what the rank did before says more than the values that it ended up with.

A rule raises a fact (what is wrong, with which values); the programs of the ranks are searched for what a student
probably meant. Nothing is decided here: an error is an error, whatever advice there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib.diagnosis.causes import given, stores, sums, together
from lib.diagnosis.provenance import Line, likely_cause
from lib.errors.exceptions import PuzzleError

if TYPE_CHECKING:
    from lib.diagnosis.provenance import Running

__all__ = ["advise"]

CHAPTERS = (given, stores, sums, together)
"""The chapters of causes: once they are imported, their functions are found by the fact that they are for."""


def advise(error: PuzzleError, program: Running | None = None) -> None:
    """Put the likely reason into the fix of an error that has a fact, once, where anything tells it."""
    if error.fact is None or error.advised:
        return
    error.advised = True
    found = likely_cause(error.fact, program)
    if isinstance(found, Line):
        error.idea, error.fix = found
    elif found is not None:
        error.fix = found
