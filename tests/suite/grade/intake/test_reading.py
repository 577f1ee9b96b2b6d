"""Code from bytes: however a notebook is written; and everything that is none says what it is."""

import json
from contextlib import suppress
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.suite.grade.intake.archives import Unreadable
from lib.suite.grade.intake.submission import source_of
from tests.suite.grade.intake.trees import FSDP, notebook, zip_bytes
from tests.support.profiles import examples
from tests.support.said import Said


def text_of(name: str, data: bytes) -> str:
    return "\n".join(cell for _, cell in source_of(name, data).cells)


def cells(data: bytes) -> list[str]:
    return [cell for _, cell in source_of("a.ipynb", data).cells]


def of_format_3(*sources: object) -> str:
    inner = [{"cell_type": "code", "input": source, "outputs": [], "language": "python"} for source in sources]
    return json.dumps({"nbformat": 3, "metadata": {"cells": 1}, "worksheets": [{"metadata": {}, "cells": inner}]})


UMLAUT = "x = 'ö'\n"
SAME: dict[str, bytes] = {
    "UTF-8": notebook(UMLAUT).encode(),
    "not escaped": json.dumps(json.loads(notebook(UMLAUT)), ensure_ascii=False).encode(),
    "with a BOM": b"\xef\xbb\xbf" + notebook(UMLAUT).encode(),
    "UTF-16 with a BOM": json.dumps(json.loads(notebook(UMLAUT)), ensure_ascii=False).encode("utf-16"),
    "UTF-16 without": json.dumps(json.loads(notebook(UMLAUT)), ensure_ascii=False).encode("utf-16-be"),
    "UTF-32": json.dumps(json.loads(notebook(UMLAUT)), ensure_ascii=False).encode("utf-32"),
    "Latin-1": json.dumps(json.loads(notebook(UMLAUT)), ensure_ascii=False).encode("latin-1"),
    "lines": notebook("X").replace('"X"', json.dumps([UMLAUT])).encode(),
    "CRLF": notebook(UMLAUT.replace("\n", "\r\n")).replace(", ", ",\r\n").encode(),
    "format 3": of_format_3(UMLAUT).encode(),
    "format 3 in lines": of_format_3([UMLAUT]).encode(),
    "NaN in an output": notebook(UMLAUT).replace('"source"', '"outputs": [NaN, Infinity], "source"').encode(),
    "a key twice": notebook(UMLAUT).replace('"source"', '"source": "y = 1", "source"').encode(),
    "cells twice": notebook(UMLAUT).replace('"cells"', '"cells": [], "cells"').encode(),
    "line ends in strings": notebook(UMLAUT).replace("\\n", "\n").encode(),
}


@pytest.mark.parametrize("how", SAME)
def test_a_notebook_says_the_same_however_it_is_written(how: str) -> None:
    assert cells(SAME[how]) == [UMLAUT]


def test_python_in_several_encodings() -> None:
    text = "# ö\nx = 1\n"
    assert text_of("a.py", text.encode()) == text
    assert text_of("a.py", text.replace("\n", "\r\n").encode("utf-8-sig")) == text
    assert text_of("a.py", text.encode("latin-1")) == text
    assert text_of("a.py", text.encode("utf-16")) == text
    assert text_of("a.py", text.encode("utf-16-le")) == text


def told(name: str, data: bytes) -> str:
    """What is said of a file that is none, in one short line."""
    with pytest.raises(Unreadable) as caught:
        text_of(name, data)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
    return str(caught.value)


test_what_is_none_says_what_it_is = Said(__file__, "no_notebooks").test(
    lambda: globals() | {"FSDP": FSDP, "zip_bytes": zip_bytes}
)


def test_lone_surrogates_are_no_text_and_are_replaced() -> None:
    assert cells(b'{"cells": [{"cell_type": "code", "source": "x = 1 # \\ud800"}]}') == ["x = 1 # \ufffd"]


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30) | st.just("x\n")
values = st.recursive(
    st.none() | st.booleans() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def notebooks(draw: st.DrawFn) -> dict[str, Any]:
    """Notebooks as Jupyter writes them, with anything at all where they may have it."""
    outputs = st.lists(
        st.fixed_dictionaries({"output_type": st.just("display_data"), "data": values, "metadata": values})
    )
    cell = st.fixed_dictionaries(
        {
            "cell_type": st.sampled_from(["code", "markdown", "raw"]),
            "metadata": values,
            "source": texts | st.lists(texts),
        },
        optional={"outputs": outputs, "id": texts, "execution_count": st.none() | st.integers(), "attachments": values},
    )
    found = draw(st.lists(cell, min_size=1, max_size=3))
    found.append({"cell_type": "code", "source": "x = 1"})
    return draw(st.permutations([("cells", found), ("metadata", draw(values)), ("nbformat", 4)]).map(dict))


@examples(30, 10)
@given(notebooks(), st.sampled_from([None, 1]), st.booleans())
def test_any_notebook_gives_its_code(written: dict[str, Any], indent: int | None, escaped: bool) -> None:
    text = json.dumps(written, indent=indent, ensure_ascii=escaped).encode()
    sources = [cell["source"] for cell in written["cells"] if cell["cell_type"] == "code"]
    expected = ["".join(source) for source in sources]
    assert cells(text) == expected


@examples(40, 10)
@given(notebooks(), st.data())
def test_a_notebook_that_is_cut_or_changed_is_read_or_refused(written: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(written).encode()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    changed = text[:start] + data.draw(st.binary(max_size=5)) + text[end:]
    for name in ("a.ipynb", "a.py"):
        with suppress(Unreadable):
            source_of(name, changed)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for name in ("a.ipynb", "a.py"):
        with suppress(Unreadable):
            source_of(name, data)


def test_nbformat_reads_the_same() -> None:
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("a = 1\nb = 2"), nbformat.v4.new_markdown_cell("# x")]
    )
    assert cells(nbformat.writes(made).encode()) == ["a = 1\nb = 2"]
    assert cells(nbformat.v3.writes_json(nbformat.convert(made, 3)).encode()) == ["a = 1\nb = 2"]
