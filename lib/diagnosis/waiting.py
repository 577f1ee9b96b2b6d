"""What a rank waits for, in words, and what would let it go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib.errors.wording import listed, these
from lib.values.collectives import COLLECTIVES

__all__ = ["describe", "wants"]


def describe(subject: Any, rank: int, whom: str | None = None) -> str:
    """What a rank waits for. `whom` is what to call the other rank of a message, where that is not its number."""
    return _DESCRIBE[subject.kind](subject, rank, whom)


def wants(subject: Any, rank: int) -> str:
    """What would let a rank go on."""
    return _WANTS[subject.kind](subject, rank)


def _joins(pending: Any, rank: int, whom: str | None) -> str:
    call, group = pending.member(rank), pending.group
    joined = [r for r, member in zip(group.communicator.ranks, pending.members, strict=True) if member is not None]
    whose = f" of group {listed(group.ranks)}" if group.partial else ""
    return (
        f"waits in {COLLECTIVES[call.op].title} #{pending.number + 1}{whose}, layer {call.layer}: "
        f"{these('rank', joined)} came, {these('rank', pending.awaits(rank))} did not"
    )


def _passes(message: Any, rank: int, whom: str | None) -> str:
    whom = f"rank {message.event.peer}" if whom is None else whom
    return f"waits for room to pass to {whom}, which has not received the last message yet"


def _receives(receive: Any, rank: int, whom: str | None) -> str:
    if whom is None:
        whom = "any rank" if receive.source is None else f"rank {receive.source}"
    return f"waits to receive from {whom}"


def _others_to_join(pending: Any, rank: int) -> str:
    call = pending.member(rank)
    return f"{these('rank', pending.awaits(rank))} to call model.{call.op}(..., {call.layer}) as well"


def _a_sender(receive: Any, rank: int) -> str:
    whose = "a rank" if receive.source is None else f"rank {receive.source}"
    return f"{whose} to call model.pass_to({rank}, ...)"


def _asks(asked: Any, rank: int, whom: str | None) -> str:
    return f"waits for the reader of its process, for {these('batch', asked.batches)}"


def _a_reader(asked: Any, rank: int) -> str:
    return f"the reader of rank {rank}'s process to read {these('batch', asked.batches)}"


def _stays(elsewhere: Any, rank: int, whom: str | None) -> str:
    return f"waits for {elsewhere.thing}"


def _a_receiver(message: Any, rank: int) -> str:
    return f"rank {message.event.peer} to call model.receive({rank})"


def _somebody(elsewhere: Any, rank: int) -> str:
    return f"another task to end what rank {rank} waits for: {elsewhere.thing}"


_DESCRIBE: dict[str, Callable[[Any, int, str | None], str]] = {
    "collective": _joins,
    "pass": _passes,
    "receive": _receives,
    "read": _asks,
    "elsewhere": _stays,
}
_WANTS: dict[str, Callable[[Any, int], str]] = {
    "collective": _others_to_join,
    "pass": _a_receiver,
    "receive": _a_sender,
    "read": _a_reader,
    "elsewhere": _somebody,
}
