"""The journal of a grading: what is finished, a line each, as soon as it is. Who is stopped goes on where it was.

    {"key": "...", "score": {...}, "isolation": ["..."]}

A key stands for the code, the puzzle, all that is required of it, the limits and the version of this package: what has
the same key need not run again. Lines are only ever added. One that was cut off, by a full disk or by a process that
was killed while it wrote, is left out when the journal is read, and what it was about is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from lib.files import ROOT, ready
from lib.suite.grade.gradebook import Score, score_from

__all__ = ["Entry", "Journal", "version"]


class Entry(NamedTuple):
    """A score, without the file, and what kept its runs apart from everything else, in words."""

    score: Score
    isolation: tuple[str, ...]


class Journal:
    """A file of scores by key. Several processes may read it, one writes it: OSError where another one does."""

    def __init__(self, path: Path) -> None:
        self._path = ready(path)
        self._file: IO[bytes] = open(self._path, "a+b")  # noqa: SIM115  # `close` closes it
        try:
            _lock(self._file)
            self._end_the_line()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Lets others write."""
        self._file.close()

    def known(self, prefix: str) -> dict[str, Entry]:
        """What is there under keys that begin so, the latest of each."""
        found: dict[str, Entry] = {}
        with self._path.open("rb") as file:
            for line in file:
                try:
                    data = json.loads(line)
                    if data["key"].startswith(prefix):
                        found[data["key"]] = Entry(score_from(data["score"]), tuple(data["isolation"]))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
        return found

    def add(self, key: str, entry: Entry) -> None:
        """Writes a score. It is in the file when this returns."""
        data = {"key": key, "score": asdict(entry.score), "isolation": entry.isolation}
        self._file.write(json.dumps(data, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def _end_the_line(self) -> None:
        """Ends a line that was cut off, so that it spoils none but itself."""
        if self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")
                self._file.flush()


def _lock(file: IO[bytes]) -> None:
    """Keeps a file for this process until it is closed, or the process ends, however it does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        folder = Path(file.name).parent.parent
        raise OSError(f"another process is grading into {folder}: wait for it, or take another folder") from None


@cache
def version() -> str:
    """A digest of this package and of its Python: other code may judge otherwise, and so nothing of it is reused."""
    found = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for top in ("lib", "solutions"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
