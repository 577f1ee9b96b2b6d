"""The best orders at the memory of known schedules: what is stored can be done, and nothing known is better than what
is proved."""

import itertools

import pytest

from lib.analysis.bounds.optima import BestOrder, best_orders
from lib.errors.exceptions import PuzzleError
from lib.schedules.pipelines.action import Action, parse, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.legality import illegal
from lib.schedules.pipelines.timing import Timed, time_order

STORED = [pytest.param(order, id=f"{order.schedule}-{order.ranks}x{order.batches}") for order in best_orders()]
PROVED = {"one_f_one_b": 33, "zb_h1": 27, "interleaved": 28.5, "zb_v": 25.5, "v_half": 26.5, "v_min": 29.5}
"""With 4 ranks and 8 microbatches."""


def timed(order: tuple[tuple[Action, ...], ...]) -> Timed:
    each = len(order) / len(places(order))
    return time_order(order, forward=each, input_half=each, weight_half=each)


@pytest.mark.parametrize("best", STORED)
def test_what_is_stored_can_be_done(best: BestOrder) -> None:
    row = SCHEDULES[best.schedule]
    order, known = tuple(map(parse, best.orders)), timed(row.order(best.ranks, best.batches))
    assert illegal(order, batches=best.batches) is None
    assert max(timed(order).peaks) <= best.peak
    assert places(order) == places(known.order)
    assert timed(order).end == best.end
    assert (max(known.peaks), known.end) == (best.peak, best.known)
    assert best.bound <= best.end <= best.known
    assert (best.end == best.bound) == (f"ends before {best.end:g}" in best.proof)


@pytest.mark.parametrize("best", STORED)
def test_no_known_schedule_is_better_than_what_is_proved(best: BestOrder) -> None:
    """Of all with the same stages and no more memory. One that does not split its backward has no more ways than one
    that does."""
    like = SCHEDULES[best.schedule]
    for row in SCHEDULES.values():
        if (row.chunks, row.shape) == (like.chunks, like.shape) and row.halves <= like.halves:
            known = timed(row.order(best.ranks, best.batches))
            assert known.end >= best.bound or max(known.peaks) > best.peak


def test_what_is_proved() -> None:
    found = {best.schedule: best for best in best_orders() if (best.ranks, best.batches) == (4, 8)}
    assert found.keys() == SCHEDULES.keys()
    assert {name: best.end for name, best in found.items() if name in PROVED and best.end == best.bound} == PROVED
    assert found["dualpipe_v"].end < found["dualpipe_v"].known


def test_the_solver_finds_what_trying_everything_finds() -> None:
    """All orders of two ranks and two microbatches, with halves, by the most activations of a rank."""
    pytest.importorskip("ortools", reason="needs OR-tools: pip install ortools")
    from tools.solver.orders import Orders, best_order
    from tools.solver.search import Search

    search = Search(seconds=30, workers=1)
    rows = [
        [tuple(Action(stage, kind, kinds[:n].count(kind)) for n, kind in enumerate(kinds)) for kinds in _kinds()]
        for stage in (0, 1)
    ]
    least: dict[int, float] = {}
    for order in itertools.product(*rows):
        try:
            found = timed(order)
        except PuzzleError:
            continue
        for limit in range(int(max(found.peaks)), 3):
            least[limit] = min(found.end, least.get(limit, found.end))
    for limit, end in least.items():
        order, bound = Orders({0: 0, 1: 1}, 2, halves=True, limit=limit, horizon=20).solve(search, {})
        assert timed(order).end == bound == end
    assert best_order("zb_h1", 2, 2, search).end == least[2]


def _kinds() -> list[tuple[str, ...]]:
    """All orders of two forwards, two input halves and two weight halves in which each pass has what it needs."""
    return [
        kinds
        for kinds in sorted(set(itertools.permutations("FFIIWW")))
        if all(kinds[:n].count("F") >= kinds[:n].count("I") >= kinds[:n].count("W") for n in range(7))
    ]
