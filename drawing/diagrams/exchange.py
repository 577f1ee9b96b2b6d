"""The values that ranks bring to a collective or a message, those they have afterwards, and the words for it.

All is read from a Trace, even that of a failed run, where some ranks never came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Final, NamedTuple

from drawing.diagrams.tiles import caption
from lib.cluster.costs import units
from lib.errors.wording import amount, counted, exact, numbered, plural, ranges, these
from lib.trace.event import operation, spoken
from lib.trace.order import Joined, collectives, messages
from lib.trace.trace import Event, Trace, kept
from lib.values.collectives import COLLECTIVES, RING, TWICE_ROUND, Collective
from lib.values.dims import AVERAGED
from lib.values.laws import average, gather, reduce, total_elements
from lib.values.operations import MESSAGES
from lib.values.values import Elements, Value, describe, subject

MESSAGE: Final = "message"  # the name of a `pass_to` and its `receive` together


class Seat(NamedTuple):
    """One rank's part: what it brought and got, and how many elements it sent.

    `called` names its call in words, None where it never came. `fits`: its call matches those of the others.
    """

    rank: int
    called: str | None
    fits: bool = True
    brought: tuple[Value, ...] = ()
    got: tuple[Value, ...] = ()
    sent: Elements = 0


class Exchange(NamedTuple):
    """A collective or a message. `start` and `length` are in ticks; without a start it never happened.

    `row` is None for a message. `root` is the place of the root among the seats.
    """

    op: str
    title: str
    row: Collective | None
    layer: int | None
    seats: tuple[Seat, ...]
    issued: int
    start: int | None
    length: int
    root: int = 0

    @property
    def happened(self) -> bool:
        """Tell whether it took place."""
        return self.start is not None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that belong to it, in the order of the group."""
        return tuple(seat.rank for seat in self.seats)

    @property
    def values(self) -> list[Value]:
        """All values that are brought or, where the sender never came, received."""
        return [value for seat in self.seats for value in seat.brought or seat.got]

    @property
    def subject(self) -> str:
        """Its subject: "weight of layer 0"; for different things their kinds."""
        found = [*dict.fromkeys(subject(value.kind, value.layer) for value in self.values)]
        return " and ".join(found[:3]) + (", …" if len(found) > 3 else "")


@kept
def exchanges(run: Trace) -> list[Exchange]:
    """Return all collectives and messages of a run, first those that happened, in the order of their starts."""
    every = [*(_collective(run, joined) for joined in collectives(run)), *_messages(run)]
    return sorted(every, key=lambda one: (one.start is None, one.issued if one.start is None else one.start, one.ranks))


def _collective(run: Trace, joined: Joined) -> Exchange:
    events = {rank: run.programs[rank].events[number] for rank, number in joined.calls}
    first = next(iter(events.values()))
    happened = len(events) == len(first.group) and first.start is not None
    row, root = COLLECTIVES[first.op], COLLECTIVES[first.op].said(first.arg)
    brought = {rank: run.programs[rank].values_of(event.inputs) for rank, event in events.items()}
    sent: Sequence[Elements] = [0] * len(first.group)
    if happened:
        sent = row.sent(row.brought([brought[rank] for rank in first.group]), root)
    seats: list[Seat] = []
    for rank, elements in zip(first.group, sent, strict=True):
        event = events.get(rank)
        if event is None:
            seats.append(Seat(rank, None))
            continue
        got = run.programs[rank].values_of(event.outputs) if happened else []
        fits = (event.op, event.layer, event.arg, event.group) == (first.op, first.layer, first.arg, first.group)
        seats.append(Seat(rank, operation(event), fits, tuple(brought[rank]), tuple(got), elements))
    issued, start = min(event.issued for event in events.values()), first.start if happened else None
    return Exchange(first.op, row.title, row, first.layer, tuple(seats), issued, start, first.length, root)


def _messages(run: Trace) -> Iterator[Exchange]:
    taken: set[tuple[int, int]] = set()
    for source, number, target, received in messages(run):
        sent = run.programs[source].events[number]
        values = tuple(run.programs[source].values_of(sent.inputs))
        event = None if received is None else run.programs[target].events[received]
        if received is not None:
            taken.add((target, received))
        got = () if event is None else tuple(run.programs[target].values_of(event.outputs))
        to = Seat(target, None if event is None else operation(event), got=got)
        yield _message(Seat(source, operation(sent), True, values, (), total_elements(values)), to, sent, event)
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "receive" and event.peer is not None and (program.rank, number) not in taken:
                yield _message(Seat(event.peer, None), Seat(program.rank, operation(event)), event, None)


def _message(source: Seat, target: Seat, issued: Event, received: Event | None) -> Exchange:
    start = None if received is None else issued.start
    over = issued.length if received is None or received.end is None else received.end - (start or 0)
    values = source.brought or target.got
    layer = values[0].layer if values else None
    return Exchange(MESSAGE, "message", None, layer, (source, target), issued.issued, start, over)


