"""Taking in folders and archives: each file is found, belongs to its student, and is used, or a note, or a row."""

import json
import os
import random
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from lib.grade.intake import collecting
from lib.grade.intake.choosing import chosen
from lib.grade.intake.collecting import collect
from lib.grade.intake.submission import Collected
from lib.submissions.source import Source
from tests.grade.intake.trees import DDP, FSDP, folder, notebook, stub, tar_bytes, zip_bytes
from tests.support.said import Said

TREE = {
    "ann/05_fsdp.ipynb": notebook(FSDP),
    "ann/sub/deep/helpers.py": "x = 1",
    "bob/fsdp.py": "import helpers\n" + FSDP,
    "bob/05_fsdp (1).ipynb": notebook(stub("fsdp")),
}


def contents(collected: Collected) -> list[tuple[str, list[tuple[tuple[str, ...], str, str]]]]:
    """All that is to be the same however it was packed."""
    return [
        (one.student, [(file.parts, file.digest(), file.text()) for file in one.files]) for one in collected.submissions
    ]


def test_a_folder_and_archives_of_it_are_the_same(tmp_path: Path) -> None:
    there = contents(collect([folder(tmp_path / "hw", TREE)]))
    assert [name for name, _ in there] == ["ann", "bob"]
    packed: dict[str, bytes] = {
        "a.zip": zip_bytes(TREE),
        "b.tar.gz": tar_bytes(TREE),
        "c.tgz": tar_bytes(TREE),
        "d.tar": tar_bytes(TREE, "w"),
        "e.zip": zip_bytes({"hw.zip": zip_bytes(TREE)}),
        "f.ZIP": zip_bytes({f"ann{end}": pack(part("ann")) for end, pack in [(".zip", zip_bytes)]} | bobs()),
    }
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
        assert contents(collect([tmp_path / name])) == there, name


def part(student: str) -> dict[str, str]:
    return {name.removeprefix(f"{student}/"): text for name, text in TREE.items() if name.startswith(student)}


def bobs() -> dict[str, bytes]:
    return {"bob.tar.gz": tar_bytes(part("bob"))}


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


# -- whose it is ------------------------------------------------------------------------------------------------

OWNERS = Said(Path(__file__).with_name("said") / "owners.txt")


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


def test_gradescope_says_whose_a_folder_is(tmp_path: Path) -> None:
    roster = (
        "submission_11:\n  :submitters:\n  - :name: Ann Lee\n    :sid: '1'\n  :created_at: 2026-11-01\n"
        "submission_12:\n  :submitters:\n  - :name: 'Bob'\n    :sid: '2'\n  - :name: Cy\n    :sid: '3'\n"
    )
    files = {
        "submission_metadata.yml": roster,
        "submission_11/ddp.py": DDP,
        "submission_12/ddp.py": DDP,
        "submission_13/a.py": "1",
    }
    collected = collect([folder(tmp_path / "assignment_9_export", files)])
    assert [one.student for one in collected.submissions] == ["Ann Lee", "Bob & Cy", "submission_13"]
    assert collected.refused == ()
    assert len(collected.notes) == 1


def test_brightspace_attempts_by_their_time(tmp_path: Path) -> None:
    times = ["Nov 1, 2026 1000 AM", "Nov 1, 2026 100 PM", "Oct 31, 2026 1159 PM", "Nov 1, 2026 1230 AM"]
    files = {f"1-{n} - Ann Lee - {time} - ddp.ipynb": notebook(f"# {time}\n{DDP}") for n, time in enumerate(times)}
    (ann,) = collect([folder(tmp_path / "hw", files)]).submissions
    assert "100 PM" in chosen(ann, ["ddp"]).of["ddp"][0].name
    assert [file.attempt[0][5:] for file in ann.files] == ["10-31-23-59", "11-01-00-30", "11-01-10-00", "11-01-13-00"]


