"""A Trace with a row for each event, value and move: version 1 of the file, and the first stage of reading its text.

    "programs": [{"values": [[kind, field...] or null...], "events": [[...]...],
                  "moves": [[event, store, value, +1 or -1]...]}]

An event is [op, layer, batches, inputs, outputs, issued, start, length, place, arg, group, peer, blocking], with times
in billionths of a time unit, -1 for no place or group, and in the `arg` of a wait the number of the event that it waits
for. Rows become the columns of version 2 (see `json_format`), and one reader checks both.
"""

from __future__ import annotations

from marshal import dumps
from typing import Any, cast

from lib.errors.exceptions import TraceError
from lib.trace.event import STORES

EVENT_FIELDS, MOVE_FIELDS = 13, 4


class Rows:
    """Turns rows into columns. `names` has for each entry of a table where it first stood, for errors to name."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Any]] = {"calls": [], "values": [], "sets": []}
        self.names: dict[str, list[str]] = {"calls": [], "values": [], "sets": []}
        self._known: dict[tuple[str, bytes], int] = {}

    def number(self, table: str, where: str, item: Any) -> int:
        """Return the number of an item in its table. Equal bytes mean equal types too: 1 is not true."""
        key = table, dumps(item, 2)  # in marshal's version 2 equal items have equal bytes
        if key not in self._known:
            self._known[key] = len(self.tables[table])
            self.tables[table].append(item)
            self.names[table].append(where)
        return self._known[key]

    def columns(self, top: dict[str, Any]) -> dict[str, Any]:
        """Return the same data in version 2. TraceError if something is not a row."""
        programs = top["programs"]
        if type(programs) is list:
            every = enumerate(cast("list[Any]", programs))
            programs = [self._program(f"programs[{rank}]", item) for rank, item in every]
        return {**top, **self.tables, "unit": 1, "programs": programs}

    def _program(self, where: str, item: Any) -> dict[str, Any]:
        if not isinstance(item, dict) or set(cast("dict[str, Any]", item)) != {"values", "events", "moves"}:
            raise TraceError(f"{where}: expected values, events and moves")
        data = cast("dict[str, Any]", item)
        events = _table(f"{where}.events", data["events"], EVENT_FIELDS)
        moves = _table(f"{where}.moves", data["moves"], MOVE_FIELDS)
        calls: list[int] = []
        sets: list[int] = []
        for i, (op, _, batches, inputs, outputs, _, _, _, _, arg, *rest) in enumerate(events):
            here = f"{where}.events[{i}]"
            inputs, outputs = _table(here, inputs), _table(here, outputs)
            if op == "wait" and type(arg) is list and [type(one) for one in cast("list[Any]", arg)] == [int]:
                arg = [i - cast("list[int]", arg)[0]]
            calls.append(self.number("calls", here, [op, arg, *rest, len(inputs), len(outputs)]))
            sets.append(self.number("sets", here, batches))
        columns = [*map(list, zip(*events, strict=True))] or [[] for _ in range(EVENT_FIELDS)]
        _, layers, _, inputs, outputs, issued, start, length, places, *_ = columns
        values = [self._value(f"{where}.values[{i}]", v) for i, v in enumerate(_table(where, data["values"]))]
        for i, (_, store, _, change) in enumerate(moves):
            if type(change) is not int or change not in (1, -1):
                raise TraceError(f"{where}.moves[{i}]: a value enters (1) or leaves (-1); got {str(change)[:40]}")
            if type(store) is not int or not 0 <= store < len(STORES):
                raise TraceError(f"{where}.moves[{i}]: expected one of {len(STORES)} stores; got {str(store)[:40]}")
        return {
            "calls": calls, "layers": layers, "batches": sets, "places": places,
            "issued": issued, "start": start, "length": length,
            "inputs": [number for mine in inputs for number in mine],
            "outputs": [number for mine in outputs for number in mine],
            "values": [row for row, _ in values], "of": [layer for _, layer in values],
            "before": [move[0] for move in moves], "stored": [move[2] for move in moves],
            "store": [store if change > 0 else -1 - store for _, store, _, change in moves],
        }  # fmt: skip

    def _value(self, where: str, item: Any) -> tuple[int, Any]:
        """Return the number of a value's row without its layer, and the layer."""
        if item is None:
            return -1, 0
        if not (row := _table(where, item)):
            raise TraceError(f"{where}: expected a kind of value and its fields; got []")
        kind, *fields = row
        return self.number("values", where, [kind, *fields[1:]]), fields[0] if fields else None


def _table(where: str, item: Any, length: int | None = None) -> list[Any]:
    """Return a list, checked to be one: of lists of a `length`, if that is given."""
    if type(item) is not list:
        raise TraceError(f"{where}: expected a list")
    rows = cast("list[Any]", item)
    for i, row in enumerate(rows if length is not None else ()):
        if type(row) is not list or len(cast("list[Any]", row)) != length:
            raise TraceError(f"{where}[{i}]: expected a list of {length}")
    return rows
