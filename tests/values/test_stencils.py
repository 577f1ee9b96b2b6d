"""Which rows of a grid a row of the output needs: in closed form as by a loop over all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.values.dims import RunSet
from lib.values.kinds.grid import Stencil, Sweep, TransposedSweep, Window

MANY = 10**6


@st.composite
def sweeps(draw: st.DrawFn) -> Stencil:
    kernel, stride, dilation = (draw(st.integers(1, most)) for most in (5, 3, 3))
    padding = draw(st.integers(0, dilation * (kernel - 1)))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
    return Sweep(draw(st.integers(least, 20)), kernel, stride, dilation, padding)


@st.composite
def transposed(draw: st.DrawFn) -> Stencil:
    kernel = draw(st.integers(1, 5))
    stride, padding = draw(st.integers(1, kernel)), draw(st.integers(0, kernel - 1))
    least = 1 + max(0, -(-(2 * padding + 1 - kernel) // stride))
    return TransposedSweep(draw(st.integers(least, 12)), kernel, stride, padding)


@st.composite
def windows(draw: st.DrawFn) -> Stencil:
    kernel = draw(st.sampled_from([1, 3, 5, 7]))
    return Window(draw(st.integers(kernel, 20)), kernel)


@given(st.one_of(sweeps(), transposed(), windows()), st.data())
def test_rows_that_are_given_and_rows_that_are_used_are_those_of_a_loop(stencil: Stencil, data: st.DataObject) -> None:
    every = range(stencil.rows)
    rows = data.draw(st.sets(st.sampled_from(every)))
    needs = [{row for row in stencil.needs(q) if row in every} for q in range(stencil.outputs)]
    assert set(stencil.given(frozenset(rows))) == {q for q, needed in enumerate(needs) if needed <= rows}
    users = {q for q, needed in enumerate(needs) if needed & rows}
    assert set(stencil(frozenset(rows))) == users


@given(sweeps())
def test_no_row_more_would_fit(stencil: Stencil) -> None:
    """The stencil of the row after the last one of the output would stick out behind the padding."""
    assert isinstance(stencil, Sweep)
    assert stencil.needs(stencil.outputs)[-1] >= stencil.rows + stencil.padding


@pytest.mark.parametrize("stencil", [Sweep(MANY, 3, 2, 1, 1), TransposedSweep(MANY, 4, 2, 1), Window(MANY, 7)])
def test_a_million_rows_cost_what_sixteen_do(stencil: Stencil) -> None:
    assert len(stencil.given(RunSet.span(0, MANY // 2)).runs) == 1
    assert len(stencil(RunSet.span(10, MANY // 2)).runs) == 1
