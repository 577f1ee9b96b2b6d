"""Where bytes lie: a file on a disk, or a member of an archive, which may lie in another. Read within limits."""

from __future__ import annotations

import errno
import io
import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Final, cast

from lib.suite.grade.intake.archives import Archive, Unreadable, open_archive

__all__ = ["MOST_NESTED", "Place", "opened"]

MOST_NESTED: Final = 64 * 2**20
"""Bytes of an archive that lies in another one: it is held in memory while it is read."""
KINDS: Final = {
    stat.S_IFLNK: "is a link, and links are not followed; hand in the file itself",
    stat.S_IFIFO: "is a pipe, and no file",
    stat.S_IFSOCK: "is a socket, and no file",
    stat.S_IFCHR: "is a device, and no file",
    stat.S_IFBLK: "is a device, and no file",
    stat.S_IFDIR: "is a folder, and no file",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A file: the `path` on a disk; where that is an archive, number and name of the `members` on the way, outermost
    first. It is plain data, which can be sent to another process."""

    path: str
    members: tuple[tuple[int, str], ...] = ()

    def read(self, most: int) -> bytes:
        """What is there, whole. Unreadable where it is larger than `most` bytes, or cannot be read."""
        data = _member(self, most) if self.members else _OnDisk(self.path).first(most + 1)
        if len(data) > most:
            raise Unreadable(f"is larger than {most / 1e6:,.0f} MB, and is not read")
        return data


def opened(place: Place) -> Archive:
    """The archive at a place. The last few stay known, so that the next member is found at once; no file stays open."""
    try:
        now = os.lstat(place.path)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    return _opened(place, (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(maxsize=3)
def _opened(place: Place, _state: tuple[int, int, int]) -> Archive:
    """`_state` is that of the file on the disk: another one, and it is read anew."""
    if not place.members:
        return open_archive(place.path, cast("IO[bytes]", _OnDisk(place.path)))
    data = _member(place, MOST_NESTED)
    if len(data) > MOST_NESTED:
        raise Unreadable(f"is an archive of more than {MOST_NESTED // 2**20} MB in another; hand it in by itself")
    return open_archive(place.members[-1][1], io.BytesIO(data))


def _member(place: Place, most: int) -> bytes:
    """What is in the member of an archive. Another one may have that number once the archive is another."""
    archive = opened(Place(place.path, place.members[:-1]))
    number, name = place.members[-1]
    if number >= len(archive.members) or archive.members[number].name != name:
        raise Unreadable("is no longer in its archive, which was changed meanwhile; grade again")
    return archive.read(number, most)


class _OnDisk(io.RawIOBase):
    """A regular file that is opened for each read, and closed again: nothing stays open, whoever forgets it.

    What is no regular file is never opened for longer than it takes to see that: not followed, and not waited for.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._at = 0

    def first(self, most: int) -> bytes:
        """The first `most` bytes."""
        return self._bytes(0, most)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: 0}[whence]
        if whence == os.SEEK_END:
            start = os.lstat(self._path).st_size
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a place before the beginning of the file")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        most = size if size >= 0 else max(0, os.lstat(self._path).st_size - self._at)
        data = self._bytes(self._at, most)
        self._at += len(data)
        return data

    def readinto(self, buffer: bytearray | memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _bytes(self, start: int, most: int) -> bytes:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            mode = os.lstat(self._path).st_mode
            if not stat.S_ISREG(mode):  # asked first: to open a device may already do something
                raise Unreadable(KINDS.get(stat.S_IFMT(mode), "is no file"))
            descriptor = os.open(self._path, flags | getattr(os, "O_CLOEXEC", 0))
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Unreadable("is no file")
                file.seek(start)
                return _all(file, most)
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror or error}") from None


def _all(file: io.FileIO, most: int) -> bytes:
    """`most` bytes, or all that are left: one read may give fewer."""
    parts: list[bytes] = []
    while most > 0 and (part := file.read(min(most, 2**22))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
