"""A Trace as rows, one for each event, which are easier to change than the columns of a file: forgeries are made of
them, and the oracle reads them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from lib import Trace
from lib.trace import json_format
from lib.trace.json_format import set_text
from lib.trace.validation import COLUMNS, EVENT_COLUMNS
from lib.values.values import Value, fields_of


def _row(value: Value) -> list[Any]:
    """The kind of a value and its fields; what it is cut along besides comes last."""
    made: list[Any] = [value.kind]
    for field in fields_of(value):
        if isinstance(field, tuple):
            parts = cast("tuple[tuple[str, Iterable[int], int], ...]", field)
            made.append({role: [set_text(pieces), total] for role, pieces, total in parts})
        else:
            made.append(set_text(cast("frozenset[int]", field)) if isinstance(field, frozenset) else field)
    return made


def encode(run: Trace) -> dict[str, Any]:
    places: dict[Any, int] = {None: -1}
    groups: dict[tuple[int, ...], int] = {(): -1}
    texts: dict[frozenset[int], str] = {}
    programs: list[dict[str, Any]] = []
    for program in run.programs:
        events: list[list[Any]] = []
        for e in program.events:
            place, group = places.setdefault(run.place(e), len(places) - 1), groups.setdefault(e.group, len(groups) - 1)
            batches = texts.get(e.batches) or texts.setdefault(e.batches, set_text(e.batches))
            what = [e.op, e.layer, batches, [*e.inputs], [*e.outputs], e.issued, e.start, e.length]
            events.append([*what, place, [*e.arg], group, e.peer, e.blocking])
        values = [None if value is None else _row(value) for value in program.values]
        programs.append({"values": values, "events": events, "moves": [list(move) for move in program.moves]})
    head = json_format.encode(replace(run, programs=()))
    lines = [list(place) for place in places if place is not None]
    return {**head, "places": lines, "groups": [list(group) for group in groups if group], "programs": programs}


def columns(rows: dict[str, Any]) -> dict[str, Any]:
    """The data of a file that says what these rows say, right or wrong."""
    tables: dict[str, list[Any]] = {"calls": [], "values": [], "sets": []}
    known: dict[tuple[str, str], int] = {}

    def number(table: str, item: Any) -> int:
        key = table, json.dumps(item)  # in which true is not 1
        if key not in known:
            known[key] = len(tables[table])
            tables[table].append(item)
        return known[key]

    programs: list[dict[str, Any]] = []
    for program in rows["programs"]:
        made: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for i, (op, layer, batches, inputs, outputs, *times, place, arg, group, peer, blocking) in enumerate(
            program["events"]
        ):
            arg = [i - number for number in arg] if op == "wait" else arg
            call = number("calls", [op, arg, group, peer, blocking, len(inputs), len(outputs)])
            event = call, layer, number("sets", batches), place, *times
            for name, item in zip(EVENT_COLUMNS, event, strict=True):
                made[name].append(item)
            made["inputs"] += inputs
            made["outputs"] += outputs
        for value in program["values"]:
            kind, layer, *fields = value or (None, 0)
            made["values"].append(number("values", [kind, *fields]) if value else -1)
            made["of"].append(layer)
        for before, store, value, change in program["moves"]:
            for name, item in (("before", before), ("store", store if change > 0 else -1 - store), ("stored", value)):
                made[name].append(item)
        programs.append(made)
    return {**rows, **tables, "unit": 1, "programs": programs}
