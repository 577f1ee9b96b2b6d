"""Recorder: what one running rank writes down. Its program is data that anybody may read; this is who appends to it."""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeVar

from lib import diagnosis
from lib.diagnosis.running import World
from lib.errors import fixes
from lib.errors.exceptions import BudgetError, MismatchError, PuzzleError, RuleError
from lib.errors.source_lines import student_frame, student_place
from lib.trace.event import Event, Program, Source
from lib.values import facts
from lib.values.values import KINDS, SET_MARK, Value

__all__ = ["BUDGET", "PUZZLE_BUDGET", "Recorder"]

BUDGET: Final = 250_000
"""Events that a rank may record, unless its world says otherwise."""
PUZZLE_BUDGET: Final = 10_000
"""Events of a rank at the size of a puzzle: 200 times what our longest solution records."""
ENDLESS: Final = (
    "a loop around this line does not end: what its condition asks for has to change inside it\n"
    "(for a really large run raise the limit: simulate(..., budget=...))"
)
E = TypeVar("E", bound=PuzzleError)


class Recorder(Program):
    """The program of a rank while it runs, with its clock.

    `world` is what all ranks of one run share: a value whose home is another rank's record of the same world is on
    that rank, and cannot be used here.
    """

    __slots__ = ("_adopted", "budget", "clock", "world")

    def __init__(self, rank: int, world: World, budget: int = BUDGET) -> None:
        super().__init__(rank)
        self.world = world
        self.budget = budget
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
        if type(value) not in KINDS.values():  # one of a class of their own would say of itself what it likes
            raise RuleError(facts.NoKind(value))
        number = len(self.values)
        self.values.append(value)
        self._adopted[id(value)] = (value, number)
        batches = value.place.batches
        event = self.record("foreign", value.layer, batches, (), (), source or student_place())
        event.outputs = (number,)
        return number

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
        made: tuple[Value, ...],
        source: Source,
        length: int = 0,
        arg: tuple[int, ...] = (),
    ) -> Event:
        """Appends an operation that runs on the rank's own clock, gives what it made ids, and moves the clock on."""
        now, values = self.clock, self.values
        outputs: tuple[int, ...] = ()
        for value in made:  # as `new` does, without a call for each
            number = len(values)
            values.append(value)
            SET_MARK(value, (self, number))
            outputs += (number,)
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
        frame = student_frame()
        source = None if frame is None else (frame.f_code, frame.f_lasti)
        batches = output.place.batches
        self.record(op, output.layer, batches, ids, (output,), source, 0, arg)
        return output

    def blame(self, error: E) -> E:
        """Says on which rank and line it happened, and adds the Trace up to there."""
        # A mismatch is between two ranks, and names both; that this one came last is no fault of its own.
        if not isinstance(error, MismatchError):
            error.at(self.rank)
            if self.world.mesh is not None:
                error.named = self.world.mesh.named(self.rank)
            if error.fact is not None:
                diagnosis.advise(error, self)
        if error.trace is None:
            error.trace = self.world.so_far(str(error))
        fixes.keep(error)
        return error
