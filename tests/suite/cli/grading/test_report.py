"""The pages of a graded class: what they hold, that nothing of a student's becomes markup, and that nobody sees what is
another's."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib import check, simulate
from lib.suite.cli.console import file_of
from lib.suite.cli.grading.report import STATE_COLOURS, remarks, without_sizes, write_report
from lib.suite.grade.gradebook import Gradebook, Refused, Result, Score, Student
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import STATES
from tests.diagnosis import corpus
from tests.suite.cli.commands import Page
from tests.support import classes
from tests.support.classes import InMemory, class_of, ways

PUZZLES = ("grad_accum", "ddp", "process_map")
HOSTILE = tuple(json.loads(Path(__file__).with_name("hostile.json").read_text("utf-8")))


@cache
def small() -> tuple[Gradebook, InMemory]:
    return class_of(12, PUZZLES)


def written(book: Gradebook, traces: InMemory, out: Path) -> dict[str, str]:
    """All files of a report by their paths. No page of any report does harm."""
    write_report(book, traces, out)
    files = {path.relative_to(out).as_posix(): path.read_text("utf-8") for path in sorted(out.rglob("*.*"))}
    for path, html in files.items():
        if path.endswith(".html"):
            assert_harmless(path, html)
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of the small class."""
    return written(*small(), tmp_path_factory.mktemp("report"))


def hostile(book: Gradebook, texts: tuple[str, ...]) -> Gradebook:
    """The same class, in which everything that a student chooses is one of some texts."""
    turn = iter(range(10**6))

    def text() -> str:
        return texts[next(turn) % len(texts)]

    def result(one: Result) -> Result:
        return replace(one, message=text() if one.message else "")

    def score(one: Score) -> Score:
        hidden = tuple(map(result, one.hidden))
        return replace(one, own=result(one.own), hidden=hidden, file=text() and one.file and text(), source=text())

    students = tuple(
        Student(f"{text()}{row}", tuple(map(score, student.scores)), (text(),))
        for row, student in enumerate(book.students)
    )
    return replace(book, students=students, refused=tuple(Refused(text(), text(), text()) for _ in range(4)))


def assert_harmless(path: str, html: str) -> None:
    page = Page(html)
    policy = next(page.values("content"))
    (script,) = page.scripts
    assert f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" in policy, path
    assert "default-src 'none'" in policy
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"iframe", "object", "embed", "base", "form", "foreignobject", "use", "animate"}, path
    assert not [name for _, found in page.elements for name in found if name.startswith("on")], path
    for address in page.values("href", "src"):
        assert re.fullmatch(r"data:,|(\.\./)?((students|feedback|pictures)/)?[\w.-]*(#[\w-]+)?", address), address
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f]", html), path


def test_the_pages_hold_what_they_are_for(files: dict[str, str]) -> None:
    book, _ = small()
    index = Page(files["index.html"])
    assert len([path for path in files if path.startswith("students/")]) == 12
    assert len([path for path in files if re.fullmatch(r"feedback/.*\.(html|txt)", path)]) == 24
    for student in book.students:
        assert student.name in index.text
    for asked in book.asked:
        assert asked.title in index.text
        assert f"p-{asked.puzzle}" in set(index.values("id"))
    assert "photo.heic" in index.text
    assert "user namespaces" in index.text
    links = [link for link in index.values("href") if link.startswith("students/")]
    assert {link.partition("#")[0] for link in links} == {path for path in files if path.startswith("students/")}
    for path, html in files.items():
        if path.endswith(".html"):
            shown = [address for address in Page(html).values("src") if "pictures/" in address]
            assert all(address.removeprefix("../") in files for address in shown), path


def test_every_section_is_named_once_at_the_top_and_every_state_has_a_sign_and_words(files: dict[str, str]) -> None:
    html = files["index.html"]
    ids = re.findall(r'<(?:section|h2)[^>]* id="(\w+)"', html)
    (nav,) = re.findall(r'<nav aria-label="Sections">(.*?)</nav>', html, re.DOTALL)
    assert re.findall(r'href="#(\w+)"', nav) == ids
    states = {score.state for student in small()[0].students for score in student.scores}
    assert states >= {"passed", "failed", "unsolved", "absent"}
    said = " ".join(Page(html).text.split())
    assert [words for words in ("✓ passed", "✗ failed", "○ unsolved", "– absent") if words not in said] == []


def test_nothing_of_a_students_becomes_markup(tmp_path: Path) -> None:
    book, traces = small()
    names = ("Anna", "Ben", "Eve", "Z")
    tame = written(hostile(book, names), traces, tmp_path / "tame")
    files = written(hostile(book, HOSTILE), traces, tmp_path / "hostile")
    page = Page(files["index.html"])
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "⟨U+202E⟩gpj.exe" in page.text
    # What comes after this depends on which messages are alike.
    tags, others = (
        [tag for tag, _ in Page(each["index.html"].partition('id="mistakes"')[0]).elements] for each in (files, tame)
    )
    assert tags == others


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(texts=st.lists(st.text(st.characters(codec=None)) | st.sampled_from(HOSTILE), min_size=1, max_size=9))
def test_whatever_they_write(tmp_path: Path, texts: list[str]) -> None:
    book, traces = small()
    few = replace(book, students=book.students[:3])
    written(hostile(few, tuple(texts)), traces, tmp_path)


