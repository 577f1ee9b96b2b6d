"""Ranges of a line: what is taken and joined is what a list of numbers says."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.layers.ranges import in_order, join, select  # noqa: E402
from lib.replay.plan.sizes import Range, merged  # noqa: E402

LINE = 12
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
widths = st.sampled_from([1, 2, 3])
elements = st.lists(st.booleans(), min_size=LINE, max_size=LINE)


def ranges(chosen: list[bool]) -> tuple[Range, ...]:
    return merged([(i, i + 1) for i, one in enumerate(chosen) if one])


def numbers(chosen: list[bool], width: int) -> list[float]:
    """The numbers on the line where it is chosen, in order."""
    return [float(i * width + j) for i, one in enumerate(chosen) if one for j in range(width)]


def tensor(chosen: list[bool], width: int) -> Any:
    return torch.tensor(numbers(chosen, width))


@quick
@given(have=elements, some=elements, width=widths)
def test_select_takes_what_is_wanted(have: list[bool], some: list[bool], width: int) -> None:
    want = [a and b for a, b in zip(have, some, strict=True)]
    if any(want):
        taken = select(tensor(have, width), ranges(have), ranges(want), width)
        assert taken.tolist() == numbers(want, width)


@quick
@given(owners=st.lists(st.sampled_from([0, 1, 2]), min_size=LINE, max_size=LINE), width=widths)
def test_join_puts_in_order(owners: list[int], width: int) -> None:
    chosen = [[owner == i for owner in owners] for i in range(3)]
    parts = [(tensor(one, width), ranges(one)) for one in chosen if any(one)]
    assert join(parts, width).tolist() == [float(i) for i in range(LINE * width)]
    together = torch.cat([part for part, _ in parts]).tolist()
    assert in_order([held for _, held in parts]) == (together == sorted(together))


def test_what_is_not_there() -> None:
    with pytest.raises(AssertionError, match=r"elements 2 to 3 are not in \[\(0, 2\)\]"):
        select(torch.zeros(2), [(0, 2)], [(1, 3)])
