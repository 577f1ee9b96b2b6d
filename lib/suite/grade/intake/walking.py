"""Everything that lies in a folder or an archive, in the order of its names: files with their places, and what is odd.

Links are not followed, and what is neither file nor folder is not opened. An archive is walked through as a folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lib.suite.grade.intake.archives import Unreadable, archive_format
from lib.suite.grade.intake.names import is_junk
from lib.suite.grade.intake.places import KINDS, MOST_NESTED, Place, opened

__all__ = ["Entry", "walk"]

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
