"""Advice: what to do, or a line that a student is to find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.errors.exceptions import Words

if TYPE_CHECKING:
    from lib.simulator.recorder import Recorder as Running
else:  # the simulator stands above
    Running = Any


class Line(NamedTuple):
    """A fix that a student is to find: the message names the idea, and `fix()` shows the line."""

    idea: str
    fix: str


Advice = str | Line
Told = Iterator[Words | Advice | None]
"""What a fact tells: its words, and then what to do for each likely reason that a program has."""


def line(program: Running | None, asked: str, idea: str, fix: str) -> Advice:
    """Return a fix that is the answer to some puzzle: shown to a student who has solved that one, and is at another."""
    asks = None if program is None else program.world.asks
    return fix if asks is not None and asked not in asks else Line(idea, fix)
