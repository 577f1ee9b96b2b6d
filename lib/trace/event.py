"""What every rank did, to which values, in which order: events and programs, the plain data inside a Trace.

A rank's program is in single-assignment form: each event names its input and output values by id, and `moves` say
when a value entered or left a store. Times are in ticks (see clock). Nothing here is a student's function: a Trace
can be saved, checked, re-timed, drawn and replayed far from the code that made it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, NoReturn, Protocol, TypeVar

from lib.errors.exceptions import BudgetError, MismatchError, PuzzleError, RuleError
from lib.errors.source_lines import Place, resolve, student_place
from lib.values.collectives import COLLECTIVES
from lib.values.values import SET_MARK, Value, clean

__all__ = ["COMMUNICATION", "STORES", "TIMED", "Event", "Move", "Program"]

STORES: Final = ("weights", "opt_states", "activations", "grad_activations", "grad_weights")
COMPUTE: Final = frozenset(["forward", "backward", "loss", "update"])
MESSAGES: Final = frozenset(["pass_to", "receive"])
COLLECTIVE: Final = frozenset(COLLECTIVES)
COMMUNICATION: Final = COLLECTIVE | MESSAGES
TIMED: Final = COMPUTE | COMMUNICATION
"""The operations at whose start memory is sampled, as the original does."""
FREE: Final = frozenset(
    ["load_weights", "get_activation", "fake_grad", "set_final_weight", "add", "combine", "shard", "foreign", "wait"]
)
BUDGET: Final = 250_000
ENDLESS: Final = (
    "a loop around this line does not end: what its condition asks for has to change inside it\n"
    "(for a really large run raise the limit: simulate(..., budget=...))"
)

Source = tuple[CodeType, int] | Place | None
E = TypeVar("E", bound=PuzzleError)
NO_BATCHES: Final[frozenset[int]] = frozenset()


@dataclass(slots=True)
class Event:
    """One operation of one rank.

    `start` is None until a communication has begun (a run that failed leaves some so), `issued` is when the call was
    made. `arg` has (shard, total) of load_weights and shard, (root,) of a broadcast, and of a wait the index of the
    event that it waits for. `blocking` says that a communication was awaited at once. `peer` is the other rank of a
    message, None where it carried no message yet.
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
        """An equal event: several times as fast as dataclasses.replace."""
        return Event(
            self.op,
            self.layer,
            self.batches,
            self.inputs,
            self.outputs,
            self.issued,
            self.start,
            self.length,
            self.source,
            self.arg,
            self.group,
            self.peer,
            self.blocking,
        )

    @property
    def end(self) -> int | None:
        """When it is over, in ticks."""
        return None if self.start is None else self.start + self.length


Move = tuple[int, int, int, int]
"""A value enters (+1) or leaves (-1) a store: (number of the event it comes just before, store, value id, change)."""


class World(Protocol):
    """What all ranks of one run share. It knows the Trace so far, for an error to show."""

    ranks: int

    def so_far(self, error: str) -> Any: ...

    def unread(self) -> list[tuple[int, int, Event]]: ...


