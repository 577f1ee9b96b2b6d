"""References: every work once in docs/references.toml, cited by key, numbered in the order of first use."""

import re
from pathlib import Path

import pytest

from lib.suite.notebooks.shared_cells import FILE, cited, with_references, works
from lib.suite.submissions.gap import BuildError

ROOT = Path(__file__).parents[3]
SOURCES = [path for path in sorted((ROOT / "solutions").rglob("*.py")) if path.parent.name != "parts"]
TWO = """
[lee2020]
authors = "Lee et al."
title = "On rings"
year = 2020
at = "arXiv 1"
url = "https://arxiv.org/abs/1"
checked = "title"
[page]
authors = "PyTorch"
title = "A page"
at = "docs"
url = "https://docs.pytorch.org"
"""
SOURCE = """# One says so [@page]. Another does [@lee2020, table 2], and again [@page].
# <!-- references -->
"""


@pytest.fixture(name="root")
def project(tmp_path: Path) -> Path:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(TWO, "utf-8")
    return tmp_path


def test_citations_are_numbered_by_first_use_and_listed(root: Path) -> None:
    assert with_references(SOURCE, "one.py", root) == (
        "# One says so [1]. Another does [2, table 2], and again [1].\n"
        "# [1] PyTorch, *A page*, [docs](https://docs.pytorch.org) (not opened)  \n"
        "# [2] Lee et al., *On rings*, 2020, [arXiv 1](https://arxiv.org/abs/1)\n"
    )


def test_a_source_without_citations_stays_as_it_is(root: Path) -> None:
    assert with_references("# See [1].\n", "one.py", root) == "# See [1].\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SOURCE.replace("page", "pages"), "one.py cites pages, which docs/references.toml does not have"),
        ("# So [@page].\n", "one.py: a source with citations"),
        ("# <!-- references -->\n", "one.py: a source with citations"),
    ],
)
def test_what_cannot_be_listed_is_refused(root: Path, source: str, message: str) -> None:
    with pytest.raises(BuildError, match=re.escape(message)):
        with_references(source, "one.py", root)


def test_a_work_has_all_fields(root: Path) -> None:
    (root / FILE).write_text('[page]\nauthors = "PyTorch"\n', "utf-8")
    with pytest.raises(BuildError, match="title"):
        works(root)


def test_every_work_is_cited_and_none_is_there_twice() -> None:
    used = {key for path in SOURCES for key in cited(path.read_text("utf-8"))}
    assert used == set(works(ROOT))
    assert len({work.url for work in works(ROOT).values()}) == len(works(ROOT))


def test_every_work_says_whose_it_is_what_it_is_and_of_when() -> None:
    """What has no year is a page that changes: a documentation, or a README."""
    for key, work in works(ROOT).items():
        assert all([work.authors, work.title, work.at]), key
        assert work.url.startswith("https://"), key
        assert work.checked in ("", "title", "claim"), key
        assert work.year or re.search("documentation|README", work.at), key


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_writes_no_entry_by_hand(path: Path) -> None:
    assert re.findall(r"^# \[\d+\] .*", path.read_text("utf-8"), re.MULTILINE) == []
