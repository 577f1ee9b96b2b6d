"""What the pictures of a collective say in words: what happens, what it costs, and all of it for who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from drawing.communication.exchange import Exchange, Seat
from drawing.communication.tiles import caption
from lib.cluster.costs import units
from lib.errors.wording import amount, counted, exact, numbered, plural, these
from lib.trace.trace import Trace
from lib.values.collectives import RING, TWICE_ROUND
from lib.values.dims import AVERAGED
from lib.values.laws import average, gather, reduce, total_elements
from lib.values.values import Value, describe

__all__ = ["cost", "group_name", "headline", "idea", "is_cut", "summary"]


def headline(shown: Sequence[Exchange]) -> str:
    """What it is: "all-gather of layer 0 (weight), ranks 0-3"."""
    subjects = [*dict.fromkeys(one.subject for one in shown if one.subject)]
    about = f": {'; '.join(subjects)}" if subjects else ""
    one = shown[0]
    when = ""
    if one.start is not None and len(shown) == 1:
        when = f", time {exact(units(one.start))} to {exact(units(one.start + one.length))}"
    return f"{one.title[:1].upper()}{one.title[1:]}{about}{when}"


def group_name(trace: Trace, one: Exchange) -> str:
    """What a group of ranks is called: where it stands on the axes of the mesh that its members share."""
    mesh = trace.mesh
    ranks = numbered("rank", one.ranks)
    if mesh is None or len(mesh.axes) < 2:
        return ranks
    places = [mesh.coordinates(rank) for rank in one.ranks]
    shared = [f"{axis} {places[0][axis]}" for axis in mesh.axes if len({place[axis] for place in places}) == 1]
    return " · ".join([*shared, ranks] if len(shared) < len(mesh.axes) else [ranks])


def idea(one: Exchange) -> str:
    """One sentence about what it does to what the ranks bring."""
    if not one.happened:
        return _why_not(one)
    if one.row is None:
        source, target = one.ranks
        return f"Rank {source} sends, rank {target} receives. Nobody else takes part."
    got = [seat for seat in one.seats if seat.got]
    who = "every rank gets" if len(got) == len(one.seats) else f"{these('rank', [seat.rank for seat in got])} gets"
    if one.row.law is gather:
        return f"Each rank brings a part. They are put together, and {who} the whole."
    if one.row.law is reduce:
        if got and is_cut(one):
            return "Each rank brings its own. They are added up, the sum is cut into shards, and each rank gets one."
        if any(value.place.part(AVERAGED["rows"]) for value in one.values):
            return (
                "Each rank brings the sums over its part, and beside them how much they are of. All of it is added up, "
                f"and {who} the mean over all."
            )
        if any(value.place.open and value.place.schema.running for value in one.values):
            return (
                "Each rank brings its own, with what it has of the sum of a softmax beside it. They are added up, and "
                f"{who} the sum."
            )
        return f"Each rank brings its own. They are added up, and {who} the sum, which is as large as one of them."
    if one.row.law is average:
        return f"Each rank brings a mean, all of equal parts, and {who} the mean of these."
    if one.row.bucket:
        return f"Each rank brings a list. What has the same place in all lists is added up, and {who} the sums."
    if one.row.root:
        return f"Rank {one.ranks[one.root]} is the root: what it brings, every rank gets."
    return "Arrows show whose value goes to whom."


def is_cut(one: Exchange) -> bool:
    """Whether members get a part of what becomes of it. (The sum of a softmax is smaller than what it is made of.)"""
    return any(not got.place.covers(own.place) for seat in one.seats for got in seat.got for own in seat.brought[:1])


def _why_not(one: Exchange) -> str:
    """Why one never happened."""
    missing = [seat.rank for seat in one.seats if seat.called is None]
    if one.row is None:
        source, target = one.seats
        if source.called is None:
            return f"Rank {target.rank} waits for a message that rank {source.rank} never sends."
        return f"Rank {source.rank} sends a message that rank {target.rank} never receives."
    if missing:
        came = len(one.seats) - len(missing)
        return f"It needs all {counted(len(one.seats), 'rank')}: {came} came, {these('rank', missing)} never did."
    if not all(seat.fits for seat in one.seats):
        return "All ranks of the group came, but they did not call the same collective."
    return "All ranks of the group came, but what they brought does not fit together."


def cost(one: Exchange, left_out: int = 0) -> str:
    """What it costs: its time, and what each rank sends."""
    more = f" {counted(left_out, 'more group')} like these." if left_out else ""
    if not one.happened:
        return more.strip()
    took = f"It takes {exact(units(one.length))}."
    if one.row is None:
        return f"{took} Rank {one.ranks[0]} sends {_elements(one.seats[0].sent)}.{more}"
    sent = [seat.sent for seat in one.seats]
    ring = "In a ring, " if one.row.travel in (RING, TWICE_ROUND) and one.row.law in (gather, reduce) else ""
    if min(sent) != max(sent):
        most = f"between {amount(Fraction(min(sent)))} and {_elements(max(sent))}"
        return f"{took} {ring or 'Each'}{'each ' if ring else ' '}rank sends {most}.{more}"
    average = "" if one.row.sends is not None or ring else " on average"
    start = f"{ring}each" if ring else "Each"
    return f"{took} {start} rank sends {_elements(sent[0])}{_compared(one)}{average}.{more}"


def _elements(number: int | Fraction) -> str:
    return f"{amount(Fraction(number))} {plural('element', float(number))}"


def _compared(one: Exchange) -> str:
    """What is sent, as a share of the whole thing that is moved."""
    row, sent = one.row, one.seats[0].sent
    kinds = {value.kind for value in one.values}
    if row is not None and row.law is gather:  # what comes of it; of padded parts more is sent
        whole = total_elements(one.seats[0].got)
    else:
        whole = 0 if row is None else row.size(row.brought([seat.brought for seat in one.seats]), one.root)
    if not sent or not whole or len(kinds) > 1 or (row is not None and row.many):
        return ""
    share = Fraction(sent) / Fraction(whole)
    place = one.values[0].place
    part = place.open or not all(part.whole for part in place.dims[1:])
    if share == 1 and part and not place.sharded:
        return ""
    twice = row is not None and row.travel == TWICE_ROUND
    once = share / 2 if twice else share
    words = ("twice " if twice else "") + (f"{once} of " if once < 1 else f"{once} times " if once > 1 else "")
    if place.sharded and whole < place.schema.size:  # what is moved is itself a part
        return f" ({words}{amount(Fraction(whole))})"
    return f" ({words}a whole {kinds.pop()})"


def summary(trace: Trace, one: Exchange) -> str:
    """The picture in words, for who cannot see it."""
    shown = one.seats if len(one.seats) <= 8 else (*one.seats[:6], *one.seats[-2:])
    seats = [_seat_words(one, seat) for seat in shown]
    lines = [f"{headline([one])}, {group_name(trace, one)}. {idea(one)}", *seats, cost(one)]
    return f"<{' '.join(line for line in lines if line)}>"


def _seat_words(one: Exchange, seat: Seat) -> str:
    if seat.called is None:
        return f"Rank {seat.rank} never came."
    if not seat.fits:
        return f"Rank {seat.rank} called {seat.called}."
    found = f"Rank {seat.rank} brings {_short(seat.brought)}"
    return f"{found}, gets {_short(seat.got)}." if one.happened else f"{found}."


def _short(values: Sequence[Value]) -> str:
    """What somebody has, without the kind where there is one value only, which the headline names."""
    if not values:
        return "nothing"
    return ", ".join(caption(values[0])) if len(values) == 1 else "; ".join(describe(value) for value in values[:4])
