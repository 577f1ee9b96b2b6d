"""What all files of orders have in common: what they say, legal or not, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lib.errors.exceptions import OrderFileError
from lib.schedules.pipelines.action import Messages, Order
from lib.schedules.pipelines.legality import IllegalOrder, Limit, Wrong, illegal

__all__ = ["MAX_ACTIONS", "MAX_BYTES", "MAX_RANKS", "TOO_LARGE", "Exported", "Imported", "bounded", "measured"]

MAX_BYTES = 16 * 2**20
"""The size of the largest file."""
TOO_LARGE = f"it is larger than {MAX_BYTES // 2**20} MiB, and no order is"
MAX_ACTIONS = 2 * 10**6
MAX_RANKS = 10_000


class Exported(NamedTuple):
    """The text of a file, and what of the order is not in it, with the reasons."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """An order, and where its file has what. `messages` says whether a receive without a wait holds up its rank."""

    order: Order
    messages: Messages = "awaited"
    columns: tuple[tuple[int, ...], ...] | None = None
    """For each rank in which columns its actions are, where the file has cells."""

    def cell(self, rank: int, position: int) -> str | None:
        """The cell of an action, as a spreadsheet counts: "row 4, column 2"."""
        if self.columns is None or position >= len(self.columns[rank]):
            return None
        return f"row {rank + 1}, column {self.columns[rank][position] + 1}"

    def wrong(self, *, batches: int | None = None, stages: int | None = None, limit: Limit = None) -> Wrong | None:
        """What is wrong first, or None: see `illegal`."""
        return illegal(self.order, batches=batches, stages=stages, limit=limit, messages=self.messages)

    def legal(self, *, batches: int | None = None, stages: int | None = None, limit: Limit = None) -> Order:
        """The order, if it is legal; else IllegalOrder, which names the cell too."""
        wrong = self.wrong(batches=batches, stages=stages, limit=limit)
        if wrong is not None:
            raise IllegalOrder(wrong, self.cell(wrong.rank, wrong.position))
        return self.order


def measured(words: Sequence[Sequence[object]]) -> None:
    """OrderFileError for more than any schedule has."""
    for what, number, most in (("ranks", len(words), MAX_RANKS), ("actions", sum(map(len, words)), MAX_ACTIONS)):
        if number > most:
            raise OrderFileError(f"it has {number:,} {what}, and at most {most:,} are read")


def bounded(text: str) -> str:
    """The text, if it is not too long."""
    if len(text) > MAX_BYTES:
        raise OrderFileError(TOO_LARGE)
    return text
