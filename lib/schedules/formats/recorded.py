"""Recordings as orders and orders as recordings: what words mean in our tables, and which messages follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lib.analysis.recordings.recording import Message, Recording, Span
from lib.schedules.pipelines.action import KINDS, PAIR, Action, Order, parse, parts_of

__all__ = ["OPERATION", "action_of", "label_of", "messages_between", "order_of_recording"]

OPERATION: Final = {
    "F": "forward",
    "B": "backward",
    "I": "backward_input",
    "W": "backward_weight",
    "UPDATE": "update",
    "UNSHARD": "allgather",
    "REDUCE_GRAD": "scatterreduce",
    **{kind: "pass_to" if kind.startswith("SEND") else "receive" for kind, row in KINDS.items() if row.towards},
    **{kind: "wait" for kind in KINDS if kind.startswith("WAIT") or kind == "RESHARD"},
    PAIR: "",
}
"""The operation that each kind of action is, by its name in our tables. A pair is two."""


def action_of(word: str) -> Action | None:
    """The action that a word stands for; None where it is no such word."""
    try:
        return parse([word])[0]
    except ValueError:
        return None


def label_of(action: Action) -> str:
    """What is written on the box of an action: its microbatch."""
    return "+".join(str(part.microbatch) for part in action.parts or (action,) if part.microbatch >= 0)


def messages_between(spans: Iterable[Span]) -> tuple[Message, ...]:
    """What passes from rank to rank: from the end of each pass to the beginning of the one that uses what it made."""
    passes: dict[tuple[str, int, int], Span] = {}
    for span in spans:
        action = action_of(span.word) if span.word else None
        for part in () if action is None else action.parts or (action,):
            if KINDS[part.kind].computes and KINDS[part.kind].needs:
                passes[KINDS[part.kind].needs[-1], part.stage, part.microbatch] = span
    found: list[Message] = []
    for (way, stage, microbatch), span in passes.items():
        after = passes.get((way, stage + KINDS[f"SEND_{way}"].towards, microbatch))
        if after is not None and after.rank != span.rank:
            found.append(Message(span.rank, span.end, after.rank, after.start))
    return tuple(sorted(found))


def order_of_recording(recording: Recording) -> Order:
    """The order of what the ranks compute, as a recording has it. ValueError where it has none."""
    if not recording.has_order:
        raise ValueError(f"{recording.name} does not say which microbatch passes which stage, so it has no order")
    return tuple(parse(recording.passes(rank)) for rank in range(recording.ranks))


def words(actions: Sequence[Action]) -> list[str]:
    """The words of what a rank computes."""
    return [str(action) for action in parts_of(actions) if KINDS[action.kind].computes]
