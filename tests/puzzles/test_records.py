"""The records: chapters in order, numbers that follow from it, and nothing in a record that is of no use; the
glossary: each word is taught by a puzzle that there is, and stands in its notebook."""

import re
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from lib import PUZZLES, UNIT, simulate
from lib.analysis.bounds.family import Family
from lib.analysis.bounds.limits import has_bound, lower_bound
from lib.checker.verdict import check
from lib.cluster.mesh import Mesh
from lib.puzzles import records
from lib.puzzles.puzzle import Puzzle, Row
from lib.puzzles.records import Chapter, by_chapter, chapters, puzzle_of_file, schedule_record
from lib.suite.submissions.locations import home, reference
from tests.support.said import Said
from tools.notebooks.shared_cells import glossary, glossary_page

SCHEDULE = {
    "title": "A title",
    "needs": ["other"],
    "teaches": "something",
    "minutes": 40,
    "discuss": "\nWhy?\n\n*Listen for:* so.\n",
    "hints": ["\nWhat?\n", "So.", "Code."],
    "ranks": 2,
    "layers": 3,
    "batches": 4,
    "goals": [{"name": "passes", "time": 1.0, "memory": 2}],
    "hidden": [{"ranks": 1, "layers": 2, "batches": 3}],
}
FUNCTION = {
    "kind": "function",
    "title": "A function",
    "needs": [],
    "teaches": "something",
    "minutes": 40,
    "discuss": "\nWhy?\n\n*Listen for:* so.\n",
    "hints": ["What?", "So.", "Code."],
    "table": "\n[2, 1], {0: 'a'} -> 9\n  3 -> None\n",
    "draws": 5,
}


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """The files of two chapters, to be changed before they are read."""
    files: dict[str, dict[str, Any]] = {
        "chapters": {
            "first": {"title": "First", "about": "\nWhat comes first.\n"},
            "empty": {"title": "Empty", "about": "What nobody has written yet."},
            "second": {"title": "Second", "about": "What comes then."},
        },
        "first": {"one": dict(SCHEDULE), "two": dict(FUNCTION)},
        "empty": {},
        "second": {"three": dict(SCHEDULE)},
    }
    monkeypatch.setattr(records, "table", lambda _, name: files[name])
    monkeypatch.setattr(records, "_records", records._records.__wrapped__)  # pyright: ignore
    return files


def test_every_record_has_a_chapter_and_a_number_in_order() -> None:
    assert {record.chapter for record in PUZZLES.values()} <= set(chapters())
    order = list(chapters())
    assert [order.index(record.chapter) for record in PUZZLES.values()] == sorted(
        order.index(record.chapter) for record in PUZZLES.values()
    )
    assert [record.number for record in PUZZLES.values()] == list(range(1, len(PUZZLES) + 1))


def test_numbers_go_on_from_chapter_to_chapter(book: dict[str, dict[str, Any]]) -> None:
    places = {name: int(record.label.partition(".")[0]) for name, record in PUZZLES.items()}
    first, second = places["one"], places["three"]
    assert [(r.id, r.number, r.path, r.heading) for r in PUZZLES.values()] == [
        ("one", 1, "first/01_one", f"{first}.1 A title"),
        ("two", 2, "first/02_two", f"{first}.2 A function"),
        ("three", 3, "second/01_three", f"{second}.1 A title"),
    ]
    book["first"] = {"zero": dict(FUNCTION), **book["first"]}
    assert PUZZLES["one"].stem == "02_one"
    assert PUZZLES["three"].stem == "01_three"
    assert PUZZLES["one"].needs == ("other",)
    assert PUZZLES["one"].hints == ("What?", "So.", "Code.")


def test_a_chapter_without_records_is_not_shown(book: dict[str, dict[str, Any]]) -> None:
    assert chapters()["first"] == Chapter("First", "What comes first.")
    found = [(chapter.title, [record.id for record in puzzles]) for chapter, puzzles in by_chapter()]
    assert found == [("First", ["one", "two"]), ("Second", ["three"])]


def test_every_chapter_says_what_it_is_about() -> None:
    for chapter in chapters().values():
        assert len(chapter.about.split()) > 10
        assert chapter.about.endswith(".")


def test_a_table_is_python_on_each_line(book: dict[str, dict[str, Any]]) -> None:
    assert PUZZLES["two"].table == (Row(([2, 1], {0: "a"}), 9), Row((3,), None))
    assert PUZZLES["two"].is_function
    assert PUZZLES["two"].size == (0, 0, 0)


def test_a_row_may_ask_for_an_error(book: dict[str, dict[str, Any]]) -> None:
    book["first"]["two"]["table"] = (
        "0 -> raises ValueError: there is none: not one\n1 -> raises KeyError\n2 -> 'raises '"
    )
    none = Row((0,), raises="ValueError", why="there is none: not one")
    assert PUZZLES["two"].table == (none, Row((1,), raises="KeyError"), Row((2,), "raises "))


