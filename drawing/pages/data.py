"""The data of the page to step through: one or two Traces, with every text and colour decided here already.

Times are in time units, sizes in elements, colours from the palette. Texts, labels, values and styles that occur often
are in tables, and everything else refers to their numbers. `fields` names the parts of each kind of row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from drawing.canvas.palette import KINDS, PASSES, band, fill_and_border, ink_on, layer_colour, looks_of
from drawing.timeline.boxes import Box, Timeline, boxes, gathers, labels, size
from drawing.timeline.paint import place_rows
from drawing.values import batches_in, slot
from lib.analysis.dependencies import slowed
from lib.analysis.difference import difference, figures_of, said
from lib.analysis.figures import makespan
from lib.analysis.memory import PLACES, whereabouts
from lib.cluster.costs import TICKS
from lib.errors.wording import counted, numbered, runs
from lib.trace.event import STORES, event_words, ranges, spoken
from lib.trace.order import awaited_at_once, meetings, messages
from lib.trace.trace import Event, Program, Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS
from lib.values.operations import COMMUNICATION, TIMED
from lib.values.placement import Place
from lib.values.values import Activation, ActivationGrad, Value

FIELDS: Final = {
    "event": [
        *("words", "op", "layer", "batches", "issued", "start", "end", "place"),
        *("group", "peer", "inputs", "outputs", "mode", "sampled", "about"),
    ],
    "box": ["event", "style", "start", "end", "lane", "label"],
    "span": ["value", "place", "start", "stop", "born"],
    "value": [
        *("kind", "column", "place", "row", "batches", "totalBatches", "shards", "total", "summed"),
        *("partial", "elements", "words"),
    ],
    "message": ["source", "send", "target", "receive", "words"],
    "style": ["fill", "border", "ink", "band", "nightFill", "nightBorder", "nightInk", "share"],
}
"""The parts of rows, in order. Of an event, `mode` is 0 for what runs on the rank's own clock, 1 for communication
that it awaits at once and 2 for communication beside computation; `sampled` says that memory is sampled at its start,
and `about` is the number of the event that a wait waits for. Of a value, `summed` says what is written on a gradient
of several batches, which are added up in it and take no room; `partial` says that it is a part of a sum that is not
done. -1 is none in numbers of tables, null elsewhere."""


class Table:
    """Things by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.rows: list[Any] = []

    def add(self, key: Hashable, row: Callable[[], Any] | None = None) -> int:
        """Return the number of a thing; `row` makes the page's data for it, where that is not the thing itself."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.rows)
            self.rows.append(key if row is None else row())
        return number


class Tables:
    """All tables of a page: texts, labels of boxes, looks of boxes, values, and places in the source."""

    def __init__(self) -> None:
        self.texts, self.labels, self.styles, self.values, self.places = (Table() for _ in range(5))


FEW: Final = 2
"""Most gifts per member of an exchange that are listed and drawn one by one; more would be a thicket."""


class Gift(NamedTuple):
    """A value that one member of an exchange gives another: rank and event of the one and of the other."""

    source: int
    sent: int
    target: int
    received: int
    value: Value


@kept
def gifts(run: Trace) -> list[Gift]:
    """List the gifts in each exchange of lists, such as one of halos, in which few members have anything for each
    other. An empty value, or one that stays where it is, is not a gift."""
    found: list[Gift] = []
    for members in meetings(run):
        rank, number = members[0]
        row, given = COLLECTIVES[run.programs[rank].events[number].op], list[Gift]()
        for place, (source, sent) in enumerate(members) if row.many and not row.bucket else ():
            program = run.programs[source]
            targets = range(len(members)) if row.origins is None else row.origins(place, len(members), 0)
            for at, value in zip(targets, program.values_of(program.events[sent].inputs), strict=False):
                if at != place and value.elements():
                    given.append(Gift(source, sent, *members[at], value))
        found += given if len(given) <= FEW * len(members) else []
    return found


@kept
def _told(run: Trace) -> dict[tuple[int, int], str]:
    """A description of what a rank gives and gets, by rank and event of an exchange."""
    gives, gets = (defaultdict[tuple[int, int], list[str]](list) for _ in range(2))
    for source, sent, target, received, value in gifts(run):
        words = _part(value.place) or str(value)
        words = f"the gradient of {words}" if isinstance(value, ActivationGrad) else words
        gives[source, sent].append(f"{words} to rank {target}")
        gets[target, received].append(f"{words} from rank {source}")
    found = {at: f"gives {', '.join(words)}" for at, words in gives.items()}
    for at, words in gets.items():
        found[at] = f"{found[at]}; " if at in found else ""
        found[at] += f"gets {', '.join(words)}"
    return found


def words_of(trace: Trace, program: Program, number: int) -> str:
    """Return an event in words, and why it was slow."""
    event = program.events[number]
    if event.op == "wait" and event.arg:
        return f"wait for {_about(trace, program, event.arg[0])}"
    why = slowed(trace, program.rank, number)
    return _about(trace, program, number) + (f"; {why}" if why else "")


def _about(trace: Trace, program: Program, number: int) -> str:
    """An event in words, with its gifts, or with the part of an activation that it is about."""
    event = program.events[number]
    words = event_words(event, trace.ranks)
    if (told := _told(trace).get((program.rank, number))) is not None:
        return f"{words}: {told}"
    values = program.values_of(event.outputs) or program.values_of(event.inputs)
    parts = {_part(value.place) for value in values if isinstance(value, Activation | ActivationGrad)}
    return ", ".join([words, *filter(None, parts)]) if len(parts) == 1 else words


def _part(place: Place) -> str:
    """Name the part of an activation, but for its batches: "rows 4-11"."""
    words: list[str] = []
    for role, pieces, grid in place.rest:
        kind = DIMS[role]
        if not kind.partial and not pieces:
            words.append(f"no {kind.plural}")
        elif not kind.partial:
            part = f"{kind.plural} {ranges(frozenset(pieces))} of {grid}"
            words.append(numbered(kind.noun, pieces) if kind.counted else part)
    return ", ".join(words)


BUDGET: Final = 40_000
"""Most events in one page; a larger run shows its first ranks. A page of this size has some 8 MB."""


def encode(named: Sequence[tuple[str, Trace]], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything that the page shows, ready for JSON. Equal runs give equal data."""
    tables = Tables()
    layers = max((trace.layers for _, trace in named), default=1)
    timelines = [boxes(trace, shown_ranks(trace)) for _, trace in named]
    shown = [_run(name, trace, line, layers, tables) for (name, trace), line in zip(named, timelines, strict=True)]
    lines = list(notes)
    if len(named) == 2:
        (one, first), (other, second) = named
        lines.append(said(difference(first, second), one, other))
    found = {box.look for line in timelines for box in line.boxes}
    ramp = [(layer, layer_colour(layer, layers)) for layer in range(0, layers, max(1, -(-layers // 12)))]
    return {
        "fields": FIELDS,
        "kinds": list(KINDS),
        "stores": list(STORES),
        "whereabouts": list(PLACES),
        "layers": [(layer, own, ink_on(own), own.night, ink_on(own).night) for layer, own in ramp],
        "legend": legend(layers, found) if named else [],
        "notes": lines,
        "runs": shown,
        "texts": tables.texts.rows,
        "labels": tables.labels.rows,
        "styles": tables.styles.rows,
        "values": tables.values.rows,
        "places": tables.places.rows,
    }


def shown_ranks(trace: Trace) -> int:
    """Count the ranks that the page shows: as many as the budget of events allows, and at least one."""
    events = [*accumulate(len(program.events) for program in trace.programs[:128])]
    return max(1, sum(count <= BUDGET for count in events))


def moment(time: int) -> float:
    """Return ticks as time units, short where they are whole."""
    return time // TICKS if time % TICKS == 0 else time / TICKS


def _run(name: str, trace: Trace, timeline: Timeline, layers: int, tables: Tables) -> dict[str, Any]:
    count = len(timeline.lanes)
    rows, over = place_rows(timeline.lanes, 0), makespan(trace)
    programs = [_program(trace, program, tables) for program in trace.programs[:count]]
    for box in timeline.boxes:
        event = trace.programs[box.rank].events[box.number]
        words, below = labels(box, event)
        look, label = tables.styles.add(style(box, event, layers)), tables.labels.add((tuple(words), below))
        placed = [box.number, look, moment(box.start), moment(box.end), box.lane, label]
        programs[box.rank]["boxes"].append(placed)
    rest = trace.ranks - count
    return {
        "name": name,
        "puzzle": trace.puzzle,
        "size": size(trace),
        "layers": trace.layers,
        "weighted": [int(kind.takes == "weight") for kind in trace.shape.kinds],
        "end": moment(over),
        "last": moment(max(over, *(event.issued for _, event in trace.events()), 0)),
        "edge": moment(timeline.end),
        "figures": figures_of(trace),
        "error": trace.error,
        "more": f"and {counted(rest, 'more rank', ',')}, not in this page" if rest > 0 else "",
        "rows": {"tops": [*rows.tops.values()], "height": rows.height, "thin": rows.thin, "bottom": rows.bottom},
        "lanes": timeline.lanes,
        "ranks": programs,
        "messages": _messages(trace, count, tables),
    }


def _program(trace: Trace, program: Program, tables: Tables) -> dict[str, Any]:
    ids = [-1 if value is None else _value(value, tables) for value in trace.lifetimes()[program.rank].values]
    return {
        "events": [_event(trace, program, number, ids, tables) for number in range(len(program.events))],
        "spans": [[ids[life.value], *life[1:]] for life in whereabouts(trace, program.rank)],
        "boxes": [],
    }


def _event(trace: Trace, program: Program, number: int, ids: list[int], tables: Tables) -> list[Any]:
    event = program.events[number]
    place = trace.place(event)
    about = event.arg[0] if event.op == "wait" and event.arg else -1
    mode = 0 if event.op not in COMMUNICATION else 1 if awaited_at_once(trace, program, number) else 2
    return [
        tables.texts.add(words_of(trace, program, number)),
        tables.texts.add(spoken(event.op)),
        event.layer,
        tables.texts.add(ranges(event.batches)),
        moment(event.issued),
        None if event.start is None else moment(event.start),
        None if event.start is None else moment(event.start + event.length),
        -1 if place is None else tables.places.add(tuple(place)),
        tables.texts.add(ranges(frozenset(event.group))),
        event.peer,
        [ids[value] for value in event.inputs],
        [ids[value] for value in event.outputs],
        mode,
        int(event.op in TIMED and event.start is not None),
        about,
    ]


def _value(value: Value, tables: Tables) -> int:
    def row() -> list[Any]:
        part = slot(value)
        across, columns = part.across
        batches, shards = _ends(across) if part.batches else [], _ends(part.shards)
        kind = list(KINDS).index(value.kind)
        where: list[Any] = [part.column, part.place, part.row, batches, columns, shards, part.total]
        written = batches_in(part) if part.summed and part.total_batches > 1 else None
        if part.column == "between" and part.total_columns > 1:
            written = ""  # its cells are rows of batches, too small for numbers
        size = value.elements()  # whole numbers stay whole
        size = int(size) if size == int(size) else float(size)
        return [kind, *where, written, bool(part.partial), size, str(value)]

    return tables.values.add((type(value), value), row)


def _ends(items: frozenset[int]) -> list[int]:
    """A set of numbers as first and last of each run: {0, 1, 2, 5} is [0, 2, 5, 5]."""
    return [end for first, after in runs(items) for end in (first, after - 1)]


def _messages(trace: Trace, count: int, tables: Tables) -> list[list[Any]]:
    """Sends with their receives, -1 where there is none; and the gifts between members of an exchange."""
    found: list[list[Any]] = []
    for source, sent, target, received in sorted(messages(trace), key=lambda one: (one.source, one.target, one.sent)):
        if max(source, target) >= count:
            continue
        values = trace.programs[source].values_of(trace.programs[source].events[sent].inputs)
        words = "; ".join(map(str, values)) or "no value"
        found.append([source, sent, target, -1 if received is None else received, tables.texts.add(words)])
    shown = [gift for gift in gifts(trace) if max(gift.source, gift.target) < count]
    return found + [[*gift[:4], tables.texts.add(str(gift.value))] for gift in shown]


def style(box: Box, event: Event, layers: int) -> tuple[str, str, str, str, str, str, str, float]:
    """Return the looks of a box: fill, border, ink; the colour of its band; fill, border and ink by night; and how much
    of it the band is (see `band`)."""
    own = layer_colour(event.layer or 0, layers)
    fill, border = fill_and_border(box.look, own)
    share = 0.0 if event.layer is None else band(box.look, gathers(event.op))
    ink = border if box.look == "pending" else ink_on(fill)
    return fill, border, ink, own if share else "", fill.night, border.night, ink.night, share


def legend(layers: int, found: set[str]) -> list[list[str | float]]:
    """Return fill and border by day and night of the operations that occur, the band of a pass, and their meaning."""
    own = layer_colour(0, layers)
    shown = [("forward", (own, own), "forward (number: batch)"), *looks_of(found, own)]
    return [
        [*pair, *(one.night for one in pair), band(look) if look in PASSES else 0.0, words]
        for look, pair, words in shown
    ]
