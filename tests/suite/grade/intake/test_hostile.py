"""What is broken, or made to do harm: each is a row with a sentence, nothing is followed or unpacked, nothing stops."""

import gzip
import io
import os
import socket
import stat
import struct
import subprocess
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from lib.suite.grade.gradebook import Refused
from lib.suite.grade.intake import archives, collecting
from lib.suite.grade.intake.archives import walk
from lib.suite.grade.intake.collecting import collect
from lib.suite.grade.intake.submission import Collected, chosen
from tests.suite.grade.intake.trees import FSDP, folder, notebook, tar_bytes, zip_bytes
from tests.support.profiles import examples
from tests.support.said import Said

GOOD = {"bob/05_fsdp.ipynb": notebook(FSDP)}


def rows_of_ann(collected: Collected) -> list[Refused]:
    """The rows of what Ann handed in, read or not; Bob has what he handed in."""
    ann, bob = collected.submissions
    assert (ann.student, bob.student) == ("ann", "bob")
    assert list(chosen(bob, ["fsdp"]).of) == ["fsdp"]
    assert all(row.student == "ann" for row in collected.refused)
    return [*collected.refused, *chosen(ann, ["fsdp"]).refused]


# -- on a disk --------------------------------------------------------------------------------------------------


def a_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def many_folders(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    os.mkdir(path)
    name: str = path.name
    for _ in range(1000):
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, name = below, "d"
        os.mkdir(name, dir_fd=here)
    os.close(here)


ON_DISK: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link out of it": (lambda path: path.symlink_to("/etc/passwd"), "is a link, and links are not followed"),
    "a link in a circle": (lambda path: path.symlink_to(".."), "is a link, and links are not followed"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "is a link, and links are not followed"),
    "a link to nothing": (lambda path: path.symlink_to("gone"), "is a link, and links are not followed"),
    "a pipe": (lambda path: os.mkfifo(path), "is a pipe, and no file"),
    "a socket": (a_socket, "is a socket, and no file"),
    "a device of zeros": (
        lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
        "is a device, and no file",
    ),
    "a file of 1 TB": (
        lambda path: (path.touch(), os.truncate(path, 10**12)),
        "has 1,000,000,000,000 bytes; at most 20,000,000 are read",
    ),
    "an empty one": (lambda path: path.touch(), "is empty"),
    "deep folders": (many_folders, "has 41 folders within folders; at most 40 are read"),
}


@pytest.mark.skipif(os.name == "nt", reason="such things are made by POSIX systems")
@pytest.mark.parametrize("what", ON_DISK)
def test_what_is_no_file_is_a_row(what: str, tmp_path: Path) -> None:
    make, words = ON_DISK[what]
    root = folder(tmp_path / "hw", {**GOOD, "ann/x.txt": ""})
    try:
        make(root / "ann" / "05_fsdp.ipynb")
    except OSError as error:
        pytest.skip(f"this system makes no such thing: {error}")
    try:
        (row,) = rows_of_ann(collect([root]))
    finally:
        if what == "deep folders":  # deeper than what cleans up after tests can go
            subprocess.run(["rm", "-rf", root], check=True)
    assert row.file.startswith("hw/ann/05_fsdp.ipynb")
    assert row.why.startswith(words)


def test_what_may_not_be_read_is_a_row(tmp_path: Path) -> None:
    root = folder(tmp_path / "hw", {**GOOD, "ann/05_fsdp.ipynb": notebook(FSDP), "ann/closed/03_ddp.ipynb": "x"})
    os.chmod(root / "ann" / "05_fsdp.ipynb", 0)
    os.chmod(root / "ann" / "closed", 0)
    try:
        if os.access(root / "ann" / "closed", os.R_OK):
            pytest.skip("who runs this may read everything")
        rows = rows_of_ann(collect([root]))
    finally:
        os.chmod(root / "ann" / "closed", 0o700)
    assert [row.why for row in rows] == [
        "is a folder that cannot be read: Permission denied",
        "cannot be read: Permission denied",
    ]


def test_what_becomes_a_link_or_goes_away_meanwhile_is_a_row(tmp_path: Path) -> None:
    root = folder(
        tmp_path / "hw", {"ann/05_fsdp.ipynb": notebook(FSDP), "ann/b.py": FSDP, "ann/c.zip": zip_bytes({"c.py": FSDP})}
    )
    (ann,) = collect([root]).submissions
    (root / "ann/05_fsdp.ipynb").unlink()
    (root / "ann/05_fsdp.ipynb").symlink_to("/etc/passwd")
    (root / "ann/b.py").unlink()
    (root / "ann/c.zip").write_bytes(zip_bytes({}))
    rows = chosen(ann, ["fsdp"]).refused
    assert [row.why.partition(";")[0][:40] for row in rows] == [
        "is a link, and links are not followed",
        "cannot be read: No such file or director",
        "is no longer in its archive, which was c",
    ]


