"""Everything that lies in a folder or an archive, in the order of its names: files with their places, and what is odd.

Zips and tars are walked through as folders, and read member by member in memory and within limits: nothing is ever
unpacked to a disk. Links are not followed, and what is neither file nor folder is not opened.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from gzip import GzipFile
from pathlib import Path
from typing import IO, Final, Protocol, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

__all__ = [
    "FORMATS",
    "MOST_NESTED",
    "Archive",
    "Entry",
    "Member",
    "Place",
    "Unreadable",
    "archive_format",
    "open_archive",
    "opened",
    "walk",
    "without_ending",
]

# -- archives ------------------------------------------------------------------------------------------------------


MOST_MEMBERS: Final = 50_000
MOST_DIRECTORY: Final = 8 * 2**20
"""Bytes of a zip's table of contents, which is read at once."""
MOST_UNPACKED: Final = 64 * 2**20
"""Bytes of a tar, which is held in memory while it is read."""
BLOCK: Final = 512
LOCKED: Final = 0x1
"""The bit of a zip's member that says that it needs a password."""
IN_UTF_8: Final = 0x800


class Unreadable(ValueError):
    """Something that was handed in and cannot be read. The message goes on after its name: "is empty". `state` is the
    one of a puzzle that was handed in so (see `lib.suite.submissions.source`)."""

    def __init__(self, message: str, state: str = "unreadable") -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive: its name as the archive has it, with "/" between folders, how many bytes it says it has,
    and `odd`, why it is not read ("" for a plain file)."""

    name: str
    size: int
    odd: str = ""


class Archive(Protocol):
    """An archive: its members, folders left out, and what is in one of them."""

    @property
    def members(self) -> tuple[Member, ...]: ...

    def read(self, number: int, most: int) -> bytes:
        """What is in a member, at most `most` bytes and one more. Unreadable where it is damaged."""
        ...


def archive_format(name: str) -> str | None:
    """Which of FORMATS a file is by its name, if it is one."""
    return next((end for end in FORMATS if name.lower().endswith(end)), None)


def without_ending(name: str) -> str:
    """The name of an archive without its ending; any other name as it is."""
    return name[: -len(archive_format(name) or "")] or name if archive_format(name) else name


def open_archive(name: str, file: IO[bytes]) -> Archive:
    """Reads the table of contents of an archive. Unreadable where there is none, or it is beyond all limits."""
    kind = archive_format(name)
    if kind is None:
        raise Unreadable(f"is no archive that can be read, which end in {', '.join(FORMATS)}")
    try:
        return FORMATS[kind](file)
    except Unreadable:
        raise
    except Exception as error:  # of any kind: what finds damage says so in many ways
        raise _damaged(kind, error) from None


# -- zip --------------------------------------------------------------------------------------------------------


class _Zip:
    """A zip, whose table of contents says what is where."""

    def __init__(self, file: IO[bytes]) -> None:
        if (size := _directory_size(file)) > MOST_DIRECTORY:
            raise Unreadable(f"has a table of contents of {size:,} bytes; at most {MOST_DIRECTORY:,} are read")
        self._zip = ZipFile(file)
        found = [info for info in self._zip.infolist() if not info.is_dir()]
        _few_enough(len(found))
        self._infos = found
        self.members = tuple(Member(_name_in_zip(info), info.file_size, _odd(info)) for info in found)

    def read(self, number: int, most: int) -> bytes:
        try:
            with self._zip.open(self._infos[number]) as file:
                return file.read(most + 1)
        except Exception as error:
            raise _damaged(".zip", error) from None


def _directory_size(file: IO[bytes]) -> int:
    """How large a zip says that its table of contents is, which zipfile would read whatever it says."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 2**16 - 98))
    tail = file.read()
    found = [0]
    if (at := tail.rfind(b"PK\5\6")) >= 0 and at + 16 <= len(tail):
        found.append(struct.unpack_from("<I", tail, at + 12)[0])
    if (at := tail.rfind(b"PK\6\6")) >= 0 and at + 48 <= len(tail):  # zip64, which then counts
        found = [struct.unpack_from("<Q", tail, at + 40)[0]]
    return max(found)


def _name_in_zip(info: ZipInfo) -> str:
    """The name of a member. Without the flag for UTF-8 it ought to be cp437; macOS writes UTF-8 all the same."""
    if not info.flag_bits & IN_UTF_8:
        try:
            return info.filename.encode("cp437").decode("utf-8")
        except UnicodeError:
            pass
    return info.filename


def _odd(info: ZipInfo) -> str:
    mode = info.external_attr >> 16
    if mode and (mode & 0o170000) not in (0, 0o100000):
        return "is a link, or another thing that is no file; hand in the file itself"
    if info.flag_bits & LOCKED:
        return "is locked with a password; hand it in without one"
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return (
            f"is packed by a method that is not read ({info.compress_type}); make the zip with the usual one, deflate"
        )
    return ""


