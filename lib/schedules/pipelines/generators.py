"""Pipelines as orders: one generator for each. Every rank has one stage, and every microbatch is one batch."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from lib.analysis.bounds.optima import Optimum
from lib.schedules.pipelines.action import Action, Order, parse
from lib.schedules.pipelines.program import program_of
from lib.simulator.model import Model

__all__ = ["gpipe", "one_f_one_b", "witness"]


def gpipe(ranks: int, microbatches: int) -> Order:
    """All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965)."""
    return tuple(_in_turn(rank, microbatches, ahead=microbatches) for rank in range(ranks))


def one_f_one_b(ranks: int, microbatches: int) -> Order:
    """As many forwards as there are stages from here to the end, then one backward and one forward in turn: a rank has
    no more microbatches open than that (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)."""
    return tuple(_in_turn(rank, microbatches, ahead=ranks - rank) for rank in range(ranks))


def _in_turn(stage: int, microbatches: int, ahead: int) -> tuple[Action, ...]:
    """So many forwards ahead, then backwards and forwards in turn, then the rest."""
    found = [Action(stage, "F", m) for m in range(min(ahead, microbatches))]
    for m in range(microbatches):
        found.append(Action(stage, "B", m))
        if m + ahead < microbatches:
            found.append(Action(stage, "F", m + ahead))
    return tuple(found)


def witness(optimum: Optimum) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that reaches a proved optimum: each of its stages is one layer."""
    return program_of(tuple(map(parse, optimum.orders)), overlap=optimum.size.overlap)