def test_a_comment_for_everybody_who_made_a_mistake(files: dict[str, str]) -> None:
    book, _ = small()
    section = files["index.html"].partition('id="mistakes"')[2].partition("</section>")[0]
    page = Page(section)
    failed = {
        (student.name, score.puzzle) for student in book.students for score in student.scores if score.state == "failed"
    }
    assert failed
    linked = [link for link in page.values("href") if link.startswith("students/")]
    assert len(linked) == len(set(linked)) == len(failed)
    assert all(name in page.text for name, _ in failed)
    boxes = re.findall(r"<textarea[^>]*>(.*?)</textarea>", section, re.DOTALL)
    assert boxes
    assert all(box.strip() and "where:" not in box for box in boxes)


def test_what_is_alike_is_never_judged(tmp_path: Path) -> None:
    book, traces = small()
    one, other, *rest = book.students
    scores = tuple(
        replace(score, source="f" * 16, own=replace(score.own, schedule="e" * 16), state="missed")
        for score in one.scores
        if score.puzzle == "ddp"
    )
    same = [replace(student, scores=(*student.scores[:1], *scores, *student.scores[2:])) for student in (one, other)]
    files = written(replace(book, students=(*same, *rest)), traces, tmp_path)
    page = Page(files["index.html"].partition('id="pairs"')[2].partition("</section>")[0])
    assert one.name in page.text
    assert other.name in page.text
    assert "may well be as it should" in " ".join(page.text.split())
    for word in ("plagiar", "cheat", "copied", "suspect", "dishonest", "misconduct", "guilt"):
        assert word not in page.text.lower()
    for path, text in files.items():
        assert path == "index.html" or "Pairs to look at" not in text


def test_nobody_sees_what_is_anothers(files: dict[str, str]) -> None:
    book, _ = small()
    sent = {path: text for path, text in files.items() if path.startswith("feedback/")}
    for path, text in sent.items():
        assert sum(student.name in unescape(text) for student in book.students) == 1, path
        seen = Page(text).text if path.endswith(".html") else text
        seen = seen.replace("as good as our reference", "")
        assert "reference" not in seen
        assert "best of the class" not in seen
        assert "../" not in "".join(Page(text).values("href"))
        assert "solutions" not in seen


def test_hidden_sizes_are_told_only_where_the_teacher_wants_it(tmp_path: Path) -> None:
    book, traces = small()
    wrong = Result(
        "977 ranks, 5 layers, 3 batches",
        "failed",
        message="At 977 ranks, 5 layers, 3 batches: rank 976: no\n"
        "  expected: all 977\n  where:    a.ipynb, cell 3, line 9",
    )
    first = book.students[0]
    scores = tuple(
        replace(score, state="partly", own=replace(score.own, state="passed"), hidden=(wrong,))
        for score in first.scores
    )
    book = replace(book, students=(replace(first, scores=scores),))
    write_report(book, traces, tmp_path / "quiet")
    write_report(book, traces, tmp_path / "open", tell_sizes=True)
    quiet = {path.suffix: path.read_text("utf-8") for path in (tmp_path / "quiet" / "feedback").iterdir()}
    told = {path.suffix: path.read_text("utf-8") for path in (tmp_path / "open" / "feedback").iterdir()}
    for ending in (".html", ".txt"):
        assert re.search(r"\b97[67]\b", quiet[ending]) is None
        assert "line 9" in quiet[ending]
        assert "977 ranks" in told[ending]
    index = (tmp_path / "quiet" / "index.html").read_text("utf-8")
    assert "right at the puzzle&#39;s own size, and not at all others" in index


def test_who_handed_in_a_damaged_file_is_told(tmp_path: Path) -> None:
    score = Score("ddp", "absent", Result("", "absent"))
    students = Student("Ana", (score,)), Student("", (score,))
    refused = Refused("class/Ana_1/03_ddp.ipynb", "is cut off", "Ana"), Refused("photo.heic", "is not a notebook")
    files = written(Gradebook((classes.asked("ddp"),), students, refused, title="Week <2>"), InMemory({}), tmp_path)
    sent = {path: text for path, text in files.items() if path.startswith("feedback/")}
    ana = {Path(path).suffix: text for path, text in sent.items() if "/ana-" in path}
    assert len(ana) == 2
    for text in ana.values():
        assert "Could not be graded: 03_ddp.ipynb: is cut off" in text
        assert "Ana_1" not in text
    for path, text in sent.items():
        assert "heic" not in text
        assert ("cut off" in text) == ("/ana-" in path)
    assert "Week &lt;2&gt;" in files["index.html"]
    assert "Week &lt;2&gt;" in ana[".html"]


