"""Tests of numbers, sets and names in words."""

import itertools
import unicodedata
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.errors.wording import amount, counted, exact, numbered, numbers, plural, ranges, runs, shown, these, visible

SETS = st.frozensets(st.integers(0, 60), max_size=40)


@given(SETS)
def test_runs_are_the_set_and_do_not_touch(items: frozenset[int]) -> None:
    found = runs(items)
    assert [number for first, after in found for number in range(first, after)] == sorted(items)
    assert all(after < later for (_, after), (later, _) in itertools.pairwise(found))


@given(st.frozensets(st.integers(0, 20)))
def test_a_set_in_words_says_each_of_its_numbers(items: frozenset[int]) -> None:
    said: set[int] = set()
    for part in ranges(items).split(", ") if items else []:
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == items
    assert numbers(items) == "{" + ranges(items) + "}"


def test_of_very_many_numbers_the_beginning_and_the_end_are_said() -> None:
    assert ranges(range(0, 34, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, ..., 32"
    assert ranges(range(0, 32, 2)).count(",") == 15


@pytest.mark.parametrize(
    ("items", "words"),
    [([3], "rank 3"), ([5, 3], "ranks 3 and 5"), ([3, 4, 5], "ranks 3-5"), ([0, 2, 3, 4, 9], "ranks 0, 2-4, 9")],
)
def test_numbered_things_in_words(items: list[int], words: str) -> None:
    assert these("rank", items) == words
    assert numbered("rank", items) == words.replace(" and", ",")
    assert these("batch", items) == words.replace("ranks", "batches").replace("rank", "batch")


@pytest.mark.parametrize(("key", "words"), [(1, "1"), ("w", "'w'"), ((1, "w"), "1, 'w'"), ((1,), "1,"), ((), "()")])
def test_a_key_is_shown_as_one_writes_it(key: Any, words: str) -> None:
    assert shown(key) == words
    assert eval(f"{{key: 0}}[{words}]", {"key": key}) == 0


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches"), (1024, "1024 batches")]
)
def test_a_count_and_its_noun(number: int, words: str) -> None:
    assert counted(number, "batch") == words
    assert counted(number, "batch", ",") == words.replace("1024", "1,024")
    assert counted(number, "rank") == words.replace("batches", "ranks").replace("batch", "rank")
    assert plural("other batch", number) == f"other {words.split()[1]}"
    assert counted(number, "process") == words.replace("batch", "process")


def test_figures_are_as_short_as_they_are_exact() -> None:
    assert [exact(time) for time in (8.0, 33.3, 0.1 + 0.2, 1.23456789, 0.00001)] == ["8", "33.3", "0.3", "1.2346", "0"]
    assert [amount(size) for size in (1835008.0, Fraction(1, 4), 7)] == ["1,835,008", "0.25", "7"]


@given(st.text(st.characters(codec=None)))
def test_what_somebody_wrote_can_be_written_and_seen(text: str) -> None:
    seen = visible(text, lines=False)
    assert seen.encode().decode() == seen
    assert visible(seen, lines=False) == seen
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp", "Co") for letter in seen)
    assert not set(seen) & {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\ufeff", "\u200e"}


def test_an_honest_text_stays_as_it_is() -> None:
    for text in ("José Nguyễn", "李 明", "نیم‌فاصله", "👩‍🔬", "Ångström\u00a0x", "two\nlines\tand a tab"):
        assert visible(text) == text
    assert visible("a\r\nb\x1b[0m") == "a\nb⟨U+001B⟩[0m"
    assert visible("two\nlines", lines=False) == "two lines"
