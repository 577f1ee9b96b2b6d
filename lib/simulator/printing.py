"""What ranks print, in the order of simulated time: at the same time the lower rank comes first.

Ranks run ahead until they wait, in an order that means nothing. So what they print is kept until the run is over, or
until somebody wants it at once: it is a lot, or the process ends.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from lib.simulator.dist import Dist

__all__ = ["Printed", "in_order"]

MOST = 200_000
"""Characters that are kept. Whoever prints more may do so without end, and is to see it."""


class Printed:
    """Stands for a stream while ranks run. Anything but writing is done by the stream itself."""

    def __init__(self, stream: TextIO, dist: Dist) -> None:
        self._stream = stream
        self._dist = dist
        self._kept: list[tuple[tuple[int, int], str]] = []
        self._room = MOST

    def write(self, text: str, /) -> int:
        """Keeps what a rank prints, with the time by its clock."""
        rank = self._dist.engine.running()
        if rank is None or self._room < 0:
            self.release()
            return self._stream.write(text)
        self._kept.append(((self._dist.models[rank].program.clock, rank), text))
        self._room -= len(text)
        if self._room < 0:
            self.release()
        return len(text)

    def writelines(self, lines: Any, /) -> None:
        """Keeps each of some texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Shows nothing yet: other ranks may print what comes before."""

    def release(self) -> None:
        """Shows what was kept; where a rank failed, up to that moment, as its picture does."""
        kept, self._kept = self._kept, []
        if (until := self._dist.until) is not None:
            kept = [one for one in kept if one[0][0] <= until[0]]
        if kept:
            self._stream.write("".join([text for _, text in sorted(kept, key=itemgetter(0))]))
        self._stream.flush()

    def forget(self) -> None:
        """Drops what was kept: the run begins anew."""
        self._kept.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def in_order(dist: Dist) -> Generator[Printed]:
    """Puts what the ranks of a world print in order, however the run ends."""
    stream, printed = sys.stdout, Printed(sys.stdout, dist)
    sys.stdout = printed  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield printed
    finally:
        if sys.stdout is printed:
            sys.stdout = stream
        printed.release()
