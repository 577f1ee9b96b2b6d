"""Files of orders, and an order as text, a line a rank.

Files are torch's CSV: a row a rank, a cell an action, and empty cells where a rank idles. There are two of them:
"compute_only" has the passes, and torch puts messages and gathers in by itself; "compute_comms" has them all. Torch's
executor takes either: `_PipelineScheduleRuntime(stages, batches)._load_csv(path, format)`. A receive is issued where it
stands there, and awaited by the pass that needs it.

Files come from outside: they are read as data only, and give an order or an error that says where it is wrong.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from lib.errors.exceptions import OrderFileError
from lib.errors.wording import counted
from lib.schedules.pipelines.action import PASSES, Action, Order, parse, places, says_messages
from lib.schedules.pipelines.legality import IllegalOrder, Wrong, illegal
from lib.schedules.pipelines.lowering import compute_only, with_messages
from lib.schedules.pipelines.timing import Timed, time_order

MAX_BYTES: Final = 16 * 2**20
"""The size of the largest file."""
MAX_RANKS: Final = 10_000
SUFFIX: Final = ".csv"
FORMATS: Final = {"csv": "torch.distributed.pipelining's, passes alone", "csv-comms": "its other one, with messages"}
"""The formats by the names that the command has for them."""


class Exported(NamedTuple):
    """The text of a file, and what of the order is not in it, with the reasons."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """An order, and for each rank in which columns of its file its actions are, where it has a file."""

    order: Order
    columns: Sequence[Sequence[int]] | None = None

    def cell(self, rank: int, position: int) -> str | None:
        """Name the cell of an action, as a spreadsheet counts: "row 4, column 2"."""
        if self.columns is None or position >= len(self.columns[rank]):
            return None
        return f"row {rank + 1}, column {self.columns[rank][position] + 1}"

    def wrong(self) -> Wrong | None:
        """Return what is wrong first, or None: see `illegal`."""
        return illegal(self.order, messages="posted")

    def legal(self) -> Order:
        """Return the order, if it is legal; else raise IllegalOrder, which names the cell too."""
        if (wrong := self.wrong()) is not None:
            raise IllegalOrder(wrong, self.cell(wrong.rank, wrong.position))
        return self.order


NOT_TORCH: Final = {
    "UPDATE": "torch's executor updates no weights: the training loop calls the optimizer after the step",
    "WAIT": "torch's executor waits for a message in the pass that needs it, and for sends at the end",
}
"""What torch has no word for, and why it can be left out."""
PUT_IN: Final = "torch's executor puts messages and gathers in by itself"


def to_csv(order: Order, *, comms: bool = False) -> Exported:
    """Write an order as torch reads it: its passes, or with `comms` all of it. Messages are put in where it has
    none."""
    if comms and not says_messages(order):
        order = with_messages(order)
    out, left = io.StringIO(), Counter[str]()
    writer = csv.writer(out, lineterminator="\n")
    for actions in order:
        row: list[str] = []
        for action in actions:
            foreign = NOT_TORCH.get(action.kind.partition("_")[0])
            if foreign is None and (comms or action.kind in PASSES or action.parts):
                row.append(str(action))
            else:
                left[foreign or PUT_IN] += 1
        writer.writerow(row)
    return Exported(out.getvalue(), tuple(f"{counted(n, 'action')} left out: {why}" for why, n in left.items()))


def read_csv(text: str) -> Imported:
    """Read the order in torch's CSV, legal or not. OrderFileError for what is no such file, IllegalOrder for a cell
    that holds no action."""
    if len(text) > MAX_BYTES:
        raise OrderFileError(f"it is larger than {MAX_BYTES // 2**20} MiB, and no order is")
    order: list[tuple[Action, ...]] = []
    columns: list[list[int]] = []
    last = 0
    for rank, cells in enumerate(_rows(text)):
        words = {column: word for column, cell in enumerate(cells) if (word := cell.strip())}
        if rank >= MAX_RANKS:
            if words:
                raise OrderFileError(f"it has more than {MAX_RANKS:,} ranks")
            continue
        columns.append([*words])
        actions: list[Action] = []
        for position, word in enumerate(words.values()):
            try:
                actions += parse([word])
            except ValueError as error:
                wrong = Wrong(rank, position, Action(-1, word), "word", str(error))
                raise IllegalOrder(wrong, Imported((), columns).cell(rank, position)) from None
        order.append(tuple(actions))
        last = len(order) if actions else last
    if not last:
        raise OrderFileError("there are no actions in it")
    return Imported(tuple(order[:last]), columns[:last])  # blank rows at the end are not ranks


def _rows(text: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        yield from rows
    except csv.Error as error:
        raise OrderFileError(f"row {rows.line_num} is not CSV: {error}") from None


def read_file(path: str | Path) -> Imported:
    """Read the order in a file, legal or not. OrderFileError where it holds none."""
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise OrderFileError(f"{path.name}: a file of an order is {SUFFIX}")
    if path.exists() and not path.is_file():  # opening a pipe may wait for ever
        raise OrderFileError(f"{path.name} is not a plain file")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return read_csv(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise OrderFileError(f"{path.name} is not text") from None
    except OrderFileError as error:
        raise OrderFileError(f"{path.name}: {error}") from None


# -- as text ------------------------------------------------------------------------------------------------------


def in_positions(order: Order, wrong: Wrong | None = None) -> str:
    """Show each rank's actions one after the other, and where something is wrong."""
    rows = [[str(action) for action in actions] for actions in order]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines: list[str] = []
    for rank, row in enumerate(rows):
        words = [word.ljust(width) for word, width in zip(row, widths, strict=False)]
        if wrong is not None and wrong.rank == rank:
            words.insert(wrong.position + 1, "<-- here")
        lines.append(f"{_name(rank, order)}{' '.join(words).rstrip()}")
    return "\n".join(lines)


def _name(rank: int, order: Order) -> str:
    return f"rank {rank:<{len(str(len(order) - 1))}}  "


def in_time(order: Order) -> str:
    """Show each rank's passes where they begin, if all of them take equally long, a whole backward twice as long, and
    messages no time."""
    timed = time_order(compute_only(order))
    rows = [
        [("+".join(map(str, a.parts or (a,))), round(start), round(end)) for a, start, end in zip(*row, strict=True)]
        for row in zip(timed.order, timed.starts, timed.ends, strict=True)
    ]
    width = max((-(-(len(word) + 1) // (end - start)) for row in rows for word, start, end in row), default=0)
    lines = [""] * len(rows)
    for rank, row in enumerate(rows):
        for word, start, _ in row:
            lines[rank] = lines[rank].ljust(start * width) + word
    return "\n".join(_name(rank, order) + line for rank, line in enumerate(lines))


def at_equal_costs(order: Order) -> Timed:
    """Time an order where each rank takes 1 for the forward of a microbatch through all of its stages, 2 for the
    backward, and messages, posted, take none."""
    passes = compute_only(order)
    share = Fraction(len(order), max(1, len(places(order))))
    return time_order(passes, forward=share, input_half=share, weight_half=share)
