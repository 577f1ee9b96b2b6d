"""Operations in words, as reviews, comparisons and pictures name them; and the shape of an answer about a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lib.errors import wording
from lib.errors.wording import numbered
from lib.trace.event import Event
from lib.trace.trace import ModelLike, Trace, absent, trace_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, MESSAGES, OPERATIONS


class Answer(ABC):
    """The answer to a question about a run: a sentence, lines below it, and what is said at the end.

    Printed it is all of that; notebooks show it as a picture.
    """

    __slots__ = ()

    @abstractmethod
    def head(self) -> str:
        """Answer in a sentence or two."""

    def lines(self) -> Iterable[str]:
        """Give the lines of the answer one by one, without indent."""
        return ()

    def ends(self) -> Iterable[str]:
        """Say what there is to say below the lines."""
        return ()

    def text(self) -> str:
        """Say all of it in words."""
        return "\n".join([self.head(), *(f"  {line}" for line in self.lines()), *self.ends()])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:  # a notebook or a console that draws nothing shows words, and not a whole Trace
        return self.text()


def asked(models: Trace | Sequence[ModelLike], question: str) -> Trace | None:
    """Return the Trace that a question is about; None where there is no run, which is said."""
    if (missing := absent(models)) is not None:
        print(f"{missing}.")
        return None
    return trace_of(models, f"{question} takes the Models that simulate returned, or a Trace")


# The same few sets are said of every event of a run.
ranges, _named = lru_cache(maxsize=4096)(wording.ranges), lru_cache(maxsize=4096)(numbered)


def operation(event: Event, *others: Event) -> str:
    """Name an operation in a sentence, or several of a kind: "backward of layers 1, 2 (batches 0-3)", "the message to
    rank 2"."""
    if event.op in MESSAGES:
        side = "to" if event.op == "pass_to" else "from"
        return f"the message {side} {'any rank' if event.peer is None else f'rank {event.peer}'}"
    words, row, every = spoken(event.op), OPERATIONS.get(event.op), (event, *others)
    if event.layer is not None and (row is None or row.about == "call"):
        words += f" of {numbered('layer', frozenset[int]().union(*map(layers_of, every)))}"
    if row is not None and row.has_batches:
        words += f" ({numbered('batch', frozenset[int]().union(*(one.batches for one in every)))})"
    return words


def layers_of(event: Event) -> frozenset[int]:
    """Return the layers that an operation is about: one, or those of a bucket."""
    bucket = event.op in COLLECTIVES and COLLECTIVES[event.op].bucket
    return frozenset(event.arg if bucket else () if event.layer is None else (event.layer,))


def operations(event: Event) -> str:
    """Name operations like this one together: "backward", "all-gather", "messages"."""
    return "messages" if event.op in MESSAGES else spoken(event.op)


def spoken(op: str) -> str:
    """Name an operation as pictures do: "all-gather", "send", "load weights"."""
    row = COLLECTIVES.get(op) or OPERATIONS.get(op)
    return op.replace("_", " ") if row is None else row.title


def event_words(event: Event, ranks: int) -> str:
    """Label an operation: "forward, layer 3, batches 0-3". `ranks` is the size of the world."""
    parts = [spoken(event.op)]
    if event.peer is not None:
        parts[0] += f" {'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    if event.layer is not None and event.layer >= 0:  # the gradient of the data has no layer to come from
        parts.append(_named("layer", layers_of(event)))
    if event.batches:
        parts.append(_named("batch", event.batches))
    if event.op in LOCAL and OPERATIONS[event.op].says == "shard" and len(event.arg) > 1 and event.arg[1] > 1:
        parts.append(f"{'columns' if event.arg[2:] else 'shard'} {event.arg[0]} of {event.arg[1]}")
    if event.op in COLLECTIVES:
        parts.append("all ranks" if len(event.group) == ranks else f"ranks {ranges(frozenset(event.group))}")
    return ", ".join(parts)
