"""Advice: a fix, or a line that a student is to find; and the causes that look for one, each for its kind of fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lib.errors.exceptions import Fact

if TYPE_CHECKING:
    from lib.simulator.recorder import Recorder as Running
else:  # the simulator stands above
    Running = Any


class Line(NamedTuple):
    """A fix that a student is to find: the message names the idea, and `fix()` shows the line."""

    idea: str
    fix: str


Advice = str | Line
Cause = Callable[[Any, Any], Advice | None]
C = TypeVar("C", bound=Cause)
_CAUSES: dict[Any, Cause] = {}


def line(program: Running | None, asked: str, idea: str, fix: str) -> Advice:
    """Return a fix that is the answer to some puzzle: shown to a student who has solved that one, and is at another."""
    asks = None if program is None else program.world.asks
    return fix if asks is not None and asked not in asks else Line(idea, fix)


def because(rule: Callable[..., Fact]) -> Callable[[C], C]:
    """Have a function look for the likely reason why a rule is broken: in the fact, and in the program of the rank."""

    def register(cause: C) -> C:
        _CAUSES[rule] = cause
        return cause

    return register


def likely_cause(fact: Fact, program: Running | None) -> Advice | None:
    """Return the likely reason for a broken rule, None where nothing tells it."""
    cause = _CAUSES.get(type(fact))
    return None if cause is None else cause(fact, program)
