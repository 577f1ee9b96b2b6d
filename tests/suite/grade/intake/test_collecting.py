"""What was handed in: whose each file is, which of several counts, and what becomes of all others."""

import json
import os
import random
import tempfile
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from lib.suite.grade.intake import archives
from lib.suite.grade.intake.collecting import PLATFORMS, Platform, collect, owner_of
from lib.suite.grade.intake.submission import Collected, chosen
from tests.suite.grade.intake.trees import DDP, FSDP, folder, notebook, stub, tar_bytes, zip_bytes
from tests.support.said import Said

TREE = {
    "ann/05_fsdp.ipynb": notebook(FSDP),
    "ann/sub/deep/helpers.py": "x = 1",
    "bob/fsdp.py": "import helpers\n" + FSDP,
    "bob/05_fsdp (1).ipynb": notebook(stub("fsdp")),
}


def contents(collected: Collected) -> list[tuple[str, list[tuple[tuple[str, ...], bytes]]]]:
    """All that is to be the same however it was packed."""
    return [(one.student, [(file.parts, file.place.read()) for file in one.files]) for one in collected.submissions]


def test_a_folder_and_archives_of_it_are_the_same(tmp_path: Path) -> None:
    there = contents(collect([folder(tmp_path / "hw", TREE)]))
    assert [name for name, _ in there] == ["ann", "bob"]
    packed: dict[str, bytes] = {
        "a.zip": zip_bytes(TREE),
        "b.tar.gz": tar_bytes(TREE),
        "c.tgz": tar_bytes(TREE),
        "d.tar": tar_bytes(TREE, "w"),
        "e.zip": zip_bytes({"hw.zip": zip_bytes(TREE)}),
        "f.ZIP": zip_bytes({"ann.zip": zip_bytes(part("ann")), "bob.tar.gz": tar_bytes(part("bob"))}),
    }
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
        assert contents(collect([tmp_path / name])) == there, name


def part(student: str) -> dict[str, str]:
    return {name.removeprefix(f"{student}/"): text for name, text in TREE.items() if name.startswith(student)}


def test_the_order_in_which_files_were_made_changes_nothing(tmp_path: Path) -> None:
    names = [
        f"{who}/{what}" for who in ("zoe", "Ann", "ben", "ánn") for what in ("05_fsdp.ipynb", "b.py", "a.pdf", "ü")
    ]
    seen: set[str] = set()
    for seed in range(5):
        random.Random(seed).shuffle(names)
        collected = collect([folder(tmp_path / str(seed) / "hw", {name: name for name in names})])
        seen.add(
            json.dumps([[one.student, [file.name for file in one.files], one.notes] for one in collected.submissions])
        )
    assert len(seen) == 1


def test_paths_in_any_number_and_the_later_is_the_later_attempt(tmp_path: Path) -> None:
    first = folder(tmp_path / "1", {"ann/05_fsdp.ipynb": notebook(FSDP), "ann/03_ddp.ipynb": notebook(DDP)})
    second = folder(tmp_path / "2", {"ann/05_fsdp.ipynb": notebook("# new\n" + FSDP)})
    (ann,) = collect([first, second]).submissions
    found = chosen(ann, ["fsdp", "ddp"])
    assert {puzzle: file.name for puzzle, (file, _) in found.of.items()} == {
        "fsdp": "2/ann/05_fsdp.ipynb",
        "ddp": "1/ann/03_ddp.ipynb",
    }
    assert found.notes == ("passed over, as a later attempt counts: fsdp in 1/ann/05_fsdp.ipynb",)


def test_where_nothing_is_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is nothing at .*hw9: name a folder"):
        collect([tmp_path / "hw9"])


def test_single_files(tmp_path: Path) -> None:
    root = folder(tmp_path / "me", {"05_fsdp.ipynb": notebook(FSDP), "03_ddp.py": DDP, "ben.py": FSDP})
    collected = collect(sorted(root.iterdir()))
    assert [(one.student, [file.name for file in one.files]) for one in collected.submissions] == [
        ("ben", ["me/ben.py"]),
        ("me", ["me/03_ddp.py", "me/05_fsdp.ipynb"]),
    ]


OWNERS = Said(__file__, "owners")


@pytest.mark.parametrize("expression", OWNERS.texts)
def test_whose_it_is(expression: str, tmp_path: Path) -> None:
    """Students with their numbers of files, in a folder as in an archive."""

    def whose(*names: str) -> str:
        files = {name: "" if name.endswith(".ipynb") else "1" for name in names}
        (tmp_path / "hw.zip").write_bytes(zip_bytes(files))
        there, packed = (
            "\n".join(f"{one.student}: {len(one.files)}" for one in collect([path]).submissions)
            for path in (folder(tmp_path / "hw", files), tmp_path / "hw.zip")
        )
        assert there == packed
        return there

    OWNERS.check(expression, {"whose": whose, "unicodedata": unicodedata})


def test_names_are_shown_in_one_line_without_tricks(tmp_path: Path) -> None:
    odd = ["a\nb", "\x1b[31mred", "abc\u202egnp", "=cmd()", "😀👩\u200d👩", "x" * 200, "x" * 199 + "y", "שלום", "a\tb"]
    files = {f"{name}/05_fsdp.ipynb": "" for name in odd}
    students = [one.student for one in collect([folder(tmp_path / "hw", files)]).submissions]
    assert len(set(students)) == len(odd)
    assert all(
        unicodedata.category(char) not in ("Cc", "Cs") and char != "\u202e" for name in students for char in name
    )
    assert max(map(len, students)) <= 120
    assert {"=cmd()", "😀👩\u200d👩", "שלום"} <= set(students)


