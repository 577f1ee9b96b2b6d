"""Lists everything in a folder or an archive, ordered by name: files with their places, and oddities.

Zips and tars are walked through like folders, and read member by member in memory and within limits: nothing is ever
unpacked to disk. Links are not followed, and only regular files and folders are opened.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from gzip import GzipFile
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from lib.files import table
from lib.suite.submissions.statements import SourceError

KNOWN: Final[dict[str, Any]] = table("lib.suite.grade.intake", "names")
"""Facts about files before they are read: tables of names and numbers."""
MOST: Final[dict[str, int]] = KNOWN["most"]
KINDS: Final[dict[int, str]] = {getattr(stat, kind): why for kind, why in KNOWN["kinds"].items()}


class Unreadable(SourceError):
    """Something that was handed in and cannot be read. The message continues after its name: "is empty"."""


def excess(what: str, count: int, fix: str = "", more: str = "") -> str:
    """Return a message that there is more of something than is read, with `more` if the count is a lower bound; else
    ""."""
    return (
        ""
        if count <= MOST[what]
        else f"has {count:,}{more} {what}; at most {MOST[what]:,} are read{fix and '; ' + fix}"
    )


def within(what: str, count: int, fix: str = "", more: str = "") -> None:
    """Raise Unreadable if there is more of something than is read."""
    if why := excess(what, count, fix, more):
        raise Unreadable(why)


@contextmanager
def _regular(path: str) -> Generator[IO[bytes]]:
    """Open a regular file, and nothing else: no link is followed, no pipe waited for, no device opened."""
    wanted = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK"))
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):  # checked first: just opening a device may do something
            raise Unreadable(KINDS.get(stat.S_IFMT(mode), "is not a file"))
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | wanted)) as file:
            yield file
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Place:
    """A file: its `path` on disk; inside an archive also number and name of the `members` on the way, outermost first.
    It is plain data, which can be sent to another process."""

    path: str
    members: tuple[tuple[int, str], ...] = ()

    @property
    def kind(self) -> str:
        """Return which of FORMATS it is by its name; "" if it is not an archive."""
        return archive_format(self.members[-1][1] if self.members else self.path)

    def read(self, what: str = "bytes", fix: str = "") -> bytes:
        """Return the whole content. Unreadable if it is too large, or cannot be read."""
        most = MOST[what] + 1
        if self.members:
            members = _members_of(archive := Place(self.path, self.members[:-1]))
            number, name = self.members[-1]
            # If the archive was changed, another member may have that number.
            if number >= len(members) or members[number].name != name:
                raise Unreadable("is no longer in its archive, which was changed meanwhile; grade again")
            with _damage(archive.kind), members[number].open() as member:
                data = member.read(most)
        else:
            with _regular(self.path) as file:
                data = file.read(most)
        within(what, len(data), fix, " or more")
        return data


# -- one archive --------------------------------------------------------------------------------------------------

FORMATS: Final = (".zip", ".tar.gz", ".tgz", ".tar")
"""Endings of archives' names."""
NO_FILE: Final = "is a link, or another thing that is not a file; hand in the file itself"


class Member(NamedTuple):
    """One file of an archive: its name with "/" between folders, the size in bytes that it claims, and `odd`, why it
    is not read ("" for a plain file)."""

    name: str
    size: int
    odd: str
    open: Callable[[], IO[bytes]]


def archive_format(name: str) -> str:
    """Return which of FORMATS a file is by its name; "" if it is not an archive."""
    return next((end for end in FORMATS if name.lower().endswith(end)), "")


def without_ending(name: str) -> str:
    """Return an archive's name without its ending, and any other name unchanged."""
    return name[: len(name) - len(archive_format(name))] or name


def _members_of(place: Place) -> tuple[Member, ...]:
    """The members of the archive at a place, without folders. The last few archives are cached, so that the next member
    is found at once. Unreadable if there is none, or it exceeds the limits."""
    with _regular(place.path) as file:
        state = os.fstat(file.fileno())
    return _opened(place, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=3)