class Program:
    """What one rank did: its events, the values it made or met, and what its stores held when.

    `world` is what all ranks of one run share: a value whose home is another program of the same world is on another
    rank, and cannot be used here.
    """

    __slots__ = ("_adopted", "budget", "clock", "events", "moves", "rank", "values", "world")

    def __init__(self, rank: int, world: World | None = None, budget: int = BUDGET) -> None:
        self.rank = rank
        self.world = world
        self.budget = budget
        self.events: list[Event] = []
        self.values: list[Value | None] = []
        self.moves: list[Move] = []
        self.clock = 0
        self._adopted: dict[int, tuple[Value, int]] = {}

    def id(self, value: Value, source: Source = None) -> int:
        """The id of a value on this rank. One that was not made here is adopted, which check will not accept."""
        mark = value.mark
        if mark is not None and mark[0] is self:
            return mark[1]
        known = self._adopted.get(id(value))
        if known is not None:
            return known[1]
        if mark is not None and mark[0].world is self.world:
            raise RuleError(
                f"this {value.kind} lives on rank {mark[0].rank}",
                expected="a value that this rank made or received",
                got=f"{value} of rank {mark[0].rank}, by way of a shared Python variable",
                fix="ranks share no memory: send it with pass_to and receive, or use a collective",
            )
        adopted, value = value, clean(value)
        number = len(self.values)
        self.values.append(value)
        self._adopted[id(adopted)] = (adopted, number)
        batches = getattr(value, "batches", NO_BATCHES)
        self.record("foreign", value.layer, batches, (), (number,), source or student_place())
        return number

    def values_of(self, ids: Sequence[int]) -> list[Value]:
        """The values of some ids, those that are not made left out."""
        return [value for number in ids if (value := self.values[number]) is not None]

    def new(self, value: Value) -> int:
        """Gives a value made on this rank its id."""
        values = self.values
        number = len(values)
        values.append(value)
        SET_MARK(value, (self, number))
        return number

    def record(
        self,
        op: str,
        layer: int | None,
        batches: frozenset[int],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        source: Source,
        length: int = 0,
        arg: tuple[int, ...] = (),
    ) -> Event:
        """Appends an operation that runs on the rank's own clock, and moves the clock on."""
        now = self.clock
        event = Event(op, layer, batches, inputs, outputs, now, now, length, source, arg)
        events = self.events
        if len(events) >= self.budget:
            self._too_many_events()
        events.append(event)
        self.clock = now + length
        return event

    def append(self, event: Event) -> None:
        """Appends a communication, which has a time of its own."""
        if len(self.events) >= self.budget:
            self._too_many_events()
        self.events.append(event)

    def _too_many_events(self) -> NoReturn:
        error = BudgetError(
            f"more than {self.budget} events on one rank",
            expected="a schedule that ends",
            got=f"the last was {self.events[-1].op}",
            fix=ENDLESS,
        )
        raise self.blame(error)

    def too_many_moves(self) -> BudgetError:
        """The error of a rank whose stores change without end."""
        error = BudgetError(
            f"the stores of one rank changed more than {4 * self.budget} times",
            expected="a schedule that ends",
            got="a value enters or leaves a store again and again",
            fix=ENDLESS,
        )
        return self.blame(error)

    # What values ask of their home: see values.Home.
    def derive(self, op: str, inputs: tuple[Value, ...], output: Any, arg: tuple[int, ...] = ()) -> Any:
        """Records `+`, combine or shard."""
        try:
            ids = tuple([self.id(value) for value in inputs])
        except RuleError as error:
            raise self.blame(error) from None
        frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]  # past _derive and the method
        source = (frame.f_code, frame.f_lasti)
        batches = getattr(output, "batches", NO_BATCHES)
        self.record(op, output.layer, batches, ids, (self.new(output),), source, 0, arg)
        return output

    def blame(self, error: E) -> E:
        """Says on which rank and line it happened, and adds the Trace up to there."""
        # A mismatch is between two ranks, and names both; that this one came last is no fault of its own.
        if not isinstance(error, MismatchError):
            error.at(self.rank)
            if error.clue:
                from lib.diagnosis.likely_cause import advise  # here and not above: only a mistake needs it

                advise(error, self)
        if error.trace is None and self.world is not None:
            error.trace = self.world.so_far(str(error))
        return error


def place_of(event: Event | None) -> Place | None:
    """The student's source line of an event, where it is known."""
    source = None if event is None else event.source
    return source if source is None or isinstance(source, Place) else resolve(*source)


def located(error: PuzzleError, rank: int | None, source: Source) -> PuzzleError:
    """Adds the source line of an event to an error."""
    found = resolve(*source) if isinstance(source, tuple) and not isinstance(source, Place) else source
    if isinstance(found, Place):
        error.where.append((rank, found))
    return error
