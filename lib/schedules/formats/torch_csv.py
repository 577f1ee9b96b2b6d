"""The CSV of torch.distributed.pipelining: a row a rank, a cell an action, and empty cells where a rank idles.

There are two of them. "compute_only" has the passes, and torch puts messages and gathers in by itself; "compute_comms"
has them all. Torch's executor takes either: `_PipelineScheduleRuntime(stages, batches)._load_csv(path, format)`. A
receive is issued where it stands there, and awaited by the pass that needs it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from lib.errors.exceptions import OrderFileError
from lib.errors.wording import counted
from lib.schedules.formats.order_file import MAX_RANKS, Exported, Imported, bounded, measured
from lib.schedules.pipelines.action import MESSAGES, PASSES, Action, Order
from lib.schedules.pipelines.legality import IllegalOrder, order_from
from lib.schedules.pipelines.lowering import with_messages

__all__ = ["decode", "encode", "read"]

NOT_TORCH: Final = {
    "UPDATE": "torch's executor updates no weights: the training loop calls the optimizer after the step",
    "WAIT": "torch's executor waits for a message in the pass that needs it, and for sends at the end",
}
"""What torch has no word for, and why it can be left out."""
PUT_IN: Final = "torch's executor puts messages and gathers in by itself"


def encode(order: Order, *, comms: bool = False) -> Exported:
    """An order as torch reads it: its passes, or with `comms` all of it. Messages are put in where it has none."""
    left: Counter[str] = Counter()
    if comms and not any(action.kind in MESSAGES for actions in order for action in actions):
        order = with_messages(order)
    for actions in order:
        left.update(_reason(action.kind) for action in actions if not _has(action, comms))
    rows = ([action for action in actions if _has(action, comms)] for actions in order)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(str, actions) for actions in rows)
    return Exported(
        out.getvalue(), tuple(f"{counted(number, 'action')} left out: {why}" for why, number in left.items())
    )


def _has(action: Action, comms: bool) -> bool:
    """Whether a file has an action."""
    return not _foreign(action.kind) and (comms or action.kind in PASSES or bool(action.parts))


def _foreign(kind: str) -> str | None:
    """Why torch has no word for a kind, if it has none."""
    return NOT_TORCH.get(kind.partition("_")[0])


def _reason(kind: str) -> str:
    return _foreign(kind) or PUT_IN


def decode(text: str, *, batches: int | None = None, stages: int | None = None) -> Order:
    """The legal order that a file holds. OrderFileError for what is no such file; IllegalOrder, with the cell, for what
    is no action, or wrong."""
    return read(text).legal(batches=batches, stages=stages)


def read(text: str) -> Imported:
    """The order that a file holds, legal or not. OrderFileError for what is no such file, IllegalOrder for a cell that
    holds no action."""
    words: list[list[str]] = []
    columns: list[tuple[int, ...]] = []
    blank = 0
    for cells in _rows(text):
        found = [(column, word) for column, cell in enumerate(cells) if (word := cell.strip())]
        if not found:  # at the end these are no ranks
            blank += 1
            continue
        for _ in range(min(blank, MAX_RANKS)):
            words.append([])
            columns.append(())
        blank = 0
        words.append([word for _, word in found])
        columns.append(tuple(column for column, _ in found))
    if not words:
        raise OrderFileError("there are no actions in it")
    measured(words)
    where = Imported((), "posted", tuple(columns))
    try:
        return replace(where, order=order_from(words))
    except IllegalOrder as error:
        raise IllegalOrder(error.wrong, where.cell(error.wrong.rank, error.wrong.position)) from None


def _rows(text: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(bounded(text).removeprefix("\ufeff"), newline=""), strict=True)
    try:
        yield from rows
    except csv.Error as error:
        raise OrderFileError(f"row {rows.line_num} is no CSV: {error}") from None
