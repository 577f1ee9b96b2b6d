"""What the page is given: one or two Traces as plain data, with every text and colour decided here already.

Times are in time units, sizes in elements, colours from the palette. Texts, labels, values and styles that occur often
are in tables, and everything else says their numbers. Rows of one kind have the names of their parts in `fields`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from drawing.canvas.palette import KINDS
from drawing.stepper.tables import FIELDS, Tables
from drawing.stepper.theme import layer_ramp, legend, style
from drawing.stepper.words import gifts, words_of
from drawing.timeline.boxes import Box, Timeline, boxes
from drawing.timeline.labels import labels, size
from drawing.timeline.paint import place_rows
from drawing.values import batches_in, slot
from lib.analysis.difference import difference, figures_of, said
from lib.analysis.event_words import ranges, spoken
from lib.analysis.figures import makespan
from lib.analysis.memory import PLACES, whereabouts
from lib.cluster.costs import TICKS
from lib.errors.wording import counted, runs
from lib.trace.order import awaited_at_once, messages
from lib.trace.trace import STORES, Program, Trace
from lib.values.operations import COMMUNICATION, TIMED
from lib.values.values import Value

__all__ = ["encode", "moment", "shown_ranks"]

BUDGET: Final = 40_000
"""Events in one page; of a larger run its first ranks are shown. A page of so many has some 8 MB."""


def encode(named: Sequence[tuple[str, Trace]], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Everything that the page shows, ready for JSON. Equal runs give equal data."""
    tables = Tables()
    layers = max((trace.layers for _, trace in named), default=1)
    timelines = [boxes(trace, shown_ranks(trace)) for _, trace in named]
    shown = [_run(name, trace, line, layers, tables) for (name, trace), line in zip(named, timelines, strict=True)]
    lines = list(notes)
    if len(named) == 2:
        (one, first), (other, second) = named
        lines.append(said(difference(first, second), one, other))
    found = {(box.look, box.lane > 0) for line in timelines for box in line.boxes}
    return {
        "fields": FIELDS,
        "kinds": list(KINDS),
        "stores": list(STORES),
        "whereabouts": list(PLACES),
        "layers": layer_ramp(layers),
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
    """How many ranks the page shows: as many as there is a budget of events for, and at least one."""
    shown = events = 0
    for program in trace.programs[:128]:
        events += len(program.events)
        if shown and events > BUDGET:
            break
        shown += 1
    return shown


def moment(time: int) -> float:
    """Ticks as time units, short where they are whole."""
    return time // TICKS if time % TICKS == 0 else time / TICKS


def _run(name: str, trace: Trace, timeline: Timeline, layers: int, tables: Tables) -> dict[str, Any]:
    count = len(timeline.lanes)
    rows = place_rows(timeline.lanes, 0)
    over = makespan(trace)
    programs = [_program(trace, program, tables) for program in trace.programs[:count]]
    for box in timeline.boxes:
        programs[box.rank]["boxes"].append(_box(trace, box, layers, tables))
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
    """One rank: its events, and what it holds when. Values are numbers of the table of the whole page."""
    values = trace.lifetimes()[program.rank].values
    ids = [-1 if value is None else _value(value, tables) for value in values]
    return {
        "events": [_event(trace, program, number, ids, tables) for number in range(len(program.events))],
        "spans": [[ids[life.value], *life[1:]] for life in whereabouts(trace, program.rank)],
        "boxes": [],
    }


def _event(trace: Trace, program: Program, number: int, ids: list[int], tables: Tables) -> list[Any]:
    event = program.events[number]
    place = trace.place(event)
    about = event.arg[0] if event.op == "wait" and event.arg else -1
    mode = 0
    if event.op in COMMUNICATION:
        mode = 1 if awaited_at_once(trace, program, number) else 2
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
        return [kind, *where, written, bool(part.partial), _size(value.elements()), str(value)]

    return tables.values.add((type(value), value), row)


def _size(elements: Any) -> float:
    """Elements as JSON has them: whole numbers stay whole."""
    return int(elements) if elements == int(elements) else float(elements)


def _ends(items: frozenset[int]) -> list[int]:
    """A set of numbers as first and last of each run: {0, 1, 2, 5} is [0, 2, 5, 5]."""
    return [end for first, after in runs(items) for end in (first, after - 1)]


def _box(trace: Trace, box: Box, layers: int, tables: Tables) -> list[Any]:
    event = trace.programs[box.rank].events[box.number]
    look = style(box, event, layers)
    words, below = labels(box, event)
    label = tables.labels.add((tuple(words), below))
    return [box.number, tables.styles.add(look), moment(box.start), moment(box.end), box.lane, label]


def _messages(trace: Trace, count: int, tables: Tables) -> list[list[Any]]:
    """Sends with the receives that took them, -1 where nobody did; and what members of an exchange give each other."""
    found: list[list[Any]] = []
    for source, sent, target, received in sorted(messages(trace), key=lambda one: (one.source, one.target, one.sent)):
        if max(source, target) >= count:
            continue
        values = trace.programs[source].values_of(trace.programs[source].events[sent].inputs)
        words = "; ".join(map(str, values)) or "no value"
        found.append([source, sent, target, -1 if received is None else received, tables.texts.add(words)])
    shown = [gift for gift in gifts(trace) if max(gift.source, gift.target) < count]
    return found + [[*gift[:4], tables.texts.add(str(gift.value))] for gift in shown]
