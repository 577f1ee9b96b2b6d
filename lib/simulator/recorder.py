"""The record of one running rank: its operations as it does them, and its communication as it is awaited (Work).

Work is torch's: a collective with async_op=True returns one, and its wait() waits. Here every communication returns
one, and `await` waits. A rank's clock is that of a GPU's default stream, and Python itself takes no time.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from itertools import islice
from types import CodeType, coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from lib.cluster.costs import MAX_TICKS
from lib.errors.exceptions import BudgetError, MismatchError, PuzzleError, RuleError
from lib.errors.source_lines import Place, student_frame, student_place
from lib.simulator.engine import Halted, Signal
from lib.simulator.messages import Call, Parcel, copy_message
from lib.trace.event import BLOCKING, LAYER, LENGTH, OP, OUTPUTS, SOURCE, START, Event, Move, Program, Source, place_at
from lib.values import facts
from lib.values.dims import NO_PIECES
from lib.values.operations import COMMUNICATION
from lib.values.placement import keep
from lib.values.values import KINDS, Value, made, set_home, set_number

if TYPE_CHECKING:
    from lib.simulator.dist import Dist

BUDGET: Final = 250_000
"""Events that a rank may record by default."""
MOVES_AN_EVENT: Final = 4
"""Changes of the stores of a rank that are allowed for each event that it may record."""
REPLACED: Final = len(KINDS)
"""Added to the number of a store where a value takes the place of another (see `Recorder`)."""
PUZZLE_BUDGET: Final = 10_000
"""Events of a rank at the size of a puzzle: 200 times what our longest solution records."""
ENDLESS: Final = (
    "a loop around this line does not end: what its condition asks for has to change inside it\n"
    "(for a really large run raise the limit: simulate(..., budget=...))"
)
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]
E = TypeVar("E", bound=PuzzleError)
T = TypeVar("T")

Row = tuple[Any, ...]
"""An operation without communication: its name, layer, first output, number of outputs, length, code, instruction, arg;
then its inputs. It begins where the one before it ends, and its batches are those of its first output. That keeps rows
small, as new memory takes time, and makes those of all ranks of a DDP equal."""


class Recorder(Program):
    """The program of a rank while it runs, with its clock. It may begin nothing after `until`.

    Most of what a run records is never read during the run. So it is kept as rows, which become Events and Moves for
    good when they are first read. `moved` has None for each event, so that the order of events and moves is known; for
    a value that enters a store, its id and the number of the store; for one that leaves, its id, that number as
    `~store`, and from where: key, code and instruction; for one that takes the place of another, the id of that one,
    the number of the store + REPLACED, and its own id.

    `world` is what all ranks of one run share: a value whose home is another rank's record of the same world is on
    that rank, and cannot be used here.
    """

    __slots__ = (
        "_adopted", "_asked", "_told", "budget", "clock", "free", "many_moved", "moved", "shared", "until", "world",
    )  # fmt: skip
    values: list[Value | None]  # pyright: ignore[reportIncompatibleVariableOverride]  # it is written here
    # The slots of a finished Program, under names of their own: here they hold what is not converted yet.
    rows: list[Any] = Program.__dict__["events"]  # pyright: ignore[reportAssignmentType]
    """Events, and what is to become Events: Calls, and for operations without communication a Row each."""
    _moves: list[Move] = Program.__dict__["moves"]

    def __init__(self, rank: int, world: Dist, budget: int = BUDGET) -> None:
        super().__init__(rank, (), [], ())
        self.rows = []  # pyright: ignore[reportGeneralTypeIssues]  # under its other name
        self._moves = []  # pyright: ignore[reportGeneralTypeIssues]
        self.moved: list[Any] = []
        # From this many entries on (two moves are three or more) the moves among them have to be counted.
        self.many_moved = 3 * MOVES_AN_EVENT * budget // 2
        # How far rows and moves are already converted, and the clock or the number of events there, so that reading
        # mid-run converts each once.
        self._asked, self._told = (0, 0), (0, 0)
        self.world, self.shared, self.budget, self.clock = world, world.shared, budget, 0
        # Below this number of rows no limit is checked: -1 before the first, 0 where ranks share rows or stop.
        self.free = -1
        # Later than any time of a run: nothing has failed so far.
        self.until = 2 * MAX_TICKS
        self._adopted: dict[int, tuple[Value, int]] | None = None

    @property
    def events(self) -> list[Event]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the rank has done so far."""
        rows, (before, now), values = self.rows, self._asked, cast("list[Any]", self.values)
        under_way: tuple[int, int] | None = None
        # One object for all events of a line: saving a run finds known ones by identity.
        sources: dict[tuple[int, int], tuple[CodeType, int]] = {}
        for number in range(before, len(rows)):
            row: Any = rows[number]
            kind = type(row)  # pyright: ignore[reportUnknownVariableType]
            if kind is tuple:
                op, layer, first, count, length, code, instruction, arg = row[:8]
                outputs = (first,) if count == 1 else tuple(range(first, first + count))
                batches = values[first].place.batches if count else NO_PIECES
                known = type(code) is CodeType
                source = sources.setdefault((id(code), instruction), (code, instruction)) if known else code
                rows[number] = Event(op, layer, batches, row[8:], outputs, now, now, length, source, arg)
                now += length
            elif kind is list and row[BLOCKING] is None:  # under way: a Call, which is returned as an Event of now
                under_way = under_way or (number, now)
            elif kind is list:
                rows[number] = Event(*row)
                if row[BLOCKING]:
                    now = max(now, row[START] + row[LENGTH])
            elif row.blocking or row.op not in COMMUNICATION:
                now = max(now, row.end)
        self._asked = under_way or (len(rows), now)
        return rows if under_way is None else [r if type(r) is Event else Event(*r[:BLOCKING]) for r in rows]

    events = events.setter(rows.__set__).deleter(rows.__delete__)  # type: ignore[attr-defined]

    @property
    def moves(self) -> list[Move]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What has entered and left the stores so far."""
        (told, position), append = self._told, self._moves.append
        for number in (entries := iter(self.moved[told:])):
            if number is None:
                position += 1
            elif (store := next(entries)) < 0:
                append((position, ~store, number, -1))
                next(islice(entries, 2, None))  # key, code and instruction
            elif store < REPLACED:
                append((position, store, number, 1))
            else:
                append((position, store - REPLACED, number, -1))
                append((position, store - REPLACED, next(entries), 1))
        self._told = len(self.moved), position
        return self._moves

    moves = moves.setter(_moves.__set__)  # type: ignore[attr-defined]

    def taken(self, out: int) -> dict[Any, tuple[int, CodeType, int]]:
        """Return each key deleted from the store with this way out: the id of its last value, and the deleting code."""
        entries, found = iter(self.moved), dict[Any, tuple[int, CodeType, int]]()
        for number in entries:
            if number is None:
                continue
            if (way := next(entries)) >= REPLACED:
                next(entries)  # the value that came
            elif way < 0:
                key, code, instruction = islice(entries, 3)
                if way == out:
                    found[key] = number, code, instruction
        return found

    def id(self, value: Value, source: Source = None) -> int:
        """Return the id of a value on this rank. A value not made here is adopted, which check will not accept."""
        home = value.home
        if home is self:
            return value.number
        if self._adopted is None:
            self._adopted = {}
        elif (known := self._adopted.get(id(value))) is not None:
            return known[1]
        # Two ranks would share memory, a mistake that real processes cannot make.
        if home is not None and home.world is self.world:
            raise RuleError(
                f"this {value.kind} lives on rank {home.rank}",
                expected="a value that this rank made or received",
                got=f"{value} of rank {home.rank}, by way of a shared Python variable",
                fix="ranks share no memory: send it with pass_to and receive, or use a collective",
            )
        if type(value) not in KINDS.values():  # a student's own class could say anything
            raise RuleError(facts.NoKind(value))
        number = len(self.values)
        self.values.append(value)
        # The value is kept with its number, so that its id stays its own.
        self._adopted[id(value)] = (value, number)
        self.did(("foreign", value.layer, number, 1, 0, *_split(source or student_place()), ()))
        return number

    def new(self, value: Value) -> int:
        """Give a value made on this rank its id."""
        number = len(self.values)
        self.values.append(value)
        set_home(value, self)
        set_number(value, number)
        return number

    def did(self, row: Row) -> None:
        """Record an operation on the rank's own clock, which the caller moves on."""
        rows = self.rows
        if len(rows) >= self.free:
            self.allow(row[0])
            row = self.common((row[0], row[2], row[6]), row)
        rows.append(row)
        self.moved.append(None)

    def common(self, key: Any, thing: T) -> T:
        """Return the one object that ranks of a large world share for equal things; in a small one the thing itself.
        `key` is a part of it without code objects, whose hash is slow."""
        if self.shared is None:
            return thing
        known: Any = self.shared.get(key)
        return known if known == thing else keep(self.shared, key, thing)

    def placed(self, since: int, source: Source) -> int:
        """Set the source line of all rows from number `since` on, and return the number of rows. They are not converted
        to events: a pipeline calls this after each action of its order."""
        rows = self.rows
        for number, row in enumerate(rows[since:], since):
            if type(row) is tuple:
                rows[number] = (*row[:5], *_split(source), *row[7:])
            elif type(row) is Event:
                row.source = source
            else:
                row[SOURCE] = source
        return len(rows)

    def state(self) -> tuple[int, ...]:
        """Return something that changes whenever the rank records anything. Awaiting a communication at once adds no
        row, but marks it as blocking."""
        last: Any = self.rows[-1] if self.rows else ()
        awaited = last.blocking if type(last) is Event else type(last) is not tuple and bool(last[BLOCKING])
        return len(self.rows), len(self.values), len(self.moved), awaited

    def append(self, call: Call) -> None:
        """Append a communication, which has a time of its own."""
        if len(self.rows) >= self.free:
            self.allow(call[OP])
        self.rows.append(call)
        self.moved.append(None)

    def send(self, target: int, thing: Any, source: Source = None) -> tuple[Call, Signal]:
        """Issue a message to a rank: a value, or an object with values in it."""
        try:
            # Most messages are one value: it arrives as such, and needs no copy.
            if isinstance(thing, Value):
                load, layer, batches = thing, thing.layer, thing.place.batches
                inputs = (thing.number if thing.home is self else self.id(thing, source),)
            else:
                load, values = copy_message(thing)
                inputs = tuple([self.id(value, source) for value in values])
                layer, batches = (values[0].layer, values[0].place.batches) if values else (None, NO_PIECES)
        except PuzzleError as error:
            raise self.blame(error) from None
        call = ["pass_to", layer, batches, inputs, (), self.clock, None, 0, source, (), (), target, None]
        self.append(call)
        return call, self.world.messages.send(self.rank, target, call, load)

    def receive(self, sender: int | None, source: Source = None) -> tuple[Call, Signal]:
        """Issue a receive from a rank, or from any. The message that answers it fills in what it is about."""
        call = ["receive", None, NO_PIECES, (), (), self.clock, None, 0, source, (), (), sender, None]
        self.append(call)
        return call, self.world.messages.receive(self.rank, sender, call)

    def finish(self, call: Call, brought: Any, before: int | None = None) -> Any:
        """Complete a communication that has happened: number the values that it `brought`, which are the result, and
        move the clock on to its end. If the rank has done something since its row, which is number `before`, the wait
        is an event of its own; else both are one blocking event."""
        if brought is None:
            result = None
        elif isinstance(brought, Value):
            result = made(type(brought), brought.layer, brought.layers, brought.place, brought.updates, self)
            outputs = (result.number,)
            call[OUTPUTS] = outputs if self.shared is None else self.common(outputs, outputs)
        elif isinstance(brought, Parcel):
            call[OUTPUTS] = tuple(map(self.new, brought.values))
            result = brought.thing
        else:
            result = [value.at(value.place, self) for value in brought]
            call[OUTPUTS] = tuple([value.number for value in result])
        end = call[START] + call[LENGTH]  # it has happened, so it has a start
        call[BLOCKING] = before is None
        if before is not None:
            # It may have been over long ago: then awaiting it takes no time.
            wait = max(0, end - self.clock)
            self.did(("wait", call[LAYER], 0, 0, wait, *_split(call[SOURCE]), (before,)))
        if end > self.clock:
            self.clock = end
        return result

    def allow(self, op: str) -> None:
        """Stop a rank that may begin nothing more: it has recorded too much, or the run is over at this moment."""
        # Before the first row the world notes what steps this rank, and tries again later if that is not known.
        if self.free < 0 and self.world.begin(self.rank):
            self.free = self.budget if self.shared is None else 0
        # An endless loop is found by what it records, not by a real clock: the same on each machine.
        if len(self.rows) >= self.budget:
            last = f"the last was {self.events[-1].op}"
            raise self._endless(f"more than {self.budget} events on one rank", last)
        if self.clock > self.until and op != "wait":  # a wait belongs to what it began before
            raise Halted

    def count_moves(self) -> None:
        """Stop a rank whose stores change without end."""
        most = MOVES_AN_EVENT * self.budget
        self.many_moved = len(self.moved) + 3 * (most - len(self.moves)) // 2
        if len(self.moves) > most:
            what = f"the stores of one rank changed more than {most} times"
            raise self._endless(what, "a value enters or leaves a store again and again")

    def _endless(self, what: str, got: str) -> BudgetError:
        return self.blame(BudgetError(what, expected="a schedule that ends", got=got, fix=ENDLESS))

    # What values ask of their home: see values.Home.
    def derive(self, op: str, inputs: tuple[Value, ...], output: Any, arg: tuple[int, ...] = ()) -> Any:
        """Record `+`, combine or shard."""
        ids: tuple[int, ...] = ()
        try:
            for value in inputs:
                ids += (value.number if value.home is self else self.id(value),)
        except RuleError as error:
            raise self.blame(error) from None
        frame = student_frame(_frame(3))  # past the method of the value, and what all of these have in common
        code, instruction = (None, 0) if frame is None else (frame.f_code, frame.f_lasti)
        self.did((op, output.layer, self.new(output), 1, 0, code, instruction, arg, *ids))
        return output

    def blame(self, error: E) -> E:
        """Add rank, source line, advice and the Trace so far to an error, and return it."""
        if self.world.until is not None and (self.clock, self.rank) > self.world.until:
            return error  # an earlier failure counts
        from lib import diagnosis  # here and not above: a run that goes well needs none of it
        from lib.errors import fixes

        # A mismatch names two ranks; that this one came last is not its fault.
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