def test_what_is_the_same_at_two_hidden_sizes_is_said_once(tmp_path: Path) -> None:
    book, traces = small()
    student = next(one for one in book.students if any(score.state == "passed" for score in one.scores))
    at = tuple(f"{ranks} ranks, 5 layers, 3 batches" for ranks in (977, 983))
    wrong = tuple(Result(size, "failed", message=f"At {size}: rank 1: no\n  where:    a.ipynb, line 9") for size in at)
    scores = tuple(replace(score, hidden=wrong) if score.state == "passed" else score for score in student.scores)
    written(replace(book, students=(replace(student, scores=scores),)), traces, tmp_path)
    text = next((tmp_path / "feedback").glob("*.txt")).read_text("utf-8")
    assert "At 2 other sizes, which are not told:" in text
    assert "At another size" not in text


def test_the_same_bytes_every_time_and_after_a_break(files: dict[str, str], tmp_path: Path) -> None:
    book, traces = small()
    seen: list[tuple[int, int]] = []

    def stop(so_far: int, everything: int) -> None:
        seen.append((so_far, everything))
        if so_far == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(book, traces, tmp_path / "broken", done=stop)
    assert not (tmp_path / "broken" / "index.html").exists()
    drawn = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "broken" / "pictures").iterdir()}
    assert len(drawn) == 9
    assert written(book, traces, tmp_path / "broken") == files
    again = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "broken" / "pictures").iterdir()}
    assert again.items() >= drawn.items()


@pytest.mark.thorough
def test_several_processes_draw_the_same(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, traces = small()
    monkeypatch.setattr("lib.suite.cli.grading.schedules.FEW", 5)
    write_report(book, traces, tmp_path / "two", jobs=2)
    assert written(book, traces, tmp_path / "two") == files


def test_who_is_not_in_the_class_any_more_goes_and_other_files_stay(tmp_path: Path) -> None:
    book, traces = small()
    write_report(book, traces, tmp_path)
    mine = [tmp_path / "students" / "notes.html", tmp_path / "pictures" / "board.svg", tmp_path / "feedback" / "me.txt"]
    for path in mine:
        path.write_text("mine")
    few = replace(book, students=book.students[:2])
    write_report(few, traces, tmp_path)
    assert all(path.read_text() == "mine" for path in mine)
    for path in mine:
        path.unlink()
    left = {path.relative_to(tmp_path).as_posix(): path.read_text("utf-8") for path in tmp_path.rglob("*.*")}
    assert left == written(few, traces, tmp_path / "new")


def test_a_schedule_that_is_gone_costs_one_picture(tmp_path: Path) -> None:
    book, _ = small()
    files = written(book, InMemory({}), tmp_path)
    assert any("cannot be read" in text for path, text in files.items() if path.endswith(".svg"))


def test_an_empty_class_has_a_page(tmp_path: Path) -> None:
    assert "0 students, 0 puzzles" in written(Gradebook((), ()), InMemory({}), tmp_path)["index.html"]


def test_every_state_has_a_word_a_sign_a_meaning_and_a_colour() -> None:
    assert all(word == state.word and word.isalpha() for word, state in STATES.items())
    assert (
        len({state.sign for state in STATES.values()}) == len({state.about for state in STATES.values()}) == len(STATES)
    )
    style = file_of("report.css")
    assert set(STATE_COLOURS) == set(STATES)
    assert all(f".s-{word}" in style and f".b-{word}" in style for word in STATES)


def test_of_a_correct_schedule_only_the_notes_are_said() -> None:
    verdict = check(simulate(load_function(reference("ddp"), "ddp"), puzzle="ddp"), "ddp")
    assert remarks(verdict.text()) == ""
    (missed,) = {way.own.message for way in ways("grad_accum") if way.own.state == "missed"}
    assert remarks(missed).startswith("Note: ")
    assert "Correct" not in remarks(missed)
    assert "[###" not in remarks(missed)


def test_a_message_without_sizes_says_what_and_where_and_how() -> None:
    (case,) = (case for case in corpus.cases() if case.name.startswith("035"))
    assert without_sizes(case.message) == (
        "rank …: the gradient of layer … does not have all batches yet\n"
        "  where:    notebook cell, line 17, in ddp: weights[layer], opt_states[layer] = "
        "model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])\n"
        "  fix:      this rank has only seen batch …:\n"
        "            the gradients of all ranks have to be summed before anyone updates\n"
        "            (to see the line: fix(), or in a shell: puzzles fix FILE)"
    )


@given(st.text(), st.integers(1000, 9999))
def test_no_number_of_a_size_is_left(text: str, ranks: int) -> None:
    message = f"{text} {ranks} ranks\n  expected: {ranks}\n            {ranks} more\n  fix:      {ranks} of them"
    assert str(ranks) not in without_sizes(message)
