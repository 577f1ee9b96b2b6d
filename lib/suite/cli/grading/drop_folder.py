"""What changes in a drop folder: one notice after each change, as soon as what is copied there is whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Final

from lib.extras import need_extra

__all__ = ["Changes"]

TICK: Final = 1000
"""Milliseconds after which the folder is looked at even where nobody tells, as on some file systems of a network."""
QUIET: Final = 0.5
"""Seconds for which nothing grows any more."""
PATIENCE: Final = 60.0
"""Seconds after which something that still grows is looked at as it is."""


class Changes:
    """Changes below some paths, from the moment on when this is made. ImportError without watchfiles."""

    def __init__(self, paths: Sequence[Path]) -> None:
        need_extra("cli", "watching needs")
        from watchfiles import watch

        self._paths = paths
        self._before = _state(paths)
        folders = {path if path.is_dir() else path.parent for path in paths}
        self._changes = watch(*folders, rust_timeout=TICK, yield_on_timeout=True, raise_interrupt=True)

    def __iter__(self) -> Iterator[None]:
        """Comes again after each change. KeyboardInterrupt at Ctrl-C."""
        for _ in self._changes:
            if _state(self._paths) == self._before:
                continue
            deadline = time.monotonic() + PATIENCE
            now = _state(self._paths)
            while time.monotonic() < deadline:
                time.sleep(QUIET)
                before, now = now, _state(self._paths)
                if before == now:
                    break
            self._before = now
            yield


def _state(paths: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """The size and the date of every file."""
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(OSError):  # gone since
                status = file.lstat()
                if not S_ISDIR(status.st_mode):
                    found[str(file)] = status.st_size, status.st_mtime_ns
    return found
