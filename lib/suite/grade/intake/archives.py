"""Zips and tars, read member by member in memory and within limits. Nothing is ever unpacked to a disk."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from gzip import GzipFile
from typing import IO, Final, Protocol, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

__all__ = ["FORMATS", "Archive", "Member", "Unreadable", "archive_format", "open_archive", "without_ending"]

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
    one of a puzzle that was handed in so (see `lib.suite.submissions.states`)."""

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
