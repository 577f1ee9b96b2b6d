"""What a rank holds between its events: for each value the stretches of the program in which it is alive, and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lib.figures import lifetimes
from lib.trace import COMMUNICATION, STORES, Program

__all__ = ["PLACES", "Span", "spans"]

PLACES: Final = ("a local variable", *STORES, "a communication under way", "handed in as final")
"""Where a value can be. The middle ones are the stores; all others are outside of them."""
_LOCAL: Final = 0
_UNDER_WAY: Final = len(STORES) + 1
_FINAL: Final = _UNDER_WAY + 1


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
        return self.place in (_LOCAL, _UNDER_WAY, _FINAL)


def spans(program: Program) -> list[Span]:
    """All stretches of a rank, value by value. At each event these are `figures.alive_at`, and where they are."""
    born, last, maker = lifetimes(program)
    moves: dict[int, list[tuple[int, int, int]]] = {}
    for position, store, value, change in program.moves:
        moves.setdefault(value, []).append((position, store, change))
    travels = _travels(program)
    handed = {value: i for i, e in enumerate(program.events) if e.op == "set_final_weight" for value in e.inputs}
    over = len(program.events) + 1
    found: list[Span] = []
    for number, value in enumerate(program.values):
        if value is None:
            continue
        alive = (born[number] + 1, last[number] + 1)
        mine = moves.get(number, [])
        trips = travels.get(number, [])
        final = handed.get(number, over) + 1
        edges = {0, *alive, final, *(move[0] for move in mine), *(edge for trip in trips for edge in trip)}
        cuts = sorted(edge for edge in edges if edge < over)
        for start, stop, place in _stretches(cuts, over, mine, alive, trips, final):
            found.append(Span(number, place, start, stop, maker[number]))
    return found


def _travels(program: Program) -> dict[int, list[tuple[int, int]]]:
    """For each value the communications that it was under way in: from after the call to the end of the wait."""
    found: dict[int, list[tuple[int, int]]] = {}
    for index, event in enumerate(program.events):
        if event.op == "wait" and event.arg and program.events[event.arg[0]].op in COMMUNICATION:
            work = program.events[event.arg[0]]
            for value in (*work.inputs, *work.outputs):
                found.setdefault(value, []).append((event.arg[0] + 1, index + 1))
    return found


def _stretches(
    cuts: list[int],
    over: int,
    moves: list[tuple[int, int, int]],
    alive: tuple[int, int],
    trips: list[tuple[int, int]],
    final: int,
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
        elif not alive[0] <= cut < alive[1]:
            place = -1
        elif any(start <= cut < stop for start, stop in trips):
            place = _UNDER_WAY
        else:
            place = _FINAL if cut >= final else _LOCAL
        if place != open_place:
            if open_place >= 0:
                yield open_start, cut, open_place
            open_place, open_start = place, cut
    if open_place >= 0:
        yield open_start, over, open_place