def chosen(run: Trace, which: object, layer: object, who: str) -> Exchange | None:
    """Return the first collective of a run, or the first of a name and a layer. None without one.

    ValueError lists what there is, in the name of `who`.
    """
    found = exchanges(run)
    if not found and which is None:
        return None
    if not found:
        raise ValueError(f"{who}: no {which} in this run; its ranks never communicate")
    if which is None:  # people mean collectives; messages are drawn only without any
        here = [one for one in found if one.row is not None] or found
    else:
        here = [one for one in found if one.op == _name(which)]
    if not here:
        close = get_close_matches(str(which), sorted({one.op for one in found}), 1, 0.6)
        meant = f"Did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{who}: no {which} in this run. {meant}It has {_there_is(found)}")
    at = here if layer is None else [one for one in here if one.layer == layer]
    if not at:
        raise ValueError(f"{who}: no {here[0].title} of layer {layer} in this run. It has {_there_is(here)}")
    return at[0]


def _name(which: object) -> str:
    """The table's name for "allgather", "AG", "all-gather" or "pass_to"."""
    text = str(which).lower().replace(" ", "-")
    for name, row in COLLECTIVES.items():
        if text in (name.lower(), row.word.lower(), row.title.lower(), row.title.lower().replace("-", "_")):
            return name
    return MESSAGE if text in MESSAGES or text in (spoken(op) for op in MESSAGES) else text


def _there_is(found: Iterable[Exchange]) -> str:
    """List what a run has: "allgather (layers 0-3), message (layers 1, 2)"."""
    layers: dict[str, set[int]] = {}
    for one in found:
        layers.setdefault(one.op, set()).update([] if one.layer is None else [one.layer])
    return ", ".join(
        f"{op!r} ({plural('layer', len(some))} {ranges(some)})" if some else repr(op) for op, some in layers.items()
    )


def beside(run: Trace, one: Exchange, layer: int | None = None) -> list[Exchange]:
    """Return the same collective in all groups that are arranged like its own, in the order of their ranks: the call
    with the same number among each group's calls of that name; only those of one layer where that is given."""
    alike: dict[tuple[int, ...], list[Exchange]] = {}
    for other in exchanges(run):
        if other.op == one.op and len(other.seats) == len(one.seats):
            alike.setdefault(other.ranks, []).append(other)
    number = alike[one.ranks].index(one)
    # Groups of an arrangement share no rank: those of another axis of the mesh are another collective.
    used, found = set(one.ranks), [one]
    for ranks, calls in alike.items():
        if one.row is not None and number < len(calls) and used.isdisjoint(ranks):
            used.update(ranks)
            found += [calls[number]] if layer in (None, calls[number].layer) else []
    return sorted(found, key=lambda other: other.ranks)


def headline(shown: Sequence[Exchange]) -> str:
    """Name a collective: "all-gather of layer 0 (weight), ranks 0-3"."""
    subjects = [*dict.fromkeys(one.subject for one in shown if one.subject)]
    about, one, when = f": {'; '.join(subjects)}" if subjects else "", shown[0], ""
    if one.start is not None and len(shown) == 1:
        when = f", time {exact(units(one.start))} to {exact(units(one.start + one.length))}"
    return f"{one.title[:1].upper()}{one.title[1:]}{about}{when}"


def group_name(trace: Trace, one: Exchange) -> str:
    """Name a group of ranks, by its place on the axes of the mesh that its members share."""
    mesh = trace.mesh
    ranks = numbered("rank", one.ranks)
    if mesh is None or len(mesh.axes) < 2:
        return ranks
    places = [mesh.coordinates(rank) for rank in one.ranks]
    shared = [f"{axis} {places[0][axis]}" for axis in mesh.axes if len({place[axis] for place in places}) == 1]
    return " · ".join([*shared, ranks] if len(shared) < len(mesh.axes) else [ranks])