# -- archives ---------------------------------------------------------------------------------------------------


def with_member(info: zipfile.ZipInfo, data: bytes = FSDP.encode()) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(info, data)
    return made.getvalue()


def named(name: str) -> bytes:
    return with_member(zipfile.ZipInfo(name))


def linked() -> bytes:
    info = zipfile.ZipInfo("fsdp.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return with_member(info, b"/etc/passwd")


def changed(data: bytes, at: bytes, offset: int, new: bytes) -> bytes:
    """Bytes put in, so many after the first of each place where a signature stands."""
    start = data.index(at) + offset
    return data[:start] + new + data[start + len(new) :]


def locked() -> bytes:
    data = changed(zip_bytes({"fsdp.py": FSDP}), b"PK\3\4", 6, b"\1\0")
    return changed(data, b"PK\1\2", 8, b"\1\0")


def with_a_lie(size: int) -> bytes:
    return changed(zip_bytes({"fsdp.py": "x = 1\n" * 1000}), b"PK\1\2", 24, struct.pack("<I", size))


def bomb(levels: int) -> bytes:
    data = zip_bytes({"fsdp.py": FSDP})
    for _ in range(levels):
        data = zip_bytes({f"{number}.zip": data for number in range(8)})
    return data


def large(count: int) -> bytes:
    return zip_bytes({f"{number}.ipynb": bytes(10_000_000) for number in range(count)})


def tar_with(kind: bytes, link: str = "/etc/passwd") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo("fsdp.py")
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return made.getvalue()


SAID = Said(Path(__file__).with_name("said") / "archives.txt")


@pytest.mark.parametrize("expression", SAID.texts)
def test_an_archive_that_is_broken_or_does_harm_is_a_row(expression: str, tmp_path: Path) -> None:
    def rows(name: str, data: bytes) -> str:
        root = folder(tmp_path / "hw", {**GOOD, f"ann/{name}": data})
        before = sorted(tmp_path.rglob("*"))
        found = rows_of_ann(collect([root]))
        assert sorted(tmp_path.rglob("*")) == before, "nothing is unpacked"
        assert all(row.file.startswith(f"hw/ann/{name}") for row in found)
        assert len(found) <= collecting.MOST_ROWS
        assert all(row.why.isprintable() and len(row.why) < 300 for row in found)
        return "\n".join(dict.fromkeys(row.why for row in found))

    SAID.check(expression, {**globals(), "rows": rows, "gzip": gzip})


def test_an_archive_of_very_many_files_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archives.MOST, "files", 100)
    many = {f"{number}.py": "" for number in range(101)}
    root = folder(tmp_path / "hw", {**GOOD, "ann/a.zip": zip_bytes(many), "ann/a.tar": tar_bytes(many, "w")})
    assert [row.why for row in rows_of_ann(collect([root]))] == ["has 101 files; at most 100 are read"] * 2


def test_large_archives_in_archives_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archives.MOST, "bytes when it is unpacked", 100)
    root = folder(tmp_path / "hw", {**GOOD, "ann/a.zip": zip_bytes({"b.zip": named("fsdp.py")}, zipfile.ZIP_STORED)})
    (row,) = rows_of_ann(collect([root]))
    assert row.why.startswith("has 101 or more bytes when it is unpacked")


def test_of_a_member_that_is_there_twice_the_later_counts(tmp_path: Path) -> None:
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as archive:
        warnings.simplefilter("ignore")
        for text in ("x = 1\n" + FSDP, FSDP):
            archive.writestr("fsdp.py", text)
    (ann,) = collect([folder(tmp_path / "hw", {"ann/a.zip": made.getvalue()})]).submissions
    assert chosen(ann, ["fsdp"]).of["fsdp"][1].cells == (("fsdp.py", FSDP),)
    assert "twice" in collect([tmp_path / "hw"]).refused[0].why


