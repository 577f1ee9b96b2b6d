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
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from lib.errors.exceptions import OrderFileError, TraceError
from lib.errors.wording import counted
from lib.schedules.pipelines.action import MESSAGES, PASSES, Messages, Order, places
from lib.schedules.pipelines.legality import IllegalOrder, Wrong, illegal, order_from
from lib.schedules.pipelines.lowering import compute_only, with_messages
from lib.schedules.pipelines.timing import Timed, time_order
from lib.trace.json_format import once
from lib.trace.validation import FORMAT as TRACE
from lib.values.table import table

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
    columns: Sequence[Sequence[int]] | None = None
    """For each rank in which columns its actions are, where the file has cells."""

    def cell(self, rank: int, position: int) -> str | None:
        """Name the cell of an action, as a spreadsheet counts: "row 4, column 2"."""
        if self.columns is None or position >= len(self.columns[rank]):
            return None
        return f"row {rank + 1}, column {self.columns[rank][position] + 1}"

    def wrong(self, *, batches: int | None = None, stages: int | None = None) -> Wrong | None:
        """Return what is wrong first, or None: see `illegal`."""
        return illegal(self.order, batches=batches, stages=stages, messages=self.messages)

    def legal(self, *, batches: int | None = None, stages: int | None = None) -> Order:
        """Return the order, if it is legal; else raise IllegalOrder, which names the cell too."""
        if (wrong := self.wrong(batches=batches, stages=stages)) is not None:
            raise IllegalOrder(wrong, self.cell(wrong.rank, wrong.position))
        return self.order


def _imported(
    words: Sequence[Sequence[str]], messages: Messages, columns: Sequence[Sequence[int]] | None = None
) -> Imported:
    """Return the order of these words. OrderFileError for too many, IllegalOrder for one that is no action."""
    for what, number, most in (("ranks", len(words), MAX_RANKS), ("actions", sum(map(len, words)), MAX_ACTIONS)):
        if number > most:
            raise OrderFileError(f"it has {number:,} {what}, and at most {most:,} are read")
    try:
        return Imported(order_from(words), messages, columns)
    except IllegalOrder as error:
        wrong = error.wrong
        raise IllegalOrder(wrong, Imported((), messages, columns).cell(wrong.rank, wrong.position)) from None


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
    text = _bounded(text)
    try:
        data = json.loads(text, object_pairs_hook=once)
    except TraceError as error:
        raise OrderFileError(str(error)) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise OrderFileError(f"it is not a whole JSON file: {reason}") from None
    if not isinstance(data, dict):
        raise OrderFileError(f"an order is an object with {', '.join(FIELDS)}")
    fields = cast("dict[str, Any]", data)
    version, ranks = fields.get("version"), fields.get("ranks")
    if fields.get("format") != FORMAT:
        raise OrderFileError(f"it is no order: its format is not {FORMAT!r}")
    if type(version) is not int or version != VERSION:
        raise OrderFileError(f"this is version {str(version)[:40]} of the format; this program reads {VERSION}")
    if (unknown := next((name for name in fields if name not in FIELDS), None)) is not None:
        raise OrderFileError(f"there is no field {unknown[:40]!r}; there are {', '.join(FIELDS)}")
    if not isinstance(ranks, list):
        raise OrderFileError("ranks: a list with the list of words of each rank")
    for rank, words in enumerate(cast("list[Any]", ranks)):
        if not isinstance(words, list):
            raise OrderFileError(f"ranks[{rank}]: the list of words of this rank")
    return _imported(cast("list[list[str]]", ranks), "awaited")


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
    rows: list[list[tuple[int, str]]] = []
    last = 0
    for cells in _cells(text):
        if len(rows) < MAX_RANKS or any(map(str.strip, cells)):
            rows.append([(column, word) for column, cell in enumerate(cells) if (word := cell.strip())])
            last = len(rows) if rows[-1] else last
    if not last:
        raise OrderFileError("there are no actions in it")
    del rows[last:]  # blank rows at the end are no ranks
    return _imported(
        [[word for _, word in row] for row in rows], "posted", [[column for column, _ in row] for row in rows]
    )


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
READERS: Final = {row.suffix: row.read for row in FORMATS.values()}


def suffixes(between: str = " or ") -> str:
    """List how the names of files with orders end."""
    return between.join(sorted(READERS))


def is_order_file(path: str | Path) -> bool:
    """Tell whether a name is that of a file with an order; other .json files are Traces."""
    path = Path(path)
    if path.suffix.lower() != ".json":
        return path.suffix.lower() in READERS
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return TRACE.encode() not in file.read(200)


def read_file(path: str | Path) -> Imported:
    """Read the order in a file, legal or not, by the end of its name. OrderFileError where it holds none."""
    path = Path(path)
    if (reader := READERS.get(path.suffix.lower())) is None:
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


def in_positions(order: Order, wrong: Wrong | None = None) -> str:
    """Show each rank's actions one after the other, and where something is wrong."""
    rows = [[str(action) for action in actions] for actions in order]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines: list[str] = []
    for rank, row in enumerate(rows):
        words = [word.ljust(width) for word, width in zip(row, widths, strict=False)]
        if wrong is not None and wrong.rank == rank:
            words.insert(wrong.position + 1, "<-- here")
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