# -- tar --------------------------------------------------------------------------------------------------------


class _Tar:
    """A tar, which has no table of contents: it is walked through once, in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        data = file.read(MOST_UNPACKED + 1)
        if len(data) > MOST_UNPACKED:
            size = MOST_UNPACKED // 2**20
            raise Unreadable(f"is larger than {size} MB when unpacked; unpack it, and hand in the folder, or use a zip")
        self._data = data
        found: list[tuple[Member, int]] = []
        for member in _tar_members(data):
            found.append(member)
            _few_enough(len(found))
        self._starts = [start for _, start in found]
        self.members = tuple(member for member, _ in found)

    def read(self, number: int, most: int) -> bytes:
        start = self._starts[number]
        return self._data[start : start + min(self.members[number].size, most + 1)]


def _packed_tar(file: IO[bytes]) -> Archive:
    """A tar that gzip has packed."""
    file.seek(0)
    with GzipFile(fileobj=file) as unpacked:
        return _Tar(cast("IO[bytes]", unpacked))


def _tar_members(data: bytes) -> Iterator[tuple[Member, int]]:
    """The members of a tar, each with where it starts. A header is a block of 512 bytes, and so on to a block of zeros;
    a name that is too long for it stands in a member of its own before (GNU: L, POSIX: x)."""
    at = 0
    name: str | None = None
    size: int | None = None
    while at + BLOCK <= len(data) and any(data[at : at + BLOCK]):
        header = data[at : at + BLOCK]
        _check_sum(header, at)
        length = size if size is not None else _octal(header[124:136])
        start, kind = at + BLOCK, header[156:157]
        if start + length > len(data):
            raise Unreadable(
                f"is cut off: its byte {at:,} begins a file of {length:,} bytes, and {len(data):,} are there"
            )
        if kind == b"L":
            name = _text(data[start : start + length])
        elif kind == b"x":
            told: dict[str, str] = dict(_records(data[start : start + length]))
            if "path" in told:
                name = told["path"]
            if told.get("size", "").isdecimal():
                size = int(told["size"])
        elif kind not in (b"g", b"K"):
            if kind != b"5":
                odd = "" if kind in (b"0", b"\0", b"7") else "is a link, or another thing that is no file"
                yield Member(name or _tar_name(header), length, odd), start
            name = size = None
        at = start + -(-length // BLOCK) * BLOCK


def _check_sum(header: bytes, at: int) -> None:
    if sum(header[:148]) + 8 * 32 + sum(header[156:]) != _octal(header[148:156]):
        raise Unreadable(f"is no tar, or a damaged one: the checksum at byte {at:,} is wrong")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if field[:1] == b"\x80":  # a large number, in binary
        return int.from_bytes(field[1:], "big")
    if not all(48 <= digit <= 55 for digit in digits):
        raise Unreadable("is no tar, or a damaged one: a number in it is none")
    return int(digits or b"0", 8)


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """The records of a POSIX header: "<length> key=value" and a line's end, the length that of all of it."""
    at = 0
    while (space := data.find(b" ", at, at + 12)) > at and data[at:space].isdigit():
        after = at + int(data[at:space])
        key, _, value = data[space + 1 : after - 1].partition(b"=")
        yield _text(key), _text(value)
        at = max(after, space)


def _tar_name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")


# -- both -------------------------------------------------------------------------------------------------------

FORMATS: Final = {".zip": _Zip, ".tar.gz": _packed_tar, ".tgz": _packed_tar, ".tar": _Tar}
"""How each kind of archive is opened, by the ending of its name."""


def _few_enough(number: int) -> None:
    if number > MOST_MEMBERS:
        raise Unreadable(f"holds more than {MOST_MEMBERS:,} files")


def _damaged(kind: str, error: Exception) -> Unreadable:
    said = str(error).strip().rstrip(".")[:200]
    return Unreadable(f"is a damaged {kind[1:]} ({said or type(error).__name__}); pack it again, and hand it in again")


# -- places --------------------------------------------------------------------------------------------------------


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


# -- walking -------------------------------------------------------------------------------------------------------


MADE_BY_COMPUTERS: Final = frozenset(
    {"__MACOSX", "__pycache__", "node_modules", "site-packages", "Thumbs.db", "desktop.ini", "Icon\r"}
)
"""Files and folders that nobody wrote; so is what begins with a dot (.git, .ipynb_checkpoints, ._x) or with ~$."""
DEEPEST: Final = 40
"""Folders within folders."""
MOST_ARCHIVES: Final = 3
"""Archives within archives: that of a platform, a student's, and one in that."""
MOST_NESTED_TOGETHER: Final = 8 * 2**30
"""Bytes of all archives that lie in one, such as that of a whole class."""
NESTED_RATIO: Final = 50
"""How many times larger they may be than what they lie in, besides one of the largest: archives pack badly."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file with its `place`; or, without one, something odd: `why` it is not read.

    `parts` are the names on the way, from that of the folder or archive that was given. What computers make for
    themselves is `junk`: such a folder is one entry, and not looked into.
    """

    parts: tuple[str, ...]
    place: Place | None = None
    size: int = 0
    why: str = ""
    junk: bool = False


