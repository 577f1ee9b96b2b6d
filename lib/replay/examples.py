"""A small data set on disk, one file an example, and the reader of a process, which reads each file once a step.

The reader keeps what it has read for all devices of its process, and counts examples and bytes itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Examples", "Reader", "Reads"]


class Reads(NamedTuple):
    """What a process has read: how many examples, and how many bytes."""

    examples: int
    bytes: int


class Examples:
    """A folder with a file for each example."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, contents: Mapping[int, bytes]) -> None:
        """Puts examples there, by number."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, content in contents.items():
            self._path(number).write_bytes(content)

    def read(self, number: int) -> bytes:
        """Opens the file of an example."""
        return self._path(number).read_bytes()

    def _path(self, number: int) -> Path:
        return self.folder / f"example{number:05}.bin"


class Reader:
    """The reader of one process. Its devices may be threads, which ask it one at a time."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.lock = threading.Lock()
        self.step = -1
        self.kept: dict[int, bytes] = {}
        self.counts: dict[int, Reads] = {}

    def read(self, numbers: Iterable[int], step: int = 0) -> list[bytes]:
        """These examples. A file that the process has read in this step is not opened again."""
        with self.lock:
            if step > self.step:
                self.step, self.kept = step, {}
            for number in (wanted := list(numbers)):
                if number not in self.kept:
                    self.kept[number] = content = self.examples.read(number)
                    examples, size = self.read_in(step)
                    self.counts[step] = Reads(examples + 1, size + len(content))
            return [self.kept[number] for number in wanted]

    def read_in(self, step: int) -> Reads:
        """What was read in a step so far."""
        return self.counts.get(step, Reads(0, 0))
