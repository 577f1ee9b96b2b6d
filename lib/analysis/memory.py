"""Where each value of a rank is, and when: the stretches of a program in which a store, or something else, holds it.

How long a value lives is said by `lib.trace.lifetimes`; here that is put together with what the stores hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from lib.trace.event import Move, Program
from lib.trace.lifetimes import handed_in, held_at, in_flight, new_states
from lib.trace.order import messages
from lib.trace.trace import STORES, Trace
from lib.values.operations import COMMUNICATION
from lib.values.values import Value, Weight

__all__ = ["PLACES", "Lifetime", "guests", "whereabouts"]

PLACES: Final = ("a local variable", *STORES, "a communication under way", "handed in as final", "at rest")
"""Where a value can be. The middle ones are the stores; all others are outside of them."""
_LOCAL: Final = 0
_UNDER_WAY: Final = len(STORES) + 1
_FINAL: Final = _UNDER_WAY + 1
_REST: Final = _FINAL + 1


class Lifetime(NamedTuple):
    """A value that is in one place whenever an event from number `start` on, and before number `stop`, starts.

    `value` is its id on the rank, `made` the number of the event that made it (-1: none), `place` an index of PLACES.
    One past the last event is the state in which the program leaves the rank.
    """

    value: int
    place: int
    start: int
    stop: int
    made: int

    @property
    def hidden(self) -> bool:
        """Whether no store holds it."""
        return self.place in (_LOCAL, _UNDER_WAY, _FINAL, _REST)


def guests(program: Program) -> set[int]:
    """The weights that visit a rank, by their ids: they came in a communication, or were made of one that did, and are
    neither handed in nor, updated, in a store at the end."""
    stays = {value for event in program.events for value in handed_in(event)}
    found: set[int] = set()
    for event in program.events:
        if event.op in COMMUNICATION or not found.isdisjoint(event.inputs):
            made = (number for number in event.outputs if isinstance(program.values[number], Weight))
            found.update(number for number in made if number not in stays)
    if found:
        held = held_at(program, len(program.events))
        found -= {number for number in found if held[number] > 0 and _is_updated(program.values[number])}
    return found


def _is_updated(value: Value | None) -> bool:
    return value is not None and value.updates > 0


class _Life(NamedTuple):
    """What decides where a value is that no store holds, in numbers of events.

    It is alive from `start` to `stop`, is made or loaded by `made`, and handed in by `final`; `trips` are the stretches
    in which a communication has it, and `kept` is the state that the next training step begins with.
    """

    start: int
    stop: int
    made: int
    final: int
    trips: Sequence[tuple[int, int]]
    kept: bool

    def place(self, index: int) -> int | None:
        """Where it is when event number `index` starts; None where it is not alive."""
        if not self.start <= index < self.stop:
            return None
        if any(start <= index < stop for start, stop in self.trips):
            return _UNDER_WAY
        if index < self.made or self.kept:
            return _REST
        return _FINAL if index >= self.final else _LOCAL


def whereabouts(trace: Trace, rank: int) -> list[Lifetime]:
    """All stretches of a rank, value by value. At each event these are `figures.alive_at`, and where they are.

    Values are those of `Trace.lifetimes`: behind those that have an id in the program, those that nobody waited for.
    """
    program, lives = trace.programs[rank], trace.lifetimes()[rank]
    moves: dict[int, list[Move]] = defaultdict(list)
    for move in program.moves:
        moves[move[2]].append(move)
    trips = _trips(trace, rank)
    over = len(program.events) + 1
    final = {value: number for number, event in enumerate(program.events) for value in handed_in(event)}
    kept = {value for event in program.events for value in new_states(event)}
    found: list[Lifetime] = []
    for number, value in enumerate(lives.values):
        if value is None:
            continue
        start, stop, maker = lives.born[number] + 1, lives.last[number] + 1, lives.maker[number]
        travels = trips.get(number, []) if number < len(program.values) else [(start, stop)]
        life = _Life(start, stop, maker + 1, final.get(number, over) + 1, travels, number in kept)
        for place, begin, end in _stretches(life, moves.get(number, []), over):
            found.append(Lifetime(number, place, begin, end, maker))
    return found


def _trips(trace: Trace, rank: int) -> Mapping[int, Sequence[tuple[int, int]]]:
    """For each value the communications that it was under way in: from after the call to the end of the wait, and for
    what was sent until its receive is issued."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    events = trace.programs[rank].events
    for index, event in enumerate(events):
        if event.op == "wait" and event.arg and events[event.arg[0]].op in COMMUNICATION:
            work = events[event.arg[0]]
            for value in (*work.inputs, *work.outputs):
                found[value].append((event.arg[0] + 1, index + 1))
    for passage in messages(trace):
        if passage.source == rank:
            for value in events[passage.sent].inputs:
                found[value].append((passage.sent + 1, in_flight(trace, passage) + 1))
    return found


def _stretches(life: _Life, moves: Sequence[Move], over: int) -> Iterator[tuple[int, int, int]]:
    """The places of a value one after the other, each from one event to another; those where it is alive."""
    edges = {0, life.start, life.stop, life.made, life.final, *(position for position, *_ in moves)}
    edges.update(edge for trip in life.trips for edge in trip)
    cuts = [*sorted(edge for edge in edges if 0 <= edge < over), over]
    held, at = [0] * len(STORES), 0
    places: list[tuple[int | None, int, int]] = []
    for start, stop in pairwise(cuts):
        while at < len(moves) and moves[at][0] <= start:
            held[moves[at][1]] += moves[at][3]
            at += 1
        store = next((1 + number for number, count in enumerate(held) if count > 0), None)
        places.append((life.place(start) if store is None else store, start, stop))
    for place, same in groupby(places, key=lambda stretch: stretch[0]):
        stretch = [*same]
        if place is not None:
            yield place, stretch[0][1], stretch[-1][2]
