"""The schedules that a class handed in, each distinct one once, without the lines of code that made it.

A schedule is what ranks do, in which order, to which values: whoever finds the same one has the same digest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from lib.errors.exceptions import NoTraceFile, TraceError
from lib.files import ready, write_whole
from lib.suite.course.solutions import without_lines
from lib.trace.json_format import MAX_BYTES, encode
from lib.trace.trace import Trace
from lib.trace.validation import decode

__all__ = ["Schedule", "Traces", "schedule_of"]

DIGEST: Final = re.compile("[0-9a-f]{16}")
STOPPED: Final = "this run stopped before its end"
"""In place of the text of an error, which is about one student's code: a run that failed is not one that is short."""


class Schedule(NamedTuple):
    """A schedule: its digest, and the Trace as packed JSON."""

    digest: str
    packed: bytes


def schedule_of(trace: Trace) -> Schedule:
    """The schedule of a Trace: without source places, the text of an error, and the name of the puzzle."""
    bare = replace(without_lines(trace), error=None if trace.error is None else STOPPED, puzzle=None)
    text = json.dumps(encode(bare), separators=(",", ":")).encode()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as file:
        file.write(text)
    return Schedule(hashlib.sha256(text).hexdigest()[:16], packed.getvalue())


class Traces:
    """A folder of schedules by their digest."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def path(self, digest: str) -> Path:
        """The file of a schedule. ValueError for what is no digest."""
        if not DIGEST.fullmatch(digest):
            raise ValueError(f"the digest of a schedule has 16 hexadecimal digits; got {digest[:40]!r}")
        return self._folder / f"{digest}.json.gz"

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def load(self, digest: str) -> Trace:
        """The Trace of a schedule. TraceError where its file is damaged; NoTraceFile, an OSError too, where there is
        none."""
        path = self.path(digest)
        try:
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise TraceError(f"{path.name} is larger than {MAX_BYTES // 2**20} MiB: that is no Trace of ours")
            return decode(json.loads(content))
        except FileNotFoundError:
            raise NoTraceFile(f"there is no schedule {digest} in {self._folder}: grade again, and it will be") from None
        except TraceError as error:
            raise TraceError(f"{path.name}: {error}") from None
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise TraceError(f"{path.name} is damaged: {error}") from None

    def keep(self, schedule: Schedule) -> None:
        """Writes a schedule, all of it or nothing, unless it is there."""
        path = self.path(schedule.digest)
        if not path.is_file():
            write_whole(ready(path), schedule.packed)