SAID = Said(__file__, "records")


@pytest.mark.parametrize("expression", SAID.texts)
def test_what_there_cannot_be(book: dict[str, dict[str, Any]], expression: str) -> None:
    """Something is changed in a record; None takes a field away."""

    def changed(place: str, **fields: Any) -> str:
        file, name = place.split()
        record = book[file].get(name, {}) | fields
        book[file][name] = {field: value for field, value in record.items() if value is not None}
        with pytest.raises(ValueError, match=r"\w(: | has )") as raised:
            list(PUZZLES)
        return re.sub(r"\((malformed|invalid).*\):", "(...):", str(raised.value))  # what Python says of it may change

    SAID.check(expression, {"changed": changed, "SCHEDULE": SCHEDULE})


def test_a_mesh_may_be_its_axes_or_all_that_there_is_to_say(book: dict[str, dict[str, Any]]) -> None:
    order = {"ranks": [1, 0], "host_size": 2, "processes": 2}
    book["first"]["one"]["mesh"] = {"a": 2}
    book["second"]["three"]["mesh"] = {"axes": {"a": 2}} | order
    book["first"]["one"]["hidden"] = [
        {"ranks": 2, "layers": 1, "batches": 1, "time": 6.0},
        {"ranks": 4, "layers": 1, "batches": 1, "costs": {"model": "unit"}},
        {"layers": 1, "batches": 1, "mesh": {"axes": {"a": 3}, "host_size": 1}},
    ]
    mesh = Mesh({"a": 2})
    assert PUZZLES["one"].mesh == mesh
    assert PUZZLES["three"].mesh == Mesh({"a": 2}, ranks=[1, 0], host_size=2, processes=2)
    sizes = (2, 1, 1, mesh, None, 6.0), (4, 1, 1, None, UNIT, inf), (3, 1, 1, Mesh({"a": 3}, host_size=1), None, inf)
    assert PUZZLES["one"].hidden == sizes


@pytest.mark.parametrize("stem", ["03_ddp", "99_ddp", "1_ddp"])
def test_a_file_is_known_by_its_name_whatever_its_number(stem: str) -> None:
    assert puzzle_of_file(stem) is PUZZLES["ddp"]


@pytest.mark.parametrize("stem", ["ddp", "03_ddp-Copy1", "x_ddp", "03", "_ddp", "00_index", ""])
def test_a_file_of_another_name_is_no_puzzles(stem: str) -> None:
    assert puzzle_of_file(stem) is None


def test_a_function_is_no_schedule(book: dict[str, dict[str, Any]]) -> None:
    assert schedule_record("one").ranks == 2
    for call in (
        lambda: schedule_record("two"),
        lambda: simulate(lambda model: None, puzzle="two"),
        lambda: check(simulate(lambda model: None), "two"),
    ):
        with pytest.raises(ValueError, match=r'plain function, .* check_function\(two, puzzle="two"\) checks it'):
            call()
    assert not has_bound("two")


def test_a_bound_reads_its_record_whatever_the_axes_of_its_mesh_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of a family used to be looked for under the axis "stage" of every mesh."""
    old: Puzzle = PUZZLES["pipeline_fsdp"]
    other = replace(old, id="other", mesh=Mesh({"copies": 4, "pipe": 4}))
    monkeypatch.setattr(records, "_records", lambda: {"other": other, "none": replace(other, bound=None)})
    lower_bound.cache_clear()
    try:
        family = lower_bound("other").family
        assert isinstance(family, Family)
        assert (family.stages, family.sharded) == (4, True)
        assert lower_bound("other").premise.startswith("Every rank takes its own batch")
        with pytest.raises(ValueError, match="no lower bound is known for 'none'; there are those of other"):
            lower_bound("none")
    finally:
        lower_bound.cache_clear()


FAMILIES = [bound.family for name in PUZZLES if has_bound(name) and (bound := lower_bound(name))]


@pytest.mark.parametrize("family", [family for family in FAMILIES if isinstance(family, Family)])
def test_stages_divide_what_they_share(family: Family) -> None:
    assert family.layers % family.stages == 0
    assert family.ranks % family.stages == 0
    assert family.batches % family.replicas == 0


@pytest.mark.parametrize("word", glossary())
def test_a_word_stands_in_the_notebook_that_teaches_it(word: str) -> None:
    text = reference(PUZZLES[glossary()[word].puzzle].notebook).read_text("utf-8")
    said = " ".join(re.sub(r"^#", " ", text, flags=re.MULTILINE).split())
    assert re.search(rf"(?<![a-z]){re.escape(word)}", said, re.IGNORECASE)


def test_each_of_our_words_is_another() -> None:
    assert not [word for word, term in glossary().items() if term.ours.strip("`").lower() == word.lower()]


def test_the_page_has_the_words_of_the_records() -> None:
    page = (home() / "docs" / "glossary.md").read_text("utf-8")
    assert glossary_page(page) == page
