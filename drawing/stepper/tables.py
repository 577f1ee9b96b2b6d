"""Tables of what occurs often in a page, and the names of the parts of its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

__all__ = ["FIELDS", "Table", "Tables"]

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
    "style": ["fill", "border", "ink", "stripe", "nightFill", "nightBorder", "nightInk"],
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
        """The number of a thing; `row` makes what the page is told of it, where that is not the thing itself."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.rows)
            self.rows.append(key if row is None else row())
        return number


class Tables:
    """All tables of a page: texts, labels of boxes, looks of boxes, values, and places in the source."""

    def __init__(self) -> None:
        self.texts, self.labels, self.styles, self.values, self.places = (Table() for _ in range(5))