def idea(one: Exchange) -> str:
    """Say in one sentence what it does with the ranks' values."""
    if one.row is None:
        (source, target), sender = one.ranks, one.seats[0]
        if one.happened:
            return f"Rank {source} sends, rank {target} receives. Nobody else takes part."
        if sender.called is None:
            return f"Rank {target} waits for a message that rank {source} never sends."
        return f"Rank {source} sends a message that rank {target} never receives."
    if missing := [seat.rank for seat in one.seats if seat.called is None]:
        came = len(one.seats) - len(missing)
        return f"It needs all {counted(len(one.seats), 'rank')}: {came} came, {these('rank', missing)} never did."
    if not one.happened:
        fits = all(seat.fits for seat in one.seats)
        why = "what they brought does not fit together" if fits else "they did not call the same collective"
        return f"All ranks of the group came, but {why}."
    got = [seat for seat in one.seats if seat.got]
    who = "every rank gets" if len(got) == len(one.seats) else f"{these('rank', [seat.rank for seat in got])} gets"
    if one.row.law is gather:
        return f"Each rank brings a part. They are put together, and {who} the whole."
    if one.row.law is reduce:
        if got and is_cut(one):
            return "Each rank brings its own. They are added up, the sum is cut into shards, and each rank gets one."
        if any(value.place.part(AVERAGED["rows"]) for value in one.values):
            brings = "Each rank brings the sums over its part, and beside them how much they are of."
            return f"{brings} All of it is added up, and {who} the mean over all."
        if any(value.place.open and value.place.schema.running for value in one.values):
            brings = "Each rank brings its own, with what it has of the sum of a softmax beside it."
            return f"{brings} They are added up, and {who} the sum."
        return f"Each rank brings its own. They are added up, and {who} the sum, which is as large as one of them."
    if one.row.law is average:
        return f"Each rank brings a mean, all of equal parts, and {who} the mean of these."
    if one.row.bucket:
        return f"Each rank brings a list. What has the same place in all lists is added up, and {who} the sums."
    if one.row.root:
        return f"Rank {one.ranks[one.root]} is the root: what it brings, every rank gets."
    return "Arrows show whose value goes to whom."


def is_cut(one: Exchange) -> bool:
    """Check if members get a part of the result. (The sum of a softmax is smaller than its summands.)"""
    return any(not got.place.covers(own.place) for seat in one.seats for got in seat.got for own in seat.brought[:1])


def cost(one: Exchange, left_out: int = 0) -> str:
    """Say what it costs: its time, and what each rank sends."""
    more = f" {counted(left_out, 'more group')} like these." if left_out else ""
    if not one.happened:
        return more.strip()
    took = f"It takes {exact(units(one.length))}."
    if one.row is None:
        return f"{took} Rank {one.ranks[0]} sends {_elements(one.seats[0].sent)}.{more}"
    sent = [seat.sent for seat in one.seats]
    ring = one.row.travel in (RING, TWICE_ROUND) and one.row.law in (gather, reduce)
    who = "In a ring, each" if ring else "Each"
    if min(sent) != max(sent):
        return f"{took} {who} rank sends between {amount(Fraction(min(sent)))} and {_elements(max(sent))}.{more}"
    average = "" if one.row.sends is not None or ring else " on average"
    return f"{took} {who} rank sends {_elements(sent[0])}{_compared(one)}{average}.{more}"


def _elements(number: int | Fraction) -> str:
    return f"{amount(Fraction(number))} {plural('element', float(number))}"


def _compared(one: Exchange) -> str:
    row, sent, kinds = one.row, one.seats[0].sent, {value.kind for value in one.values}
    if row is None or row.many or not sent or len(kinds) > 1:
        return ""
    if row.law is gather:  # the size of the result; with padded parts more is sent
        whole = total_elements(one.seats[0].got)
    else:
        whole = row.size(row.brought([seat.brought for seat in one.seats]), one.root, total_elements)
    if not whole:
        return ""
    share, place = Fraction(sent) / Fraction(whole), one.values[0].place
    part = place.open or not all(part.whole for part in place.dims[1:])
    if share == 1 and part and not place.sharded:
        return ""
    twice = row.travel == TWICE_ROUND
    once = share / 2 if twice else share
    words = ("twice " if twice else "") + (f"{once} of " if once < 1 else f"{once} times " if once > 1 else "")
    if place.sharded and whole < place.schema.size:  # the moved value is itself a part
        return f" ({words}{amount(Fraction(whole))})"
    return f" ({words}a whole {kinds.pop()})"


def summary(trace: Trace, one: Exchange) -> str:
    """Return the picture in words, for those who cannot see it."""
    shown = one.seats if len(one.seats) <= 8 else (*one.seats[:6], *one.seats[-2:])
    seats = [_seat_words(one, seat) for seat in shown]
    lines = [f"{headline([one])}, {group_name(trace, one)}. {idea(one)}", *seats, cost(one)]
    return f"<{' '.join(line for line in lines if line)}>"


def _seat_words(one: Exchange, seat: Seat) -> str:
    """Say what a rank brings and gets, without the kind of a single value, which the headline names."""
    if seat.called is None:
        return f"Rank {seat.rank} never came."
    if not seat.fits:
        return f"Rank {seat.rank} called {seat.called}."
    brings, gets = (
        ", ".join(caption(values[0])) if len(values) == 1 else "; ".join(map(describe, values[:4])) or "nothing"
        for values in (seat.brought, seat.got)
    )
    return f"Rank {seat.rank} brings {brings}" + (f", gets {gets}." if one.happened else ".")
