"""What a rank waits for, in words, and what would let it go on."""

from __future__ import annotations

from typing import Any

from lib.errors.wording import listed, these
from lib.values.collectives import COLLECTIVES

__all__ = ["describe", "wants"]


def describe(subject: Any, rank: int, whom: str | None = None) -> str:
    """What a rank waits for. `whom` is what to call the other rank of a message, where that is not its number."""
    match subject.kind:
        case "collective":
            call, group = subject.member(rank), subject.group
            ranks = zip(group.communicator.ranks, subject.members, strict=True)
            came, left = [r for r, member in ranks if member is not None], subject.awaits(rank)
            whose = f" of group {listed(group.ranks)}" if group.partial else ""
            called = f"{COLLECTIVES[call.op].title} #{subject.number + 1}{whose}, layer {call.layer}"
            return f"waits in {called}: {these('rank', came)} came, {these('rank', left)} did not"
        case "pass":
            whom = whom or f"rank {subject.event.peer}"
            return f"waits for room to pass to {whom}, which has not received the last message yet"
        case "receive":
            whom = whom or ("any rank" if subject.source is None else f"rank {subject.source}")
            return f"waits to receive from {whom}"
        case "read":
            return f"waits for the reader of its process, for {these('batch', subject.batches)}"
        case _:
            return f"waits for {subject.thing}"


def wants(subject: Any, rank: int) -> str:
    """What would let a rank go on."""
    match subject.kind:
        case "collective":
            call = subject.member(rank)
            return f"{these('rank', subject.awaits(rank))} to call model.{call.op}(..., {call.layer}) as well"
        case "pass":
            return f"rank {subject.event.peer} to call model.receive({rank})"
        case "receive":
            sender = "a rank" if subject.source is None else f"rank {subject.source}"
            return f"{sender} to call model.pass_to({rank}, ...)"
        case "read":
            return f"the reader of rank {rank}'s process to read {these('batch', subject.batches)}"
        case _:
            return f"another task to end what rank {rank} waits for: {subject.thing}"