def _opened(place: Place, _state: tuple[int, int, int]) -> tuple[Member, ...]:
    """`_state` is that of the file on disk: when it changes, the file is read again."""
    inner = None if not place.members else io.BytesIO(place.read("bytes when it is unpacked", "hand it in by itself"))
    with _regular(place.path) if inner is None else nullcontext(inner) as file, _damage(place.kind):
        return _zip(file, inner or place.path) if place.kind == ".zip" else _tar(file, place.kind)


@contextmanager
def _damage(kind: str) -> Generator[None]:
    """Report damage in an archive in one way, whichever error the library raises."""
    try:
        yield
    except Unreadable:
        raise
    except Exception as error:
        said = str(error).strip().rstrip(".")[:200] or type(error).__name__
        raise Unreadable(f"is a damaged {kind[1:]} ({said}); pack it again, and hand it in again") from None


def _zip(file: IO[bytes], again: IO[bytes] | str) -> tuple[Member, ...]:
    """The members of a zip. A path is opened `again`, so that members can be read later."""
    within("bytes in its table of contents", _directory_size(file))
    archive = ZipFile(again)
    infos = [info for info in archive.infolist() if not info.is_dir()]
    within("files", len(infos))
    return tuple(Member(_name_in_zip(info), info.file_size, _odd(info), partial(archive.open, info)) for info in infos)


def _directory_size(file: IO[bytes]) -> int:
    """Return the size that a zip claims for its table of contents, which zipfile would read at any size."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 2**16 - 98))
    tail = file.read()
    # The end record of a 64-bit zip, which takes precedence, or the usual one.
    for mark, place, number in ((b"PK\6\6", 40, "<Q"), (b"PK\5\6", 12, "<I")):
        if (at := tail.rfind(mark)) >= 0 and at + place + struct.calcsize(number) <= len(tail):
            return struct.unpack_from(number, tail, at + place)[0]
    return 0


def _name_in_zip(info: ZipInfo) -> str:
    """The name of a member. Without the UTF-8 flag it should be cp437, but macOS writes UTF-8 anyway."""
    try:
        return info.filename if info.flag_bits & 0x800 else info.filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.filename


def _odd(info: ZipInfo) -> str:
    mode = info.external_attr >> 16
    if mode and (mode & 0o170000) not in (0, 0o100000):
        return NO_FILE
    if info.flag_bits & 0x1:
        return "is locked with a password; hand it in without one"
    if info.compress_type in (ZIP_STORED, ZIP_DEFLATED):
        return ""
    return f"is packed by a method that is not read ({info.compress_type}); make the zip with the usual one, deflate"


def _tar(file: IO[bytes], kind: str) -> tuple[Member, ...]:
    """The members of a tar, which has no table of contents, and so is walked through once, in memory."""
    with nullcontext(file) if kind == ".tar" else GzipFile(fileobj=file) as unpacked:
        data = unpacked.read(MOST["bytes when it is unpacked"] + 1)
    within("bytes when it is unpacked", len(data), "hand in the folder, or use a zip", " or more")
    members: list[Member] = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8") as tar:
        for number, info in enumerate(tar, 1):  # a negative size would make it endless
            within("files", number)
            if not info.isdir():
                inside = memoryview(data)[info.offset_data : info.offset_data + info.size]
                odd = "" if info.isreg() and not info.issparse() else NO_FILE
                members.append(Member(info.name, info.size, odd, partial(io.BytesIO, inside)))
        if any(data[tar.offset : tar.offset + tarfile.BLOCKSIZE]):  # tarfile takes that for the end
            raise tarfile.ReadError(f"no header at byte {tar.offset:,}")
    return tuple(members)


# -- all entries --------------------------------------------------------------------------------------------------

MADE_BY_COMPUTERS: Final = frozenset[str](KNOWN["files"]["made_by_computers"])


@dataclass(frozen=True, slots=True)
class Entry:
    """A file with its `place`; or, without one, an oddity, and `why` it is not read. `parts` is its path, from the name
    of the given folder or archive on. A folder that software makes is one entry, `junk`."""

    parts: tuple[str, ...]
    place: Place | None = None
    size: int = 0
    why: str = ""
    junk: bool = False


def walk(root: Path) -> Iterator[Entry]:
    """Yield everything at a path, in order. If the path itself is a link, it is followed: the user named it. A single
    file's `parts` include its folder, as other files in there may be given, too."""
    path = os.path.realpath(root)
    name = root.name or os.path.basename(path) or path
    single = not archive_format(name) and not os.path.isdir(path)
    yield from _at(path, (os.path.basename(os.path.dirname(path)), name) if single else (name,))


