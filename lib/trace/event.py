"""What every rank did, to which values, in which order: events and programs, the plain data inside a Trace; and
operations in words, for messages, reviews and pictures.

A rank's program is in single-assignment form: each event names its input and output values by id, and `moves` say
when a value entered or left a store. Compilers use that form for the same reason: the maker and the users of a value
are found without analysis. Times are in ticks (see `costs`). No student code is needed: a Trace can be saved, checked,
re-timed, drawn and replayed far from the function that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from types import CodeType
from typing import Final

from lib.errors import wording
from lib.errors.exceptions import PuzzleError
from lib.errors.source_lines import GIVEN, Place, resolve
from lib.errors.wording import numbered
from lib.record import record
from lib.values.collectives import COLLECTIVES
from lib.values.operations import LOCAL, MESSAGES, OPERATIONS
from lib.values.values import KINDS, Value

STORES: Final = ("weights", "opt_states", "activations", "grad_activations", "grad_weights")
STORE: Final = dict(zip(KINDS.values(), STORES, strict=True))
"""The store of each kind of value."""
Source = tuple[CodeType, int] | Place | None
NO_BATCHES: Final[frozenset[int]] = frozenset()


@record(frozen=False)
class Event:
    """One operation of one rank.

    `issued` is when it was called, `start` None until a communication has begun (a run that failed leaves some so).
    `arg`: (shard, total) of load_weights, with 1 for columns, and of a shard, with the number of a dim; (dim, low,
    high) of a cut; (root,) of a broadcast; (dim,) of a reduce-scatter; the layers of a bucket; the place of a read in
    its reader's queue; the index of the event that a wait is for. `blocking`: a communication was awaited at once.
    `peer` is the other rank of a message, None while a receive from any rank has none.
    """

    op: str
    layer: int | None
    batches: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    issued: int
    start: int | None
    length: int
    source: Source
    arg: tuple[int, ...] = ()
    group: tuple[int, ...] = ()
    peer: int | None = None
    blocking: bool = False

    def copy(self) -> Event:
        """Return an equal event, several times as fast as `replace` does."""
        return self.at(self.issued, self.start, self.length)

    def at(self, issued: int, start: int | None, length: int) -> Event:
        """Return the same event at another time."""
        return Event(
            self.op, self.layer, self.batches, self.inputs, self.outputs, issued, start, length, self.source, self.arg,
            self.group, self.peer, self.blocking,
        )  # fmt: skip

    @property
    def end(self) -> int | None:
        """Return when it is over, in ticks."""
        return None if self.start is None else self.start + self.length


FIELDS: Final = Event.__match_args__
OP, LAYER, BATCHES, INPUTS, OUTPUTS, ISSUED, START, LENGTH, SOURCE, ARG, GROUP, PEER, BLOCKING = range(len(FIELDS))

Move = tuple[int, int, int, int]
"""A value enters (+1) or leaves (-1) a store: (number of the event it comes just before, store, value id, change)."""


class Program:
    """One rank's run: its events, the values it made or met, and what its stores held when."""

    __slots__ = ("events", "moves", "rank", "values")

    def __init__(
        self, rank: int, events: Sequence[Event] = (), values: Sequence[Value | None] = (), moves: Sequence[Move] = ()
    ) -> None:
        self.rank = rank
        self.events = events
        self.values = values
        self.moves = moves

    @classmethod
    def of(cls, program: Program) -> Program:
        """Return a copy that does not grow. One that was tampered with is returned as it is, for readers to refuse."""
        try:
            return cls(program.rank, tuple(program.events), tuple(program.values), tuple(program.moves))
        except Exception:  # its fields may be anything
            return program

    @property
    def end(self) -> int:
        """Return when its last event is over, in ticks."""
        return max([event.start + event.length for event in self.events if event.start is not None], default=0)

    def values_of(self, ids: Sequence[int]) -> list[Value]:
        """Return the values of some ids, without those that were never made."""
        return [value for number in ids if (value := self.values[number]) is not None]


def place_of(event: Event | None) -> Place | None:
    """Return the student's source line of an event, if it is known."""
    return None if event is None else place_at(event.source)


def place_at(source: Source) -> Place | None:
    """Return the line of an event's source, if it is known."""
    return source if source is None or isinstance(source, Place) else resolve(*source)


def line_of(event: Event | None) -> str:
    """Return " in line 12", or "" if the line is not known, or belongs to a helper that a notebook gives."""
    return "" if (found := place_of(event)) is None or found.file in GIVEN else f" {found.within}"


def located(error: PuzzleError, rank: int | None, event: Event) -> PuzzleError:
    """Add the source line of an event to an error."""
    if (found := place_of(event)) is not None:
        error.where.append((rank, found))
    return error


# -- words ------------------------------------------------------------------------------------------------------------

# The events of a run have the same few sets.
ranges, _named = lru_cache(maxsize=4096)(wording.ranges), lru_cache(maxsize=4096)(numbered)


def operation(event: Event, *others: Event) -> str:
    """Name one operation, or several of a kind: "backward of layers 1, 2 (batches 0-3)", "the message to rank 2"."""
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


@cache
def spoken(op: str) -> str:
    """Name an operation as pictures do: "all-gather", "send", "load weights"."""
    row = COLLECTIVES.get(op) or OPERATIONS.get(op)
    return op.replace("_", " ") if row is None else row.title


def event_words(event: Event, ranks: int) -> str:
    """Label an operation: "forward, layer 3, batches 0-3". `ranks` is the size of the world."""
    words, together = spoken(event.op), event.op in COLLECTIVES
    words += "" if event.peer is None else f" {'to' if event.op == 'pass_to' else 'from'} rank {event.peer}"
    if event.layer is not None and event.layer >= 0:  # the gradient of the data has no layer to come from
        words += f", {_named('layer', layers_of(event)) if together else f'layer {event.layer}'}"
    if event.batches:
        words += f", {_named('batch', event.batches)}"
    if event.op in LOCAL and OPERATIONS[event.op].says == "shard" and len(event.arg) > 1 and event.arg[1] > 1:
        words += f", {'columns' if event.arg[2:] else 'shard'} {event.arg[0]} of {event.arg[1]}"
    if together:
        words += ", all ranks" if len(event.group) == ranks else f", ranks {ranges(frozenset(event.group))}"
    return words
