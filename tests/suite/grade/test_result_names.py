"""Names of files for students of any name."""

import re

from hypothesis import given
from hypothesis import strategies as st

from lib.suite.grade.results import file_names, is_ours

names = st.lists(st.text(st.characters(codec=None), max_size=80), max_size=12)


@given(names)
def test_they_are_safe_on_every_system_and_differ(students: list[str]) -> None:
    found = file_names(students)
    assert len(set(found)) == len(students)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{8,120}", name) for name in found)
    assert all(map(is_ours, found))


@given(names.filter(lambda many: len(set(many)) == len(many)), st.data())
def test_a_name_follows_from_the_student_alone(students: list[str], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(students), unique=True)) if students else []
    whole = dict(zip(students, file_names(students), strict=True))
    assert file_names(some) == [whole[name] for name in some]


def test_what_they_look_like() -> None:
    assert re.fullmatch("anna-schmidt-[0-9a-f]{8}", file_names(["Anna Schmidt"])[0])
    assert re.fullmatch("jose-nguyen-[0-9a-f]{8}", file_names(["José Nguyễn"])[0])
    assert re.fullmatch("jurgen-mussig-[0-9a-f]{8}", file_names(["Jürgen Müßig"])[0])
    for odd in ("", "../..", "CON", "李明", "a" * 300, "nul.txt", "\ud800", "\u202e", ".hidden", "-rf"):
        (name,) = file_names([odd])
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}-[0-9a-f]{8}", name), odd
    assert len(set(file_names(["Anna", "anna", "ANNA", "Anna ", "Anna"]))) == 5


def test_digests_that_begin_alike_are_longer() -> None:
    # Found by search: their SHA-256 digests have the same first eight digits.
    first, second = "student 105881", "student 126831"
    alone = [name for student in (first, second) for name in file_names([student])]
    assert alone[0][-8:] == alone[1][-8:]
    assert [len(name) for name in file_names([first, second])] == [len("student-105881-") + 64] * 2
