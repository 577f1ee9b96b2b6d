"""Operations in words, as reviews, comparisons and pictures name them."""

from __future__ import annotations

from functools import lru_cache

from lib.errors import wording
from lib.errors.wording import numbered, plural
from lib.trace.event import Event
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, MESSAGES, OPERATIONS, READS

__all__ = ["event_words", "layers_of", "operation", "operations", "ranges", "spoken"]


@lru_cache(maxsize=4096)
def ranges(items: frozenset[int]) -> str:
    """`wording.ranges`, remembered: the same few sets are said of every event."""
    return wording.ranges(items)


def operation(event: Event) -> str:
    """An operation in a sentence: "backward of layer 1 (batches 0-3)", "the message to rank 2"."""
    if event.op in MESSAGES:
        side = "to" if event.op == "pass_to" else "from"
        return f"the message {side} {'any rank' if event.peer is None else f'rank {event.peer}'}"
    words, row = spoken(event.op), OPERATIONS.get(event.op)
    if event.layer is not None and (row is None or row.about == "call"):
        words += f" of {_layers(event)}"
    if row is not None and (row.per_batch or event.op in READS):
        words += f" ({numbered('batch', event.batches)})"
    return words


def _layers(event: Event) -> str:
    """The layer of an operation, or those of a bucket."""
    return numbered("layer", layers_of(event))


def layers_of(event: Event) -> frozenset[int]:
    """The layers that an operation is about: one, or those of a bucket."""
    return frozenset(event.arg if _is_bucket(event) else () if event.layer is None else (event.layer,))


def _is_bucket(event: Event) -> bool:
    return event.op in COLLECTIVES and COLLECTIVES[event.op].bucket


def operations(event: Event) -> str:
    """What operations like this one are called together: "backward", "all-gather", "messages"."""
    return "messages" if event.op in MESSAGES else spoken(event.op)


def spoken(op: str) -> str:
    """What pictures call an operation: "all-gather", "send", "load weights"."""
    row = COLLECTIVES.get(op) or OPERATIONS.get(op)
    return op.replace("_", " ") if row is None else row.title


def event_words(event: Event, ranks: int) -> str:
    """An operation as a label: "forward, layer 3, batches 0-3". `ranks` is the size of the world."""
    parts = [spoken(event.op)]
    if event.peer is not None:
        parts[0] += f" {'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    if event.layer is not None and event.layer >= 0:  # the gradient of the data has no layer to come from
        parts.append(_layers(event))
    if event.batches:
        parts.append(f"{plural('batch', len(event.batches))} {ranges(event.batches)}")
    if event.op in LOCAL and OPERATIONS[event.op].says == "shard" and len(event.arg) > 1 and event.arg[1] > 1:
        parts.append(f"{'columns' if event.arg[2:] else 'shard'} {event.arg[0]} of {event.arg[1]}")
    if event.op in COLLECTIVES:
        parts.append("all ranks" if len(event.group) == ranks else f"ranks {ranges(frozenset(event.group))}")
    return ", ".join(parts)
