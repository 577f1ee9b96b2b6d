"""Files of orders, and an order as text, a line a rank.

Torch's CSV has a row a rank, a cell an action, and empty cells where a rank idles. There are two of them:
"compute_only" has the passes, and torch puts messages and gathers in by itself; "compute_comms" has them all. Torch's
executor takes either: `_PipelineScheduleRuntime(stages, batches)._load_csv(path, format)`. A receive is issued where it
stands there, and awaited by the pass that needs it.

Our JSON says what all ranks do, and nothing else, as everything else follows from it. Version 1:

    {"format": "llm-training-puzzles order", "version": 1, "ranks": [["0F0", "0F1", ...], ["1F0", ...], ...]}

Files come from outside: they are read as data only, and give an order or an error that says where it is wrong.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from lib.errors.exceptions import OrderFileError, TraceError
from lib.errors.wording import counted
from lib.schedules.pipelines.action import MESSAGES, PASSES, Messages, Order, places
from lib.schedules.pipelines.legality import IllegalOrder, Limit, Wrong, illegal, order_from
from lib.schedules.pipelines.lowering import compute_only, with_messages
from lib.schedules.pipelines.timing import Timed, time_order
from lib.trace.json_format import once
from lib.trace.validation import FORMAT as TRACE
from lib.values.table import table

__all__ = [
    "FORMATS",
    "MAX_BYTES",
    "MAX_RANKS",
    "Exported",
    "Format",
    "Imported",
    "at_equal_costs",
    "in_positions",
    "in_time",
    "is_order_file",
    "read_csv",
    "read_file",
    "read_json",
    "suffixes",
    "to_csv",
    "to_json",
]

MAX_BYTES: Final = 16 * 2**20
"""The size of the largest file."""
TOO_LARGE: Final = f"it is larger than {MAX_BYTES // 2**20} MiB, and no order is"
MAX_ACTIONS: Final = 2 * 10**6
MAX_RANKS: Final = 10_000


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
        """Name the cell of an action, as a spreadsheet counts: "row 4, column 2"."""
        if self.columns is None or position >= len(self.columns[rank]):
            return None
        return f"row {rank + 1}, column {self.columns[rank][position] + 1}"

    def wrong(self, *, batches: int | None = None, stages: int | None = None, limit: Limit = None) -> Wrong | None:
        """Return what is wrong first, or None: see `illegal`."""
        return illegal(self.order, batches=batches, stages=stages, limit=limit, messages=self.messages)

    def legal(self, *, batches: int | None = None, stages: int | None = None, limit: Limit = None) -> Order:
        """Return the order, if it is legal; else raise IllegalOrder, which names the cell too."""
        wrong = self.wrong(batches=batches, stages=stages, limit=limit)
        if wrong is not None:
            raise IllegalOrder(wrong, self.cell(wrong.rank, wrong.position))
        return self.order


def _require_small(words: Sequence[Sequence[object]]) -> None:
    for what, number, most in (("ranks", len(words), MAX_RANKS), ("actions", sum(map(len, words)), MAX_ACTIONS)):
        if number > most:
            raise OrderFileError(f"it has {number:,} {what}, and at most {most:,} are read")


def _bounded(text: str) -> str:
    if len(text) > MAX_BYTES:
        raise OrderFileError(TOO_LARGE)
    return text


# -- our JSON -----------------------------------------------------------------------------------------------------

FORMAT: Final = "llm-training-puzzles order"
VERSION: Final = 1
FIELDS: Final = ("format", "version", "ranks")


def to_json(order: Order) -> Exported:
    """Write an order as JSON, a line a rank. Nothing is left out."""
    ranks = ",\n".join(f"  {json.dumps([str(action) for action in actions])}" for actions in order)
    return Exported(f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION}, "ranks": [\n{ranks}\n]}}\n')


def read_json(text: str) -> Imported:
    """Read the order in a JSON file, legal or not. OrderFileError for what is no such file, IllegalOrder for a word
    that is no action."""
    try:
        data = json.loads(_bounded(text), object_pairs_hook=once)
    except OrderFileError:
        raise
    except TraceError as error:
        raise OrderFileError(str(error)) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OrderFileError(f"it is not a whole JSON file: {reason}") from None
    if not isinstance(data, dict):
        raise OrderFileError(f"an order is an object with {', '.join(FIELDS)}")
    fields = cast("dict[str, Any]", data)
    if fields.get("format") != FORMAT:
        raise OrderFileError(f"it is no order: its format is not {FORMAT!r}")
    if fields.get("version") != VERSION or isinstance(fields["version"], bool):
        raise OrderFileError(
            f"this is version {str(fields.get('version'))[:40]} of the format; this program reads {VERSION}"
        )
    for name in fields:
        if name not in FIELDS:
            raise OrderFileError(f"there is no field {name[:40]!r}; there are {', '.join(FIELDS)}")
    if not isinstance(ranks := fields.get("ranks"), list):
        raise OrderFileError("ranks: a list with the list of words of each rank")
    for rank, words in enumerate(cast("list[Any]", ranks)):
        if not isinstance(words, list):
            raise OrderFileError(f"ranks[{rank}]: the list of words of this rank")
    _require_small(words := cast("list[list[str]]", ranks))
    return Imported(order_from(words))


# -- torch's CSV --------------------------------------------------------------------------------------------------

NOT_TORCH: Final = {
    "UPDATE": "torch's executor updates no weights: the training loop calls the optimizer after the step",
    "WAIT": "torch's executor waits for a message in the pass that needs it, and for sends at the end",
}
"""What torch has no word for, and why it can be left out."""
PUT_IN: Final = "torch's executor puts messages and gathers in by itself"


def to_csv(order: Order, *, comms: bool = False) -> Exported:
    """Write an order as torch reads it: its passes, or with `comms` all of it. Messages are put in where it has
    none."""
    if comms and not any(action.kind in MESSAGES for actions in order for action in actions):
        order = with_messages(order)
    rows: list[list[str]] = []
    left: Counter[str] = Counter()
    for actions in order:
        rows.append([])
        for action in actions:
            foreign = NOT_TORCH.get(action.kind.partition("_")[0])
            if foreign is None and (comms or action.kind in PASSES or action.parts):
                rows[-1].append(str(action))
            else:
                left[foreign or PUT_IN] += 1
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    reasons = (f"{counted(number, 'action')} left out: {why}" for why, number in left.items())
    return Exported(out.getvalue(), tuple(reasons))


def read_csv(text: str) -> Imported:
    """Read the order in torch's CSV, legal or not. OrderFileError for what is no such file, IllegalOrder for a cell
    that holds no action."""
    words: list[list[str]] = []
    columns: list[tuple[int, ...]] = []
    blank = 0
    for cells in _cells(text):
        found = [(column, word) for column, cell in enumerate(cells) if (word := cell.strip())]
        if not found:  # at the end these are no ranks
            blank += 1
            continue
        words += [[] for _ in range(min(blank, MAX_RANKS))]
        columns += [()] * min(blank, MAX_RANKS)
        blank = 0
        words.append([word for _, word in found])
        columns.append(tuple(column for column, _ in found))
    if not words:
        raise OrderFileError("there are no actions in it")
    _require_small(words)
    where = Imported((), "posted", tuple(columns))
    try:
        return replace(where, order=order_from(words))
    except IllegalOrder as error:
        raise IllegalOrder(error.wrong, where.cell(error.wrong.rank, error.wrong.position)) from None


def _cells(text: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(_bounded(text).removeprefix("\ufeff"), newline=""), strict=True)
    try:
        yield from rows
    except csv.Error as error:
        raise OrderFileError(f"row {rows.line_num} is no CSV: {error}") from None


# -- files by their names -----------------------------------------------------------------------------------------


class Format(NamedTuple):
    """A way to write orders. `write` gives the text, and says what of an order is not in it. `about`: what it is."""

    name: str
    suffix: str
    write: Callable[[Order], Exported]
    read: Callable[[str], Imported]
    about: str


FORMATS: Final = table(
    (
        Format("csv", ".csv", to_csv, read_csv, "torch.distributed.pipelining's, passes alone"),
        Format("csv-comms", ".csv", partial(to_csv, comms=True), read_csv, "its other one, with messages"),
        Format("json", ".json", to_json, read_json, "ours, all of it"),
    )
)
"""The formats by the names that the command has for them."""


def suffixes(between: str = " or ") -> str:
    """List how the names of files with orders end."""
    return between.join(sorted({row.suffix for row in FORMATS.values()}))


def is_order_file(path: str | Path) -> bool:
    """Tell whether a name is that of a file with an order; other .json files are Traces."""
    path = Path(path)
    if path.suffix.lower() != ".json":
        return path.suffix.lower() in {row.suffix for row in FORMATS.values()}
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return TRACE.encode() not in file.read(200)


def read_file(path: str | Path) -> Imported:
    """Read the order in a file, legal or not, by the end of its name. OrderFileError where it holds none."""
    path = Path(path)
    reader = next((row.read for row in FORMATS.values() if row.suffix == path.suffix.lower()), None)
    if reader is None:
        raise OrderFileError(f"{path.name}: a file of an order is {suffixes()}")
    if path.exists() and not path.is_file():  # opening a pipe may wait for ever
        raise OrderFileError(f"{path.name} is no plain file")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise OrderFileError(TOO_LARGE)
        return reader(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise OrderFileError(f"{path.name} is no text") from None
    except OrderFileError as error:
        raise OrderFileError(f"{path.name}: {error}") from None


# -- as text ------------------------------------------------------------------------------------------------------

HERE: Final = "<-- here"


def in_positions(order: Order, wrong: Wrong | None = None) -> str:
    """Show each rank's actions one after the other, and where something is wrong."""
    rows = [[str(action) for action in actions] for actions in order]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines: list[str] = []
    for rank, row in enumerate(rows):
        words = [word.ljust(width) for word, width in zip(row, widths, strict=False)]
        if wrong is not None and wrong.rank == rank:
            words.insert(wrong.position + 1, HERE)
        lines.append(f"rank {rank:<{len(str(len(rows) - 1))}}  {' '.join(words).rstrip()}")
    return "\n".join(lines)


def in_time(order: Order) -> str:
    """Show each rank's passes where they begin, if all of them take equally long, a whole backward twice as long, and
    messages no time."""
    timed = time_order(compute_only(order))
    rows = [
        [("+".join(map(str, a.parts or (a,))), round(start), round(end)) for a, start, end in zip(*row, strict=True)]
        for row in zip(timed.order, timed.starts, timed.ends, strict=True)
    ]
    width = max((-(-(len(word) + 1) // (end - start)) for row in rows for word, start, end in row), default=0)
    lines: list[str] = []
    for rank, row in enumerate(rows):
        line = f"rank {rank:<{len(str(len(order) - 1))}}  "
        first = len(line)
        for word, start, _ in row:
            line = line.ljust(first + start * width) + word
        lines.append(line)
    return "\n".join(lines)


def at_equal_costs(order: Order) -> Timed:
    """Time an order where each rank takes 1 for the forward of a microbatch through all of its stages, 2 for the
    backward, and messages, posted, take none."""
    passes = compute_only(order)
    share = Fraction(len(order), max(1, len(places(order))))
    return time_order(passes, forward=share, input_half=share, weight_half=share)
