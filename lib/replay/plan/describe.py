"""The words for what happened to a rank: in which operation it was, and that it failed, or did not get on."""

from __future__ import annotations

from collections.abc import Sequence

from lib.replay.errors import RankRaised, RankStalled
from lib.replay.plan.plan import Plan

__all__ = ["describe_event", "raised", "stalled"]

BEFORE_THE_START = "the start, before it had met the others"


def describe_event(plan: Plan, rank: int, index: int) -> str:
    """One operation in words: "event 12, allreduce of layer 1 with ranks 0, 1, 2, 3 (ddp.py, line 7: ...)"."""
    events = plan.rank_plans[rank].program.events
    if not 0 <= index < len(events):
        return "the start" if index < 0 else "the end"
    event = events[index]
    shown = events[event.arg[0]] if event.op == "wait" else event
    words = f"event {index}, " + ("wait for " if event.op == "wait" else "") + shown.op
    if shown.layer is not None and shown.op != "get_activation":
        words += f" of layer {shown.layer}"
    if shown.group:
        words += f" with ranks {', '.join(map(str, shown.group))}"
    if shown.peer is not None:
        words += f" {'to' if shown.op == 'pass_to' else 'from'} rank {shown.peer}"
    place = plan.trace.place(event)
    return f"{words} ({place})" if place is not None else words


def raised(plan: Plan, rank: int, index: int, error: str) -> RankRaised:
    """An operation failed on a rank with this error."""
    operation = describe_event(plan, rank, index)
    return RankRaised(f"rank {rank} failed in {operation}: {error}", rank=rank, operation=operation)


def stalled(
    plan: Plan, ranks: Sequence[int], index: int, timeout: float, what: str, started: bool = True
) -> RankStalled:
    """The first of these ranks, in event `index`, has not moved for the whole timeout, the others neither. `what` is
    what else there is to say."""
    rank, *others = ranks
    operation = describe_event(plan, rank, index) if started else BEFORE_THE_START
    neither = f"; ranks {', '.join(map(str, others))} neither" if others else ""
    words = f"rank {rank} did not move for {timeout:g} s, in {operation}{neither}; {what}"
    return RankStalled(words, rank=rank, operation=operation)
