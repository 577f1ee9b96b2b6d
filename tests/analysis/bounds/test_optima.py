"""The stored optima: every witness is run, and has exactly the figures that are claimed."""

import pytest

from lib import Trace, check, simulate
from lib.analysis.bounds.family import Family, excuse
from lib.analysis.bounds.limits import bound_of
from lib.analysis.bounds.optima import AIMS, Optimum, Size, stored
from lib.analysis.figures import end, peak
from lib.puzzles.records import PUZZLES
from tests.support.optima import find, front, optima, witness
from tests.support.profiles import sample

SIZES = [
    Size(stages, stages * each, batches, overlap)
    for stages in (2, 3, 4)
    for each in (1, 2)
    for batches in (1, 2, 3, 4)
    for overlap in (False, True)
]


def _family(size: Size) -> Family:
    return Family(size.stages, size.layers, size.batches, size.stages, grouping="one")


def _run(optimum: Optimum) -> Trace:
    size = optimum.size
    return Trace.of(simulate(witness(optimum), layers=size.layers, batches=size.batches, ranks=size.stages))


def _name(size: Size) -> str:
    how = "overlap" if size.overlap else "awaited"
    return f"{size.stages}-{size.layers}-{size.batches}-{how}"


@pytest.mark.parametrize("size", sample(SIZES), ids=_name)
def test_every_witness_has_its_figures_and_is_of_the_family(size: Size) -> None:
    bound = bound_of(_family(size))
    for optimum in front(size):
        trace = _run(optimum)
        verdict = check(trace)
        assert verdict.correct, verdict.faults
        assert (end(trace), peak(trace).elements) == (optimum.end, optimum.peak)
        assert excuse(trace, _family(size)) is None
        assert bound.time.value - 1e-9 <= optimum.end_bound <= optimum.end
        assert bound.memory.value <= optimum.peak_bound <= optimum.peak
        assert optimum.proof.startswith("CP-SAT of OR-tools 9.15")


@pytest.mark.parametrize("size", SIZES, ids=_name)
def test_every_size_is_solved_and_proved(size: Size) -> None:
    for aim in ("fastest", "leanest"):
        found = find(size, aim)
        assert (found.end, found.peak) == (found.end_bound, found.peak_bound)
    quick, lean = find(size, "fastest"), find(size, "leanest")
    assert (quick.end <= lean.end, lean.peak <= quick.peak) == (True, True)
    assert (quick.end == lean.end) == (quick.peak == lean.peak)
    assert lean.peak == bound_of(_family(size)).memory.value


@pytest.mark.parametrize("size", [size for size in SIZES if size.overlap], ids=_name)
def test_overlap_is_never_worse_and_its_least_end_is_the_closed_form(size: Size) -> None:
    awaited = size._replace(overlap=False)
    assert find(size, "fastest").end <= find(awaited, "fastest").end
    assert find(size, "leanest").peak <= find(awaited, "leanest").peak
    bound = bound_of(_family(size))
    assert find(size, "fastest").end == pytest.approx(bound.time.value, abs=1e-9)


def test_awaited_messages_are_awaited_at_once_and_the_others_are_not() -> None:
    for overlap in (False, True):
        trace = _run(find(Size(3, 6, 3, overlap), "fastest"))
        waits = [event for _, event in trace.events() if event.op == "wait"]
        assert bool(waits) == overlap


def test_the_puzzle_itself() -> None:
    record = PUZZLES["gpipe"]
    size = Size(record.ranks, record.layers, record.batches, overlap=True)
    assert [(o.aim, o.end, o.peak) for o in front(size)] == [
        ("fastest", 31.4, 2_490_368),
        ("between", 41.8, 2_228_224),
        ("leanest", 60.2, 1_966_080),
    ]
    assert [(o.end, o.peak) for o in front(size._replace(overlap=False))] == [(32.6, 2_490_368), (60.6, 1_966_080)]


def test_a_front_gets_slower_and_leaner() -> None:
    for size in {optimum.size for optimum in optima()}:
        points = [(o.end, o.peak) for o in front(size)]
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))
        assert [peak for _, peak in points] == sorted((peak for _, peak in points), reverse=True)


def test_there_is_one_of_each() -> None:
    keys = [(o.size, o.aim, o.peak) for o in optima()]
    assert len(keys) == len(set(keys))
    assert {o.aim for o in optima()} == set(AIMS)
    assert {o.size for o in optima()} == set(SIZES)


def test_what_the_product_has() -> None:
    """The puzzle's own size, with and without overlap."""
    record = PUZZLES["gpipe"]
    for overlap in (False, True):
        size = Size(record.ranks, record.layers, record.batches, overlap)
        assert [stored(size, aim) for aim in ("fastest", "leanest")] == [find(size, "fastest"), find(size, "leanest")]
    assert stored(Size(5, 5, 1, False), "fastest") is None
