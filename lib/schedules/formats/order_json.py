"""An order as JSON: what all ranks do, and nothing else, as everything else follows from it. Version 1:

    {"format": "llm-training-puzzles order", "version": 1, "ranks": [["0F0", "0F1", ...], ["1F0", ...], ...]}

A file comes from outside. It is read as data only, checked field by field, and either gives an order or an error that
says where it is wrong.
"""

from __future__ import annotations

import json
from typing import Any, cast

from lib.errors.exceptions import OrderFileError, TraceError
from lib.schedules.formats.order_file import Exported, Imported, bounded, measured
from lib.schedules.pipelines.action import Order
from lib.schedules.pipelines.legality import order_from
from lib.trace.json_format import once

__all__ = ["FORMAT", "VERSION", "decode", "encode", "exported", "read"]

FORMAT = "llm-training-puzzles order"
VERSION = 1
FIELDS = ("format", "version", "ranks")


def encode(order: Order) -> str:
    """An order as JSON, a line a rank."""
    ranks = ",\n".join(f"  {json.dumps([str(action) for action in actions])}" for actions in order)
    return f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION}, "ranks": [\n{ranks}\n]}}\n'


def exported(order: Order) -> Exported:
    """The same as what goes into a file, where nothing is left out."""
    return Exported(encode(order))


def decode(text: str, *, batches: int | None = None, stages: int | None = None) -> Order:
    """The legal order that a file holds. OrderFileError for what is no such file, IllegalOrder for what is wrong."""
    return read(text).legal(batches=batches, stages=stages)


def read(text: str) -> Imported:
    """The order that a file holds, legal or not. OrderFileError for what is no such file, IllegalOrder for a word that
    is no action."""
    try:
        data = json.loads(bounded(text), object_pairs_hook=once)
    except OrderFileError:
        raise
    except TraceError as error:
        raise OrderFileError(str(error)) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OrderFileError(f"it is not a whole JSON file: {reason}") from None
    return Imported(order_from(_ranks(data)))


def _ranks(data: Any) -> list[list[str]]:
    """The words of each rank."""
    if not isinstance(data, dict):
        raise OrderFileError(f"an order is an object with {', '.join(FIELDS)}")
    found = cast("dict[str, Any]", data)
    if found.get("format") != FORMAT:
        raise OrderFileError(f"it is no order: its format is not {FORMAT!r}")
    if found.get("version") != VERSION or isinstance(found["version"], bool):
        raise OrderFileError(
            f"this is version {str(found.get('version'))[:40]} of the format; this program reads {VERSION}"
        )
    for name in found:
        if name not in FIELDS:
            raise OrderFileError(f"there is no field {name[:40]!r}; there are {', '.join(FIELDS)}")
    ranks = found.get("ranks")
    if not isinstance(ranks, list):
        raise OrderFileError("ranks: a list with the list of words of each rank")
    for rank, found in enumerate(cast("list[Any]", ranks)):
        if not isinstance(found, list):
            raise OrderFileError(f"ranks[{rank}]: the list of words of this rank")
    words = cast("list[list[str]]", ranks)
    measured(words)
    return words
