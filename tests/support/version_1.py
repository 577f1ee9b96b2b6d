"""The writer of version 1 of Trace files: a row for each event. Files of it are read for ever, and forgeries are made
of its rows, which are easier to change than columns."""

from collections.abc import Iterable
from typing import Any, cast

from lib import Trace
from lib.trace.json_format import set_text
from lib.values.kinds.kind import USUAL
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
    encoded: dict[str, Any] = {
        "format": "llm-training-puzzles trace",
        "version": 1,
        "layers": run.layers,
        "batches": run.batches,
        "sandbox": run.sandbox,
        "puzzle": run.puzzle,
        "error": run.error,
        "costs": run.costs.to_json(),
        "mesh": None if run.mesh is None else run.mesh.to_json(),
        "places": [list(place) for place in places if place is not None],
        "groups": [list(group) for group in groups if group],
        "programs": programs,
    }
    if run.descriptions != USUAL:
        encoded["layer_descriptions"] = [layer.to_json() for layer in run.descriptions]
    if run.padding:
        encoded["padding"] = run.padding
    return encoded
