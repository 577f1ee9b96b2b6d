"""The glossary: each word is taught by a puzzle that there is, and stands in its notebook."""

import re

import pytest

from lib.puzzles.records import PUZZLES, glossary
from lib.suite.notebooks.shared_cells import glossary_page
from lib.suite.submissions.locations import home, reference


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
