"""A Trace may come from a file that anybody wrote: what loads has gaps, a path, a peak and a picture, or none loads."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawing import picture_of
from lib import TraceError, what_helps, why
from lib.analysis import figures
from lib.analysis.memory import holdings, lean, rows
from lib.analysis.waiting.critical_path import critical_path
from lib.analysis.waiting.gaps import computing, gaps
from lib.suite.course.review import review
from lib.trace import json_format as serial
from tests.support.damage import damaged
from tests.support.profiles import examples


@given(damaged())
@examples(300)
def test_any_file_that_loads_can_be_looked_at(data: Any) -> None:
    try:
        trace = serial.decode(data)  # pyright: ignore[reportPrivateUsage]
    except TraceError:
        return
    found, path, top = gaps(trace), critical_path(trace), figures.peak(trace)
    assert all(gap.length > 0 and gap.text() for gap in found)
    assert path.text() is not None
    assert len(computing(trace)) == trace.ranks
    alive = holdings(trace, top)
    assert sum(row.elements for row in rows(trace, alive)) == top.elements
    assert lean(trace) <= top.elements


@given(damaged(), st.floats(0, 1))
@examples(150)
def test_and_asked_why_and_what_if(data: Any, share: float) -> None:
    try:
        trace = serial.decode(data)  # pyright: ignore[reportPrivateUsage]
        helps = what_helps(trace)
    except TraceError:  # which a run that goes on may be, too: nobody answers it
        return
    assert helps is not None
    assert helps.text()
    assert critical_path(trace).text()
    for rank in range(trace.ranks) if figures.makespan(trace) else ():
        found = why(trace, rank, figures.end(trace) * share)
        assert found is not None
        assert picture_of(found).words == found.text()


@given(damaged())
@examples(150)
def test_and_reviewed_where_it_has_the_sizes_of_a_puzzle(data: Any) -> None:
    try:
        trace = serial.decode(data)  # pyright: ignore[reportPrivateUsage]
    except TraceError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.suite.course.review._same_size", lambda trace, record: None)
        found = review(trace, puzzle="ddp")
    assert found is not None
    assert found.text()
    assert picture_of(found).svg().endswith("</svg>\n")
