"""Who brought what to a collective or a message, and who had what afterwards: what the pictures of communication draw.

It is read from a Trace: of a run that failed, too, where some ranks never came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from lib.analysis.event_words import operation, spoken
from lib.errors.wording import ranges
from lib.trace.order import Joined, collectives, messages
from lib.trace.trace import Event, Trace, kept
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.laws import total_elements
from lib.values.operations import MESSAGES
from lib.values.values import Elements, Value, subject

__all__ = ["MESSAGE", "Exchange", "Seat", "beside", "chosen", "exchanges"]

MESSAGE: Final = "message"
"""What `pass_to` and `receive` are together."""


class Seat(NamedTuple):
    """One rank's part: what it brought and got, and how many elements it sent.

    `called` says in words what it called, None where it never came. `fits`: it called what the others called.
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
        """Whether it took place."""
        return self.start is not None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that belong to it, in the order of the group."""
        return tuple(seat.rank for seat in self.seats)

    @property
    def values(self) -> list[Value]:
        """All that is brought or, where the sender never came, received."""
        return [value for seat in self.seats for value in seat.brought or seat.got]

    @property
    def subject(self) -> str:
        """What it is about: "weight of layer 0"; of different things their kinds."""
        found = [*dict.fromkeys(subject(value.kind, value.layer) for value in self.values)]
        return " and ".join(found[:3]) + (", …" if len(found) > 3 else "")


@kept
def exchanges(run: Trace) -> list[Exchange]:
    """All collectives and messages of a run, first those that happened, in the order of their starts."""
    return sorted(_exchanges(run), key=_moment)


def _moment(one: Exchange) -> tuple[bool, int, tuple[int, ...]]:
    return one.start is None, one.issued if one.start is None else one.start, one.ranks


def _exchanges(run: Trace) -> Iterator[Exchange]:
    for joined in collectives(run):
        yield _collective(run, joined)
    yield from _messages(run)


def _collective(run: Trace, joined: Joined) -> Exchange:
    numbers = dict(joined.calls)
    first = run.programs[joined.calls[0][0]].events[joined.calls[0][1]]
    events = {rank: run.programs[rank].events[number] for rank, number in joined.calls}
    happened = len(numbers) == len(first.group) and first.start is not None
    row = COLLECTIVES[first.op]
    root = row.said(first.arg)
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
    issued = min(event.issued for event in events.values())
    start = first.start if happened else None
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


# -- choosing one -----------------------------------------------------------------------------------------------


def chosen(run: Trace, which: object, layer: object, who: str) -> Exchange | None:
    """The first collective of a run, or the first of a name and a layer. None where ranks never communicated at all.

    ValueError says what there is, for `who` was asked.
    """
    found = exchanges(run)
    if not found:
        if which is None:
            return None
        raise ValueError(f"{who}: no {which} in this run; its ranks never communicate")
    name = None if which is None else _name(which)
    if name is None:
        # A collective is what people mean; messages are drawn where there is nothing else.
        here = [one for one in found if one.row is not None] or found
    else:
        here = [one for one in found if one.op == name]
    if not here:
        raise ValueError(f"{who}: no {which} in this run. {_meant(which, found)}It has {_there_is(found)}")
    at = here if layer is None else [one for one in here if one.layer == layer]
    if not at:
        raise ValueError(f"{who}: no {here[0].title} of layer {layer} in this run. It has {_there_is(here)}")
    return at[0]


def _name(which: object) -> str:
    """The name in the table of what somebody may call "allgather", "AG", "all-gather" or "pass_to"."""
    text = str(which).lower().replace(" ", "-")
    for name, row in COLLECTIVES.items():
        if text in (name.lower(), row.word.lower(), row.title.lower(), row.title.lower().replace("-", "_")):
            return name
    return MESSAGE if text in MESSAGES or text in (spoken(op) for op in MESSAGES) else text


def _meant(which: object, found: Sequence[Exchange]) -> str:
    """What somebody who misspelled a name may have meant."""
    close = get_close_matches(str(which), sorted({one.op for one in found}), 1, 0.6)
    return f"Did you mean {close[0]!r}? " if close else ""


def _there_is(found: Iterable[Exchange]) -> str:
    """What a run has, in words: "allgather (layers 0-3), message (layers 1, 2)"."""
    layers: dict[str, set[int]] = {}
    for one in found:
        layers.setdefault(one.op, set()).update([] if one.layer is None else [one.layer])
    return ", ".join(
        repr(op) + (f" (layer{'s' if len(some) > 1 else ''} {ranges(some)})" if some else "")
        for op, some in layers.items()
    )


def beside(run: Trace, one: Exchange, layer: int | None = None) -> list[Exchange]:
    """The same collective in all groups that are arranged like its own, in the order of their ranks: of each group the
    one that is as many calls of that name into the run as this is; of one layer only where that is given."""
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