def _at(path: str, parts: tuple[str, ...]) -> Iterator[Entry]:
    names: list[str] = []
    what = ""
    try:
        state = os.lstat(path)
        if (kind := stat.S_IFMT(state.st_mode)) == stat.S_IFDIR:
            what = "is a folder that "
            within("folders within folders", len(parts), "hand in fewer")
            names = sorted(os.listdir(path))
        elif kind != stat.S_IFREG:
            raise Unreadable(KINDS.get(kind, "is not a file"))
        else:
            yield from _file(parts, Place(path), state.st_size)
    except Unreadable as error:
        yield Entry(parts, why=str(error))
    except OSError as error:
        yield Entry(parts, why=f"{what}cannot be read: {error.strerror}")
    for name in names:
        if _is_junk(name):
            yield Entry((*parts, name), junk=True)
        else:
            yield from _at(os.path.join(path, name), (*parts, name))


def _file(parts: tuple[str, ...], place: Place, size: int) -> Iterator[Entry]:
    if not place.kind:
        yield Entry(parts, place, size)
        return
    try:
        within("archives around it", len(place.members), "hand in what is in it")
        members = _members_of(place)
    except Unreadable as error:
        yield Entry(parts, why=str(error))
        return
    last = {member.name: number for number, member in enumerate(members)}
    junk: set[tuple[str, ...]] = set()
    # Nested archives may have 8 GiB together, like a class's, but at most one of the largest plus 50 times `size`.
    nested, most = 0, min(8 * 2**30, MOST["bytes when it is unpacked"] + 50 * size)
    for number, member in sorted(enumerate(members), key=lambda each: (_parts(each[1].name), each[0])):
        inner = (*parts, *_parts(member.name))
        made = next((n for n in range(len(parts), len(inner)) if _is_junk(inner[n]) and inner[n] != ".."), None)
        if made is not None:
            if inner[: made + 1] not in junk:
                junk.add(inner[: made + 1])
                yield Entry(inner[: made + 1], junk=True)
        elif why := _odd_name(member.name) or member.odd:
            yield Entry(inner, why=why)
        elif last[member.name] != number:
            yield Entry(inner, why="is in its archive twice; the later one counts")
        elif archive_format(member.name) and (nested := nested + member.size) > most:
            yield Entry(inner, why=f"is one of archives of {nested / 1e6:,.0f} MB in one; hand in what is in them")
        else:
            yield from _file(inner, Place(place.path, (*place.members, (number, member.name))), member.size)


def _is_junk(name: str) -> bool:
    return name in MADE_BY_COMPUTERS or name.startswith((".", "~$"))


def _parts(name: str) -> tuple[str, ...]:
    """The folders and the file of a member's name, with either kind of slash."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def _odd_name(name: str) -> str:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or (not parts[0] and len(parts) > 1) or parts[0].endswith(":"):
        return "has a path that leads out of its archive, as no honest archive has; it is not read"
    return excess("folders within folders", len(parts), "hand in fewer") or ("" if _parts(name) else "has no name")
