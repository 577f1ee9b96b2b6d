"""Files of orders by their names, and an order as text, a line a rank."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from lib.errors.exceptions import OrderFileError
from lib.schedules.formats import order_json, torch_csv
from lib.schedules.formats.order_file import MAX_BYTES, TOO_LARGE, Exported, Imported
from lib.schedules.pipelines.action import Action, Order, places
from lib.schedules.pipelines.legality import Wrong
from lib.schedules.pipelines.lowering import compute_only
from lib.schedules.pipelines.timing import Timed, time_order
from lib.trace.validation import FORMAT as TRACE
from lib.values.table import table

__all__ = ["FORMATS", "Format", "at_equal_costs", "in_positions", "in_time", "is_order_file", "read_file", "suffixes"]


class Format(NamedTuple):
    """How orders are written. `write` gives the text, and says what of an order is not in it. `about`: what it is."""

    name: str
    suffix: str
    write: Callable[[Order], Exported]
    read: Callable[[str], Imported]
    about: str


FORMATS: Final = table(
    (
        Format("csv", ".csv", torch_csv.encode, torch_csv.read, "torch.distributed.pipelining's, passes alone"),
        Format(
            "csv-comms", ".csv", partial(torch_csv.encode, comms=True), torch_csv.read, "its other one, with messages"
        ),
        Format("json", ".json", order_json.exported, order_json.read, "ours, all of it"),
    )
)
"""The formats by the names that the command has for them."""


def suffixes(between: str = " or ") -> str:
    """How the names of files with orders end."""
    return between.join(sorted({row.suffix for row in FORMATS.values()}))


def is_order_file(path: str | Path) -> bool:
    """Whether a name is that of a file with an order; other .json files are Traces."""
    path = Path(path)
    if path.suffix.lower() != ".json":
        return path.suffix.lower() in {row.suffix for row in FORMATS.values()}
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return TRACE.encode() not in file.read(200)


def read_file(path: str | Path) -> Imported:
    """The order in a file, legal or not, by the end of its name. OrderFileError where it holds none."""
    path = Path(path)
    reader = next((row.read for row in FORMATS.values() if row.suffix == path.suffix.lower()), None)
    if reader is None:
        raise OrderFileError(f"{path.name}: a file of an order is {suffixes()}")
    if path.exists() and not path.is_file():  # who opens a pipe may wait for ever
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


# -- as text ----------------------------------------------------------------------------------------------------

HERE: Final = "<-- here"


def in_positions(order: Order, wrong: Wrong | None = None) -> str:
    """Each rank's actions one after the other, and where something is wrong."""
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
    """Each rank's passes where they begin, if all of them take equally long, a whole backward twice as long, and
    messages no time."""
    timed = time_order(compute_only(order))
    rows = [[(_short(a), round(s), round(e)) for a, s, e in zip(*row, strict=True)] for row in _rows(timed)]
    width = max((-(-(len(word) + 1) // (end - start)) for row in rows for word, start, end in row), default=0)
    lines: list[str] = []
    for rank, row in enumerate(rows):
        line = f"rank {rank:<{len(str(len(order) - 1))}}  "
        first = len(line)
        for word, start, _ in row:
            line = line.ljust(first + start * width) + word
        lines.append(line)
    return "\n".join(lines)


def _short(action: Action) -> str:
    return "+".join(map(str, action.parts or (action,)))


def _rows(timed: Timed) -> list[tuple[tuple[Action, ...], list[float], list[float]]]:
    return list(zip(timed.order, timed.starts, timed.ends, strict=True))


def at_equal_costs(order: Order) -> Timed:
    """The times of an order where each rank takes 1 for the forward of a microbatch through all of its stages, 2 for
    the backward, and messages, posted, take none."""
    passes = compute_only(order)
    share = Fraction(len(order), max(1, len(places(order))))
    return time_order(passes, forward=share, input_half=share, weight_half=share)
