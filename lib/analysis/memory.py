"""What holds each value of a rank, and when; and what the rank with the highest peak holds at that moment.

`lib.trace.lifetimes` says how long a value lives; here that is combined with what the stores hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, zip_longest
from typing import Final, NamedTuple

from lib.analysis.figures import Peak, peak
from lib.errors.source_lines import GIVEN, Place
from lib.errors.wording import counted, numbered
from lib.trace.event import STORES, Event, Move, Program
from lib.trace.lifetimes import handed_in, held_at, in_flight, new_states, own_lifetimes, stays, stays_of
from lib.trace.order import messages
from lib.trace.trace import Trace
from lib.values.collectives import title
from lib.values.operations import COMMUNICATION
from lib.values.values import Activation, ActivationGrad, Elements, OptState, Value, Weight

PLACES: Final = ("a local variable", *STORES, "a communication under way", "handed in as final", "at rest")
"""Where a value can be. The middle ones are the stores; the others are outside them."""
_LOCAL, _UNDER_WAY, _FINAL, _REST = 0, *range(len(STORES) + 1, len(PLACES))


class Lifetime(NamedTuple):
    """A value that is in one place whenever any of the events `start` to `stop` - 1 starts.

    `value` is its id on the rank, `made` the number of the event that made it (-1: none), `place` an index of PLACES.
    One past the last event stands for the state in which the program leaves the rank.
    """

    value: int
    place: int
    start: int
    stop: int
    made: int

    @property
    def hidden(self) -> bool:
        """Tell whether no store holds it."""
        return not 1 <= self.place <= len(STORES)


def guests(program: Program) -> set[int]:
    """Return the ids of weights that only visit a rank: they came in a communication, or were made from one that did,
    and are neither handed in nor, updated, in a store at the end."""
    final = {value for event in program.events for value in handed_in(event)}
    weights = {n: value for n, value in enumerate(program.values) if isinstance(value, Weight) and n not in final}
    found: set[int] = set()
    for event in program.events:
        new = weights.keys() & event.outputs
        if new and (event.op in COMMUNICATION or not found.isdisjoint(event.inputs)):
            found |= new
    held = held_at(stays(program), len(program.events)) if found else ()
    return {number for number in found if number not in held or not weights[number].updates}


def whereabouts(trace: Trace, rank: int) -> list[Lifetime]:
    """Return all stretches of a rank, value by value: at each event, the values of `figures.alive_at` and their places.

    Values are those of `Trace.lifetimes`: after those with an id in the program, those that were never awaited.
    """
    program, lives, trips = trace.programs[rank], trace.lifetimes()[rank], _trips(trace, rank)
    moves: dict[int, list[Move]] = defaultdict(list)
    for move in program.moves:
        moves[move[2]].append(move)
    over = len(program.events) + 1
    final = {value: number for number, event in enumerate(program.events) for value in handed_in(event)}
    kept = {value for event in program.events for value in new_states(event)}
    found: list[Lifetime] = []
    for number, value in enumerate(lives.values):
        if value is None:
            continue
        born, gone, made = lives.born[number] + 1, lives.last[number] + 1, lives.maker[number]
        travels = trips.get(number, []) if number < len(program.values) else [(born, gone)]
        handed, own, at, held = final.get(number, over) + 1, moves.get(number, []), 0, [0] * len(STORES)
        edges = {0, born, gone, made + 1, handed, *(move[0] for move in own), *chain.from_iterable(travels)}
        for start, stop in pairwise([*sorted(edge for edge in edges if 0 <= edge < over), over]):
            while at < len(own) and own[at][0] <= start:
                held[own[at][1]] += own[at][3]
                at += 1
            store = next((place for place, count in enumerate(held, 1) if count > 0), None)
            if store is not None:
                place = store
            elif not born <= start < gone:
                continue
            elif any(begin <= start < end for begin, end in travels):
                place = _UNDER_WAY
            elif start <= made or number in kept:
                place = _REST
            else:
                place = _FINAL if start >= handed else _LOCAL
            if found and (found[-1].value, found[-1].place, found[-1].stop) == (number, place, start):
                start = found.pop().start
            found.append(Lifetime(number, place, start, stop, made))
    return found


def _trips(trace: Trace, rank: int) -> Mapping[int, Sequence[tuple[int, int]]]:
    """Return the communications in which each value was in flight: from after the call to the end of the wait, or, if
    it was sent, until its receive is issued."""
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


@dataclass(frozen=True, slots=True)
class Holding:
    """A value that is alive at the peak.

    `made` is the operation that made it; `used` the last one that ever uses it, None if none does. `state` is "needed"
    if that is still to come, or if the value goes when the helper's call that used it is over; "sent" if it is in
    flight and the other rank has not called receive yet; "dropped" if what brought it is never awaited; "final" if it
    was handed in as final weight; "kept" for an updated weight or optimizer state, which the next training step needs;
    "idle" if no operation needs it any more, so that it could have been deleted before; and "unknown" if the run is not
    a whole training step, which might have needed it. `hidden` if no store holds it and the operation that begins does
    not use it.
    """

    value: Value
    made: Event | None
    used: Event | None
    state: str
    hidden: bool

    @property
    def elements(self) -> Elements:
        """Its size in elements."""
        return self.value.elements()


def holdings(trace: Trace, peak: Peak, whole: bool = True) -> tuple[Holding, ...]:
    """Return every value alive at the peak of a Trace, in order of birth. Their elements sum to the peak.

    `whole` is False for an incomplete run, which may yet have needed any value.
    """
    if not trace.programs or not trace.programs[peak.rank].events:
        return ()
    program, index = trace.programs[peak.rank], peak.index
    events, stays = program.events, stays_of(trace)[peak.rank]
    held, ends = held_at(stays, index), {number: mine[-1][1] for number, mine in stays.items()}
    lives, uses = trace.lifetimes()[peak.rank], own_lifetimes(program)
    final = {number for event in events for number in handed_in(event)}
    sent = {
        number
        for passage in messages(trace)
        if passage.source == peak.rank and passage.sent < index <= in_flight(trace, passage)
        for number in events[passage.sent].inputs
    }
    found: list[Holding] = []
    for number in lives.alive(index, held):
        value, maker = lives.values[number], lives.maker[number]
        assert value is not None, "what is alive is something"
        stored = number in held
        if number >= len(uses.last):  # it was never awaited, so has no id
            state = "dropped"
        elif number in final:
            state = "final"
        elif _is_result(value):
            state = "kept"
        elif uses.last[number] >= index or _within_call(trace, events, uses.last[number], ends.get(number, 0)):
            state = "needed"
        elif number in sent and not stored:
            state = "sent"
        else:
            state = "idle" if whole and trace.error is None else "unknown"
        last, used = uses.last[number] if number < len(uses.last) else -1, None
        if last >= len(events):
            used = next((event for event in reversed(events) if number in event.inputs), None)
        elif last >= 0:  # for a wait, the communication that it waits for
            used = events[events[last].arg[0]] if events[last].op == "wait" else events[last]
        hidden = not stored and number not in events[index].inputs
        found.append(Holding(value, events[maker] if maker >= 0 else None, used, state, hidden))
    return tuple(found)


def _within_call(trace: Trace, events: Sequence[Event], last: int, end: int) -> bool:
    """Tell whether all events from the last use of a value to its end are in one call of a helper."""
    place = trace.place(events[last]) if 0 <= last < end else None
    return place is not None and events[last].op not in place.text and {*map(trace.place, events[last:end])} == {place}


def _is_result(value: Value) -> bool:
    """Tell whether a value is the result of an update: the next step needs it, and this one does not."""
    return isinstance(value, OptState | Weight) and value.step > 0


def lean(trace: Trace) -> Elements:
    """Return the peak that the same operations would have if every value were deleted after its last use.

    Updated values stay as long as they did. It is never more than the peak of the Trace.
    """
    programs: list[Program] = []
    for program in trace.programs:
        stored = [(move, program.values[move[2]]) for move in program.moves]
        moves = [move for move, value in stored if value is not None and _is_result(value)]
        programs.append(Program(program.rank, program.events, program.values, moves))
    return peak(replace(trace, programs=programs)).elements


class Row(NamedTuple):
    """Values at the peak that are alike: of one kind, made on one line, and with one fate.

    `what` names them, `made` says which operation on which line of the student's made them, `fate` what still needs
    them or why they might have gone. `idle` if they could have been deleted before; `place` is the line of their last
    use, and `advice`, in the last of the rows with that place, says what to do there.
    """

    kind: str
    elements: Elements
    what: str
    made: str
    fate: str
    idle: bool
    place: Place | None
    advice: str = ""


def rows(trace: Trace, found: tuple[Holding, ...]) -> list[Row]:
    """Return the table of what is alive: rows of values that are alike, those that are not needed first, then the
    largest."""
    alike: dict[tuple[object, ...], list[Holding]] = defaultdict(list)
    for holding in found:
        made, used = holding.made, holding.used
        lines = made and _call(trace, made), used and _call(trace, used)
        alike[holding.value.kind, *lines, holding.state, holding.hidden].append(holding)
    table, there = list[Row](), defaultdict[Place | None, Elements](int)
    for group in alike.values():
        one, idle, elements = group[0], group[0].state == "idle", sum((holding.elements for holding in group), 0)
        made = "not made on this rank" if one.made is None else f"made by {_call(trace, one.made)}"
        cause = (one.used or one.made) if idle else None
        place = None if cause is None else trace.place(cause)
        table.append(Row(one.value.kind, elements, _what(group), made, _fate(trace, one), idle, place))
        there[place] += elements
    # Rows to be deleted at the same place are adjacent, so that the advice is given only once.
    table.sort(key=lambda row: (not row.idle, -there[row.place] if row.idle else 0, row.place or (), -row.elements))
    for number, (row, after) in enumerate(zip_longest(table, table[1:])):
        if row.idle and (after is None or (after.idle, after.place) != (True, row.place)):
            place = row.place
            where = "" if place is None else f": del it after {place.file}, line {place.line}: {place.text}"
            table[number] = row._replace(advice=f"could have been deleted before{where}")
    return table


def _what(group: list[Holding]) -> str:
    """Return what the values are, and how many: "2 weights of layers 0, 1"."""
    values = [holding.value for holding in group]
    kind, many = values[0].kind, len(group) > 1
    head, of = counted(len(group), kind) if many else kind, "layer"
    layers = {value.layer for value in values}
    if kind == ActivationGrad.kind:  # named after its activation, as in values.subject
        head, of = f"{len(group)} gradients" if many else "gradient", "activation"
        layers = {layer + 1 for layer in layers}
    parts = [numbered(kind, layers) if kind == Activation.kind else f"{head} of {numbered(of, layers)}"]
    batches = {batch for value in values for batch in value.place.batches}
    if batches:
        parts.append(numbered("batch", batches))
    parts += dict.fromkeys(words for value in values for words in value.place.cut_words())
    totals = {value.place.total for value in values}
    if totals != {1} and len(totals) == 1:
        shards = {shard for value in values for shard in value.place.shards}
        parts.append(f"{numbered(values[0].place.noun, shards)} of {totals.pop()}")
    return ", ".join(parts)


FATES: Final = {
    "final": "handed in as final",
    "kept": "kept for the next training step",
    "dropped": "never awaited",
    "sent": "in flight: passed on, and not received yet",
    "unknown": "not used again in this run",
}
"""Words for values of a state. For needed and idle ones, the words name an operation."""


def _fate(trace: Trace, one: Holding) -> str:
    if one.state in FATES:
        return FATES[one.state]
    if one.state == "needed":
        local = ", outside the stores" if one.hidden else ""
        return f"still needed by {title(one.used.op)}{local}" if one.used is not None else "still needed"
    return "never used" if one.used is None else f"last used by {_call(trace, one.used)}"


def _call(trace: Trace, event: Event) -> str:
    place = trace.place(event)
    return title(event.op) + ("" if place is None or place.file in GIVEN else f" {place.within}")