def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path) -> None:
    try:
        os.mkdir(os.fsencode(tmp_path) + b"/hw")
        os.mkdir(os.fsencode(tmp_path) + b"/hw/\xff\xfe")
        with open(os.fsencode(tmp_path) + b"/hw/\xff\xfe/05_fsdp.ipynb", "w") as file:
            file.write(notebook(FSDP))
    except OSError:
        pytest.skip("this file system wants names in UTF-8")
    (one,) = collect([tmp_path / "hw"]).submissions
    assert one.student == "\ufffd\ufffd"
    assert one.student.encode()
    assert list(chosen(one, ["fsdp"]).of) == ["fsdp"]


CHOICES = Said(__file__, "choices")


@pytest.mark.parametrize("expression", CHOICES.texts)
def test_which_file_counts(expression: str, tmp_path: Path) -> None:
    def counts(files: Mapping[str, str]) -> str:
        (ann,) = collect([folder(tmp_path / "hw", {f"ann/{name}": text for name, text in files.items()})]).submissions
        found = chosen(ann, ["fsdp"])
        assert found.refused == ()
        return "\n".join([found.of["fsdp"][0].parts[-1], *found.notes])

    CHOICES.check(expression, {**globals(), "counts": counts})


def taken(root: str, files: Mapping[str, str | bytes], *puzzles: str) -> str:
    """What becomes of everything in a folder, and which file counts for each puzzle."""
    with tempfile.TemporaryDirectory() as there:
        collected = collect([folder(Path(there, root), dict(files))])
        (packed := Path(there, f"{root}.zip")).write_bytes(zip_bytes(dict(files)))
        assert contents(collect([packed])) == contents(collected)
        said: list[str] = []
        for one in collected.submissions:
            found = chosen(one, puzzles)
            said += [f"{one.student}: {', '.join(file.name for file in one.files) or 'nothing'}"]
            said += [f"  {puzzle}: {file.name}" for puzzle, (file, _) in found.of.items()]
            said += [f"    imports {name}" for _, source in found.of.values() for name, _ in source.modules]
            said += [f"  {note}" for note in (*one.notes, *found.notes)] + [
                f"  refused: {row.file} {row.why}" for row in found.refused
            ]
        said += [*collected.notes, *(f"refused: {row.student}, {row.file} {row.why}" for row in collected.refused)]
        return "\n".join(said)


test_what_becomes_of_it = Said(__file__, "taken").test(lambda: globals())


def test_too_much_of_one_student_is_one_row_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(archives.MOST, "notebooks and .py files beside it", 20)
    files = {f"ann/{n}.ipynb": "" for n in range(22)} | {"bob/fsdp.py": FSDP}
    collected = collect([folder(tmp_path / "hw", files)])
    assert [(one.student, len(one.files)) for one in collected.submissions] == [("ann", 0), ("bob", 1)]
    (row,) = collected.refused
    assert row.why == "has 21 notebooks and .py files beside it; at most 20 are read"


def test_many_rows_of_one_student_are_cut_short(tmp_path: Path) -> None:
    root = folder(tmp_path / "hw", {"ann/fsdp.py": FSDP})
    for number in range(120):
        (root / "ann" / f"{number}.ipynb").symlink_to("fsdp.py")
    rows = collect([root]).refused
    assert len(rows) == 50
    assert rows[-1].why.startswith("and 71 more") or any("and 71 more" in row.why for row in rows)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name.replace(" ", "_"))
def test_the_example_of_a_platform_is_its_own(platform: Platform) -> None:
    first = next(one for one in PLATFORMS if one.pattern.fullmatch(platform.example))
    assert first is platform
    owner = owner_of(tuple(platform.example.split("/")))
    assert "ann" in owner.student.lower() or "alee7" in owner.student or owner.student.startswith("submission_")
    assert owner.parts[-1].startswith("05_fsdp")


FORGED = [
    "c/Ann Lee_1_assignsubmission_file_/x.zip/Bob Bad_4_assignsubmission_file_/05_fsdp.ipynb",
    "c/Ann Lee_1_assignsubmission_file_x_9_assignsubmission_file_05_fsdp.ipynb",
    "c/Ann Lee_12345_678_Bob Bad_410004_assignsubmission_file_05_fsdp.ipynb",
    "c/Ann Lee_12345_678_hw.zip/evil_99_88_ddp.ipynb",
    "c/Ann Lee_12345_678_Bob - ddp.ipynb",
    "c/HW 1_Ann Lee_attempt_2026-11-01-10-00-00_x_bob_attempt_2026-11-02-10-00-00_ddp.ipynb",
    "c/1-67 - Ann Lee - Nov 1, 2026 1000 AM - 9-9 - Bob - Nov 1, 2026 1000 AM - ddp.ipynb",
    "c/1-67 - Ann Lee - Nov 1, 2026 1000 AM/9-9 - Bob - Nov 1, 2026 1000 AM - ddp.ipynb",
    "c/submitted/Ann Lee/hw1/submitted/bob/hw1/ddp.ipynb",
]


@pytest.mark.parametrize("path", FORGED, ids=range(len(FORGED)))
def test_a_student_cannot_write_the_name_of_another_into_that_of_a_file(path: str) -> None:
    owner = owner_of(tuple(path.split("/")))
    assert owner.student == "Ann Lee"
    assert owner.id in ("", "1", "12345")
    assert owner.before.startswith(("Ann Lee", "1-67 - Ann Lee", "HW 1_Ann Lee"))
