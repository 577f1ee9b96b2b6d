"""The pictures that pages show: each schedule beside the reference and the best of its class, drawn once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from lib.errors.exceptions import PuzzleError, TraceError
from lib.files import ready, write_whole
from lib.processes import shared_out
from lib.trace.trace import Trace

__all__ = ["Drawn", "Order", "Pictures", "Traces", "draw_all"]

FEW: Final = 100
"""Pictures that are drawn here before other processes would have started."""
MOST_EVENTS: Final = 60_000
"""Operations of all schedules of a picture; what is larger is said in words."""
EDITION: Final = "2"
"""Changes when pictures are drawn otherwise: those of before have other names."""


class Traces(Protocol):
    """Where schedules are kept, by their digests: without source lines, which are a student's own."""

    def load(self, digest: str) -> Trace:
        """One of them. OSError or TraceError where it cannot be read."""
        ...


class Order(NamedTuple):
    """A picture to be drawn: digests of schedules and what they are called, one alone or several compared. Whether the
    first of them is correct: if not, its figures are not to be measured by."""

    digests: tuple[str, ...]
    names: tuple[str, ...]
    correct: bool

    @property
    def key(self) -> str:
        """The name of its file, without the ending."""
        return sha256("\n".join([EDITION, str(self.correct), *self.digests, *self.names]).encode()).hexdigest()[:16]


class Drawn(NamedTuple):
    """A picture that there is: its file, its size in pixels, and the words that say what it shows."""

    file: str
    width: str
    height: str


@dataclass(frozen=True)
class Pictures:
    """The folder of pictures of a report."""

    folder: Path
    traces: Traces

    def path(self, order: Order) -> Path:
        """Where a picture is, or will be."""
        return self.folder / f"{order.key}.svg"

    def missing(self, orders: Iterable[Order]) -> list[Order]:
        """Those that are still to be drawn, each once, in order."""
        return [order for order in dict.fromkeys(orders) if not self.path(order).is_file()]

    def draw(self, order: Order) -> None:
        """Draws one, and writes it whole. What cannot be drawn becomes a picture of the words that say why."""
        write_whole(ready(self.path(order)), self._svg(order))

    def drawn(self, order: Order) -> Drawn:
        """A picture that there is."""
        path = self.path(order)
        with path.open(encoding="utf-8") as file:
            head = file.read(400)
        found = re.search(r'width="([\d.]+)" height="([\d.]+)"', head)
        width, height = found.groups() if found is not None else ("840", "400")
        return Drawn(path.name, width, height)

    def svg(self, order: Order) -> str:
        """A picture as markup, to stand in a page that needs no other file."""
        return self.path(order).read_text("utf-8").strip()

    def keep(self, orders: Iterable[Order]) -> None:
        """Takes away pictures of ours that none of these is."""
        keys = {order.key for order in orders}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.suffix == ".svg" and re.fullmatch("[0-9a-f]{16}", path.stem) and path.stem not in keys:
                path.unlink()

    def _svg(self, order: Order) -> str:
        from drawing import draw  # here and not above: a report with no schedules needs none
        from drawing.comparing.comparison import Compared, Comparison
        from drawing.timeline.schedule import note

        try:
            traces = [self.traces.load(digest) for digest in order.digests]
        except (OSError, TraceError) as error:
            return note(f"the schedule cannot be read: {type(error).__name__}").svg()
        events = sum(len(program.events) for trace in traces for program in trace.programs)
        if events > MOST_EVENTS:
            return note(f"a schedule of {events:,} operations is too large to be drawn here").svg()
        try:
            if len(traces) == 1:
                return draw(traces[0], fold=True).svg()
            wrong = "" if order.correct else traces[0].error or "not one correct training step"
            first = Compared(order.names[0], traces[0], wrong, order.correct)
            others = (Compared(name, trace) for name, trace in zip(order.names[1:], traces[1:], strict=True))
            return Comparison([first, *others]).picture().svg()
        except PuzzleError as error:  # of a run that stopped in the middle, or that no rank could have had
            return note(f"the schedule cannot be drawn: {type(error).__name__}").svg()


def draw_all(pictures: Pictures, orders: Iterable[Order], jobs: int, done: Callable[[int], None]) -> None:
    """Draws what is missing, in so many processes of this machine. `done` is told how many there are to come."""
    missing = pictures.missing(orders)
    done(len(missing))
    alone = jobs == 1 or len(missing) < FEW
    at_once, left = 1 if alone else FEW, len(missing)
    parts = [missing[start : start + at_once] for start in range(0, left, at_once)]
    # Whatever cluster grades: the files are to be here, and each of them takes milliseconds.
    for count in shared_out(partial(_several, pictures), parts, 1 if alone else jobs, "drawing", backend="loky"):
        left -= count
        done(left)


def _several(pictures: Pictures, orders: Sequence[Order]) -> int:
    for order in orders:
        pictures.draw(order)
    return len(orders)