def test_names_in_zips_that_say_nothing_of_their_encoding(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("Zoe/fsdp.py")
    data = with_member(info)
    utf8 = data.replace(b"Zoe/", "Zö/".encode())  # as macOS writes it
    dos = data.replace(b"Zoe/", "Zöe/".encode("cp437"))
    for packed, student in ((utf8, "Zö"), (dos, "Zöe")):
        (tmp_path / "hw.zip").write_bytes(packed)
        assert [one.student for one in collect([tmp_path / "hw.zip"]).submissions] == [student]


def test_a_zip_of_64_bits(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive, archive.open("ann/fsdp.py", "w", force_zip64=True) as file:
        file.write(FSDP.encode())
    (tmp_path / "hw.zip").write_bytes(made.getvalue())
    (ann,) = collect([tmp_path / "hw.zip"]).submissions
    assert ann.files[0].source().cells == (("fsdp.py", FSDP),)


def test_members_that_overlap_are_read_within_the_limits(tmp_path: Path) -> None:
    """The table of contents names one packed file many times, under many names: a bomb without nesting."""
    data = zip_bytes({"00.ipynb": bytes(15_000_000)})
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = data[at:end]
    table = b"".join(entry.replace(b"00.ipynb", b"%02d.ipynb" % number) for number in range(50))
    tail = b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 50, 50, len(table), at, 0)
    root = folder(tmp_path / "hw", {**GOOD, "ann/a.zip": data[:at] + table + tail})
    (row,) = rows_of_ann(collect([root]))
    assert row.why.startswith("has 750,000,000 bytes with the student's other files")


# -- anything at all --------------------------------------------------------------------------------------------

FILES = ["05_fsdp.ipynb", "fsdp.py", "a.zip", "b.tar.gz", "x.pdf", "r.ipynb"]
NAMES = ["ann", "bob", "c d", "ü\n", ".git", "__MACOSX", *FILES]
CONTENTS = [b"", b"x = 1", FSDP.encode(), notebook(FSDP).encode(), b"\0\xff", notebook(FSDP).encode()[:30], b"PK\3\4"]

contents = st.sampled_from(CONTENTS) | st.binary(max_size=40)
trees = st.recursive(contents, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=4), max_leaves=12)


def packed(tree: object, name: str) -> object:
    """A tree in which each folder that is called as an archive is one."""
    if not isinstance(tree, dict):
        return tree
    inner = {key: packed(value, key) for key, value in tree.items()}
    if name.endswith(".zip"):
        return zip_bytes(flat(inner))
    return tar_bytes(flat(inner)) if name.endswith(".tar.gz") else inner


def flat(tree: object, above: str = "") -> dict[str, str | bytes]:
    """The files of a tree by their paths."""
    if not isinstance(tree, dict):
        return {above: tree}  # type: ignore[dict-item]
    found: dict[str, str | bytes] = {}
    for name, inner in tree.items():
        found |= flat(inner, f"{above}/{name}" if above else name)
    return found


@given(tree=st.dictionaries(st.sampled_from(NAMES), trees, max_size=5))
@examples(60, 15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_any_tree_nothing_is_lost_and_nothing_stops(
    tree: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = folder(tmp_path_factory.mktemp("any") / "hw", flat(packed(tree, "")))
    collected = collect([root])
    everything = {"/".join(entry.parts): entry for entry in walk(root)}
    fates: dict[str, int] = dict.fromkeys(everything, 0)
    for submission in collected.submissions:
        found = chosen(submission, ["fsdp", "ddp"])
        rows = [row.file for row in found.refused]
        for file in submission.files:
            fates[file.name.replace("\ufffd", "\n")] += 1
        assert set(rows) <= {file.name for file in submission.files}
    told = [row.file for row in collected.refused]
    notes = [*collected.notes, *(note for submission in collected.submissions for note in submission.notes)]
    told += [name for note in notes for name in note.partition(": ")[2].split(", ")]
    for name in told:
        fates[name.replace("\ufffd", "\n")] += 1
    assert {name: fate for name, fate in fates.items() if fate != 1} == {}
    for file in (path.relative_to(root.parent).parts for path in root.rglob("*") if path.is_file()):
        above = any("/".join(file[:count]) in everything for count in range(1, len(file) + 1))
        assert (
            above
            or any(name.startswith("/".join(file) + "/") for name in everything)
            or not list(walk(root.parent.joinpath(*file)))
        )


@given(
    data=st.binary(max_size=200),
    at=st.integers(0, 2000),
    new=st.binary(max_size=8),
    kind=st.sampled_from(["zip", "tar", "tar.gz"]),
)
@examples(150, 30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_archives_with_any_bytes_changed_are_read_or_refused(
    data: bytes, at: int, new: bytes, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files: dict[str, str | bytes] = {"ann/fsdp.py": FSDP, "ann/sub/x.ipynb": notebook(FSDP), "bob/b.py": data}
    whole = zip_bytes(files) if kind == "zip" else tar_bytes(files, "w" if kind == "tar" else "w:gz")
    at %= len(whole)
    path = tmp_path_factory.mktemp("any") / f"hw.{kind}"
    path.write_bytes(whole[:at] + new + whole[at + len(new) :])
    collected = collect([path])
    for submission in collected.submissions:
        chosen(submission, ["fsdp"])
    assert collected.submissions or collected.refused or collected.notes or not list(walk(path))