def test_blackboard_keeps_a_note_beside_each_file(tmp_path: Path) -> None:
    when = "2026-11-0{}-10-00-00"
    files: dict[str, str] = {}
    for day in (1, 2):
        name = f"Homework 1_alee7_attempt_{when.format(day)}"
        files |= {f"{name}.txt": "Name: Ann Lee (alee7)", f"{name}_05_fsdp.ipynb": notebook(f"# {day}\n{FSDP}")}
    (ann,) = collect([folder(tmp_path / "hw", files)]).submissions
    assert ann.student == "alee7"
    assert "-02-10" in chosen(ann, ["fsdp"]).of["fsdp"][0].name
    assert len(ann.notes) == 1
    assert ann.notes[0].startswith("ignored, as a computer made it for itself")


# -- which file counts ------------------------------------------------------------------------------------------

CHOICES = Said(Path(__file__).with_name("said") / "choices.txt")


@pytest.mark.parametrize("expression", CHOICES.texts)
def test_which_file_counts(expression: str, tmp_path: Path) -> None:
    def counts(files: Mapping[str, str]) -> str:
        (ann,) = collect([folder(tmp_path / "hw", {f"ann/{name}": text for name, text in files.items()})]).submissions
        found = chosen(ann, ["fsdp"])
        assert found.refused == ()
        return "\n".join([found.of["fsdp"][0].parts[-1], *found.notes])

    CHOICES.check(expression, {**globals(), "counts": counts})


def test_several_puzzles_in_one_file(tmp_path: Path) -> None:
    (ann,) = collect([folder(tmp_path / "hw", {"ann/all.ipynb": notebook(FSDP, DDP)})]).submissions
    found = chosen(ann, ["ddp", "fsdp", "gpipe"])
    assert {puzzle: file.name for puzzle, (file, _) in found.of.items()} == dict.fromkeys(
        ["ddp", "fsdp"], "hw/ann/all.ipynb"
    )
    assert found.notes == ()


def test_a_file_brings_the_modules_that_it_imports(tmp_path: Path) -> None:
    files = {
        "bob/fsdp.py": "import helpers\n" + FSDP,
        "bob/helpers.py": "import more.of_it",
        "bob/more/of_it.py": "x = 1",
        "bob/other.py": "y = 1",
        "bob/bad.py": b"\0\1",
    }
    (bob,) = collect([folder(tmp_path / "hw", files)]).submissions
    found = chosen(bob, ["fsdp", "ddp"])
    file, source = found.of["fsdp"]
    assert file.name == "hw/bob/fsdp.py"
    modules = (("helpers.py", "import more.of_it"), ("more/of_it.py", "x = 1"))
    assert source == Source((("fsdp.py", files["bob/fsdp.py"]),), modules, "fsdp.py")
    assert found.notes == ("holds none of the puzzles that are graded: hw/bob/other.py",)
    assert [row.file for row in found.refused] == ["hw/bob/bad.py"]


def test_flat_names_bring_their_modules_too(tmp_path: Path) -> None:
    files = {"annlee_11_22_fsdp.py": "from helpers import x\n" + FSDP, "annlee_11_23_helpers.py": "x = 1"}
    (ann,) = collect([folder(tmp_path / "hw", files)]).submissions
    assert chosen(ann, ["fsdp"]).of["fsdp"][1].modules == (("helpers.py", "x = 1"),)


# -- what is no notebook ----------------------------------------------------------------------------------------


def test_what_cannot_be_graded_is_a_row_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    files = {
        "ann/report.pdf": "%PDF",
        "bob/report.pdf": "%PDF",
        "bob/05_fsdp.ipynb": notebook(FSDP),
        "bob/__init__.py": "",
    }
    collected = collect([folder(tmp_path / "hw", files)])
    assert [(row.student, row.file) for row in collected.refused] == [("ann", "hw/ann/report.pdf")]
    assert collected.refused[0].why == "is neither a notebook (.ipynb) nor Python (.py); hand in the notebook itself"
    ann, bob = collected.submissions
    assert (ann.files, ann.notes) == ((), ())
    assert bob.notes == ("empty: hw/bob/__init__.py", "neither a notebook (.ipynb) nor Python (.py): hw/bob/report.pdf")