def is_junk(name: str) -> bool:
    """Whether a file or folder of that name was made by a computer for itself."""
    return name in MADE_BY_COMPUTERS or name.startswith((".", "~$"))


def walk(root: Path) -> Iterator[Entry]:
    """All that lies at a path, in order. A link that is given itself is followed: somebody named it.

    A single file is called by its folder too, in which there may be others that are given.
    """
    path = os.path.realpath(root)
    name = root.name or os.path.basename(path) or path
    single = archive_format(name) is None and not os.path.isdir(path)
    yield from _at(path, (os.path.basename(os.path.dirname(path)), name) if single else (name,))


def _at(path: str, parts: tuple[str, ...]) -> Iterator[Entry]:
    """What lies at a path of the disk."""
    try:
        state = os.lstat(path)
    except OSError as error:
        yield Entry(parts, why=f"cannot be read: {error.strerror}")
        return
    if stat.S_ISREG(state.st_mode):
        yield from _file(Entry(parts, Place(path), state.st_size))
    elif stat.S_ISDIR(state.st_mode):
        yield from _folder(path, parts)
    else:
        yield Entry(parts, why=KINDS.get(stat.S_IFMT(state.st_mode), "is no file"))


def _folder(path: str, parts: tuple[str, ...]) -> Iterator[Entry]:
    if len(parts) > DEEPEST:
        yield Entry(parts, why=f"lies in more than {DEEPEST} folders, and nothing in it is read; hand in fewer")
        return
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        yield Entry(parts, why=f"is a folder that cannot be read: {error.strerror}")
        return
    for name in names:
        inner = (*parts, name)
        if is_junk(name):
            yield Entry(inner, junk=True)
        else:
            yield from _at(os.path.join(path, name), inner)


def _file(entry: Entry) -> Iterator[Entry]:
    """A file; where it is an archive, what is in it."""
    place = entry.place
    if place is None or archive_format(entry.parts[-1]) is None:
        yield entry
    elif len(place.members) >= MOST_ARCHIVES:
        yield Entry(entry.parts, why=f"is an archive in {MOST_ARCHIVES} others; unpack it, and hand in what is in it")
    else:
        yield from _archive(place, entry.parts, entry.size)


def _archive(place: Place, parts: tuple[str, ...], size: int) -> Iterator[Entry]:
    try:
        members = opened(place).members
    except Unreadable as error:
        yield Entry(parts, why=str(error))
        return
    last = {member.name: number for number, member in enumerate(members)}
    junk: set[tuple[str, ...]] = set()
    nested, most = 0, min(MOST_NESTED_TOGETHER, MOST_NESTED + NESTED_RATIO * size)
    for number in sorted(range(len(members)), key=lambda number: (_parts(members[number].name), number)):
        member = members[number]
        inner = (*parts, *_parts(member.name))
        if (made := _junk(inner, len(parts))) is not None:
            if made not in junk:
                junk.add(made)
                yield Entry(made, junk=True)
        elif why := _odd_name(member.name) or member.odd:
            yield Entry(inner, why=why)
        elif last[member.name] != number:
            yield Entry(inner, why="is in its archive twice; the later one counts")
        else:
            nested += member.size if archive_format(member.name) else 0
            found = Entry(inner, Place(place.path, (*place.members, (number, member.name))), member.size)
            if nested > most and archive_format(member.name):
                yield Entry(inner, why=f"is one of archives of {nested / 1e6:,.0f} MB in one; hand in what is in them")
            else:
                yield from _file(found)


def _parts(name: str) -> tuple[str, ...]:
    """The folders and the file of a member's name, however they are parted."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def _junk(parts: tuple[str, ...], given: int) -> tuple[str, ...] | None:
    """The file or folder made by a computer that a member is, or lies in; `given` parts are those of the archive."""
    for number in range(given, len(parts)):
        if is_junk(parts[number]) and parts[number] != "..":
            return parts[: number + 1]
    return None


def _odd_name(name: str) -> str:
    slashed = name.replace("\\", "/")
    parts = slashed.split("/")
    if ".." in parts or slashed.startswith("/") or parts[0].endswith(":"):
        return "has a path that leads out of its archive, as no honest archive has; it is not read"
    if len(parts) > DEEPEST:
        return f"lies in more than {DEEPEST} folders, and is not read; hand in fewer"
    return "" if _parts(name) else "has no name"
