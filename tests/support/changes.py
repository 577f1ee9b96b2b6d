"""Traces that are not as their run was: a Trace does not change, so each is another one."""

from dataclasses import replace
from typing import Any

from lib import Trace
from lib.trace.event import Program

__all__ = ["changed"]


def changed(trace: Trace, rank: int, **parts: Any) -> Trace:
    """A Trace in which a rank has other events, values or moves."""
    programs = [*trace.programs]
    own = programs[rank]
    programs[rank] = Program(rank, **{"events": own.events, "values": own.values, "moves": own.moves} | parts)
    return replace(trace, programs=programs)