def _split(source: Source) -> tuple[CodeType | Place | None, int]:
    """Return a source as a row has it: the code, and the instruction in it."""
    return source if type(source) is tuple else (cast("Place | None", source), 0)


@coroutine
def until(program: Recorder, call: Call, signal: Signal) -> Generator[Signal, None, Any]:
    """Wait for a communication under our own driver, as a Work does that is awaited at once; return what it brings."""
    yield signal
    return program.finish(call, signal.value)


class Work(Generic[T]):
    """A communication under way. The call issued it; `await` waits for it and returns its result.

    Awaiting it again returns the same result. Any other use fails with a reminder of the missing `await`.

    >>> async def overlap(model):
    ...     total = model.allreduce(model.fake_grad(0, [model.rank]), 0)  # under way from here on
    ...     model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])
    ...     return await total
    >>> check(simulate(overlap, ranks=2, layers=1, batches=2)).time
    1.0
    """

    __slots__ = ("_call", "_pending", "_result")

    def __init__(self, program: Recorder, call: Call, signal: Signal, place: int | None = None) -> None:
        # One tuple holds all state until it is awaited: with `__getattr__` Python looks a name up ten times as slowly.
        # `place` is the place in the group, for a collective: its signal brings one result for each member.
        try:
            self._pending: Any = (program, signal, place, len(program.rows), len(program.moved), call)
        except AttributeError:
            said = f"a Work is what an operation of a Model gives; nobody else makes one; got {program!r}"
            raise ValueError(said) from None
        self._call = call
        self._result: Any  # once it was awaited

    def __await__(self) -> Generator[Any, None, T]:
        """Wait until it has happened: the one place that yields to the driver of the coroutines."""
        if (pending := self._pending) is None:
            return self._result
        program, signal, place, index, moved, call = pending
        engine = program.world.engine
        if not engine.driving and (future := program.world.driver.wait(signal, program.rank, call, index)) is not None:
            try:
                yield future
            finally:
                engine.waiting.pop(future, None)  # where `wait` has put it
                engine.moves += 1
        elif not signal.fired:
            yield signal
        if call[BLOCKING] is not None:  # another task awaited it in the meantime
            return self._result
        brought = signal.value if place is None else signal.value[place]
        result = self._result = program.finish(call, brought, None if len(program.moved) == moved else index - 1)
        self._pending = None
        return result

    def issued(self) -> tuple[str, Place | None, bool]:
        """Return the operation whose call made it, the place of the call, and whether the rank has worked since."""
        later: list[Event] = [] if (pending := self._pending) is None else pending[0].events[pending[3] :]
        return self._call[OP], place_at(self._call[SOURCE]), any(event.length for event in later)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        from lib.errors.exceptions import used_before_await  # here and not above: only a mistake needs it

        error = used_before_await(name, *self.issued()[:2])
        if self._pending is not None:
            error.at(self._pending[0].rank)
        raise error

    def _forgotten(self, *_: object) -> Any:
        return self.__getattr__("a value")

    # Uses of a result, refused at once: unpacking it, adding it, asking for its parts.
    __iter__ = __len__ = __getitem__ = __add__ = __radd__ = _forgotten

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{self._call[OP]}, to be awaited>"