def test_what_computers_make_is_not_looked_at(tmp_path: Path) -> None:
    junk = [
        ".ipynb_checkpoints/05_fsdp-checkpoint.ipynb",
        "__MACOSX/._05_fsdp.ipynb",
        "._x.ipynb",
        ".DS_Store",
        "~$a.docx",
    ]
    junk += ["Thumbs.db", ".git/objects/ab/cd", "__pycache__/a.py", "env/pyvenv.cfg", "env/lib/a.py", ".venv/b.py"]
    files = {f"ann/{name}": "x" for name in junk} | {
        "ann/05_fsdp.ipynb": notebook(FSDP),
        "__MACOSX/ann/._a": "",
        ".DS_Store": "",
    }
    for path in (folder(tmp_path / "hw", files), tmp_path / "hw.zip"):
        if path.suffix:
            path.write_bytes(zip_bytes(files))
        collected = collect([path])
        (ann,) = collected.submissions
        assert [file.parts for file in ann.files] == [("05_fsdp.ipynb",)]
        assert len(ann.notes) == len(collected.notes) == 1
        assert collected.refused == ()
        assert all(part.split("/")[0] in ann.notes[0] for part in junk)


def test_a_copy_of_this_project_is_searched_for_what_is_the_students(tmp_path: Path) -> None:
    ours = ["lib/puzzles/chapters.toml", "lib/a.py", "solutions/05_fsdp.py", "tests/test_a.py", "drawing/b.py"]
    files = {f"ann/repo/{name}": FSDP for name in ours}
    files |= {
        "ann/repo/puzzles/05_fsdp.ipynb": notebook(stub("fsdp")),
        "ann/repo/my_puzzles/05_fsdp.ipynb": notebook(FSDP),
    }
    (ann,) = collect([folder(tmp_path / "hw", files)]).submissions
    assert [file.parts[1] for file in ann.files] == ["my_puzzles", "puzzles"]
    assert chosen(ann, ["fsdp"]).of["fsdp"][0].parts[1] == "my_puzzles"


def progress(hints: int) -> str:
    entry = {
        "runs": 1,
        "passed": False,
        "goal": None,
        "time": None,
        "memory": None,
        "hints": hints,
        "predictions": 0,
        "right": 0,
    }
    return json.dumps({"format": "llm-training-puzzles progress", "version": 1, "puzzles": {"fsdp": entry}})


def test_hints_are_counted_where_they_are_recorded(tmp_path: Path) -> None:
    files = {
        "ann/progress.json": progress(2),
        "ann/fsdp.py": FSDP,
        "bob/progress.json": '{"format": 1}',
        "bob/fsdp.py": FSDP,
    }
    ann, bob = collect([folder(tmp_path / "hw", files)]).submissions
    assert ann.hints == {"fsdp": 2}
    assert bob.hints == {}
    assert "is not used: it does not say that it is" in bob.notes[0]
    assert (tmp_path / "hw/bob/progress.json").read_text() == '{"format": 1}', "read, and left alone"


def test_too_much_of_one_student_is_one_row_and_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_FILES", 20)
    files = {f"ann/{n}.ipynb": "" for n in range(21)} | {"bob/fsdp.py": FSDP}
    collected = collect([folder(tmp_path / "hw", files)])
    assert [(one.student, len(one.files)) for one in collected.submissions] == [("ann", 0), ("bob", 1)]
    (row,) = collected.refused
    assert row.why.startswith("is one of 21 notebooks and .py files of 0.0 MB together; at most 20")


def test_many_rows_of_one_student_are_cut_short(tmp_path: Path) -> None:
    root = folder(tmp_path / "hw", {"ann/fsdp.py": FSDP})
    for number in range(120):
        (root / "ann" / f"{number}.ipynb").symlink_to("fsdp.py")
    rows = collect([root]).refused
    assert len(rows) == 50
    assert rows[-1].why.startswith("and 71 more") or any("and 71 more" in row.why for row in rows)
