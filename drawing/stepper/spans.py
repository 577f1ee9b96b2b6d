"""What a rank holds between its events: for each value the stretches of the program in which it is alive, and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lib.trace.lifetimes import in_flight
from lib.trace.order import messages
from lib.trace.trace import STORES, Trace
from lib.values.operations import COMMUNICATION

__all__ = ["PLACES", "Span", "spans"]

PLACES: Final = ("a local variable", *STORES, "a communication under way", "handed in as final", "at rest")
"""Where a value can be. The middle ones are the stores; all others are outside of them."""
_LOCAL: Final = 0
_UNDER_WAY: Final = len(STORES) + 1
_FINAL: Final = _UNDER_WAY + 1
_REST: Final = _FINAL + 1


class Span(NamedTuple):
    """A value that is in one place whenever an event from number `start` on, and before number `stop`, starts.

    `value` is its id on the rank, `born` the number of the event that made it (-1: none), `place` an index of PLACES.
    One past the last event is the state in which the program leaves the rank.
    """

    value: int
    place: int
    start: int
    stop: int
    born: int

    @property
    def hidden(self) -> bool:
        """Whether no store holds it."""
        return self.place in (_LOCAL, _UNDER_WAY, _FINAL, _REST)


def spans(trace: Trace, rank: int) -> list[Span]:
    """All stretches of a rank, value by value. At each event these are `figures.alive_at`, and where they are.

    Values are those of `Trace.lifetimes`: behind those that have an id in the program, those that nobody waited for.
    """
    program, lives = trace.programs[rank], trace.lifetimes()[rank]
    moves: dict[int, list[tuple[int, int, int]]] = {}
    for position, store, value, change in program.moves:
        moves.setdefault(value, []).append((position, store, change))
    travels = _travels(trace, rank)
    handed = {value: i for i, e in enumerate(program.events) if e.op == "set_final_weight" for value in e.inputs}
    updated = {value for e in program.events if e.op == "update" for value in e.outputs[1:]}
    over = len(program.events) + 1
    found: list[Span] = []
    for number, value in enumerate(lives.values):
        if value is None:
            continue
        born, last, maker = lives.born[number], lives.last[number], lives.maker[number]
        trips = travels.get(number, []) if number < len(program.values) else [(born + 1, last + 1)]
        life = _Life(born + 1, last + 1, maker + 1, handed.get(number, over) + 1, number in updated)
        mine = moves.get(number, [])
        edges = {0, *life[:4], *(move[0] for move in mine), *(edge for trip in trips for edge in trip)}
        cuts = sorted(edge for edge in edges if 0 <= edge < over)
        for start, stop, place in _stretches(cuts, over, mine, life, trips):
            found.append(Span(number, place, start, stop, maker))
    return found


class _Life(NamedTuple):
    """When a value is alive, made or loaded, and handed in, as numbers of events; `kept` for the next step's state."""

    start: int
    stop: int
    made: int
    final: int
    kept: bool


def _travels(trace: Trace, rank: int) -> dict[int, list[tuple[int, int]]]:
    """For each value the communications that it was under way in: from after the call to the end of the wait, and for
    what was sent until its receive is issued."""
    found: dict[int, list[tuple[int, int]]] = {}
    events = trace.programs[rank].events
    for index, event in enumerate(events):
        if event.op == "wait" and event.arg and events[event.arg[0]].op in COMMUNICATION:
            work = events[event.arg[0]]
            for value in (*work.inputs, *work.outputs):
                found.setdefault(value, []).append((event.arg[0] + 1, index + 1))
    for passage in messages(trace):
        if passage.source == rank:
            for value in events[passage.sent].inputs:
                found.setdefault(value, []).append((passage.sent + 1, in_flight(trace, passage) + 1))
    return found


def _stretches(
    cuts: list[int],
    over: int,
    moves: list[tuple[int, int, int]],
    life: _Life,
    trips: list[tuple[int, int]],
) -> Iterator[tuple[int, int, int]]:
    """From where to where a value is in which place, neighbours in one place put together."""
    held = [0] * len(STORES)
    at = 0
    open_place, open_start = -1, 0
    for cut in cuts:
        while at < len(moves) and moves[at][0] <= cut:
            held[moves[at][1]] += moves[at][2]
            at += 1
        if sum(held) > 0:
            place = 1 + next(store for store, count in enumerate(held) if count > 0)
        elif not life.start <= cut < life.stop:
            place = -1
        elif any(start <= cut < stop for start, stop in trips):
            place = _UNDER_WAY
        elif cut < life.made or life.kept:
            place = _REST
        else:
            place = _FINAL if cut >= life.final else _LOCAL
        if place != open_place:
            if open_place >= 0:
                yield open_start, cut, open_place
            open_place, open_start = place, cut
    if open_place >= 0:
        yield open_start, over, open_place
