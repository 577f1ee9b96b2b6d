"""When a rank fails, the others are run up to that moment; the failure is the earliest, however ranks are stepped."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from lib import Model, PuzzleError, Trace, simulate
from lib.cluster.costs import TICKS
from lib.errors.exceptions import BudgetError, MismatchError, RankFailed
from lib.values.operations import COMMUNICATION, TIMED
from tests.support.profiles import sample
from tests.support.schedules import CLASSIC, OTHERS, Case
from tests.support.version_1 import encode


def failed(function: Callable[[Model], Any], **sizes: Any) -> tuple[PuzzleError, Trace]:
    with pytest.raises(PuzzleError) as caught:
        simulate(function, **sizes)
    assert isinstance(caught.value.trace, Trace)
    return caught.value, caught.value.trace


def failing(times: dict[int, int], total: int = 9) -> Callable[[Model], Any]:
    """Ranks that raise when they have computed so long."""

    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        for time in range(total):
            if times.get(model.rank) == time:
                raise RuntimeError(f"at {time}")
            model.forward(0, inp, weight)

    return function


def ends(trace: Trace) -> list[int]:
    return [max((event.end or 0 for event in program.events), default=0) // TICKS for program in trace.programs]


def failing_in_tasks(times: dict[int, int]) -> Callable[[Model], Any]:
    plain = failing(times)

    async def function(model: Model) -> None:
        await asyncio.gather(plain(model))

    return function


@pytest.mark.parametrize("make", [failing, failing_in_tasks])
@pytest.mark.parametrize(
    ("times", "rank", "reached"),
    [
        ({2: 4}, 2, [5, 5, 4, 5]),  # what begins at that moment has begun
        ({0: 6, 3: 2}, 3, [3, 3, 3, 2]),
        ({3: 6, 1: 2}, 1, [3, 2, 3, 3]),
        ({1: 1, 2: 1}, 1, [2, 1, 1, 2]),
        ({3: 4, 1: 4}, 1, [5, 4, 5, 4]),
        ({0: 0, 1: 0}, 0, [0, 0, 1, 1]),
    ],
)
def test_the_earliest_failure_of_the_lowest_rank_ends_all_at_that_moment(
    make: Any, times: dict[int, int], rank: int, reached: list[int]
) -> None:
    for order in (sorted, lambda names: names[::-1]):
        error, trace = failed(make(times), ranks=4, layers=1, batches=4, order=order)
        assert isinstance(error, RankFailed)
        assert error.rank == rank
        assert f"at {times[rank]}" in str(error)
        assert ends(trace) == reached


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("case", sample(c for c in CLASSIC + OTHERS if c.ranks > 1), ids=lambda case: case.name)
def test_a_failure_and_its_trace_do_not_depend_on_the_order_of_the_ranks(case: Case, seed: int) -> None:
    """Some ranks of a real schedule cannot record more than so many events, and end with an error there."""
    random = Random(seed)
    most = {rank: random.randrange(24) for rank in range(case.ranks) if random.random() < 0.5}

    def broken(model: Model) -> Any:
        if model.rank in most:
            model.program.budget = model.program.free = most[model.rank]
        return _as_error(case.function, model)

    def outcome(order: Callable[[list[int]], list[int]]) -> tuple[str, Any] | None:
        try:
            case._replace(function=broken).run(simulate, order=order)
        except PuzzleError as error:
            return str(error), encode(error.trace)
        return None

    first = outcome(sorted)
    assert outcome(lambda names: names[::-1]) == first
    assert outcome(lambda names: random.sample(names, len(names))) == first


def test_members_that_disagree_fail_when_the_last_of_them_comes() -> None:
    async def apart(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        for _ in range(3 if model.rank == 0 else 1):
            model.forward(0, inp, weight)
        if model.rank < 2:
            await model.allreduce(model.fake_grad(model.rank), model.rank, group=[0, 1])
        for _ in range(9):
            model.forward(0, inp, weight)

    for order in (sorted, lambda names: names[::-1]):
        error, trace = failed(apart, ranks=3, layers=2, batches=3, order=order)
        assert isinstance(error, MismatchError)
        assert ends(trace) == [3, 1, 4]
        waiting = [p.rank for p in trace.programs if p.events[-1].op == "allreduce" and p.events[-1].start is None]
        assert waiting == [0, 1]


def test_what_has_not_begun_by_then_is_pending() -> None:
    async def function(model: Model) -> None:
        grad = model.fake_grad(0)
        if model.rank == 2:
            weight, inp = model.load_weights(0)[0], model.get_activation([0])
            model.forward(0, inp, weight)
            raise RuntimeError("at 1")
        works = [model.allreduce(grad, 0, group=[0, 1]) for _ in range(9)]  # 0.3 each, one after the other
        for work in works:
            await work

    _, trace = failed(function, ranks=3, layers=1, batches=1)
    events = [event for event in trace.programs[0].events if event.op in COMMUNICATION]
    assert [event.start for event in events] == [0, 300_000_000, 600_000_000, 900_000_000, *[None] * 5]
    assert all(event.outputs == () and event.length == 0 for event in events[4:])
    assert trace.programs[0].events[-1].op == "wait"
    assert trace.programs[0].events[-1].issued <= TICKS
    assert Trace.parse(trace.text()).ranks == 3


def test_what_is_over_by_then_and_not_waited_for_has_brought_nothing() -> None:
    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([0])
        model.forward(0, inp, weight)
        if model.rank == 2:
            raise RuntimeError("at 1")
        work = model.allreduce(model.fake_grad(0), 0, group=[0, 1])  # which takes 0.3
        model.forward(0, inp, weight)
        await work

    _, trace = failed(function, ranks=3, layers=1, batches=1)
    (event,) = [event for event in trace.programs[0].events if event.op in COMMUNICATION]
    assert (event.start, event.length, event.outputs) == (TICKS, 300_000_000, ())
    assert Trace.parse(trace.text()).ranks == 3


@pytest.mark.parametrize("case", sample(CLASSIC + OTHERS), ids=lambda case: case.name)
def test_what_lies_before_the_failure_is_what_would_have_happened(case: Case) -> None:
    """The run up to a moment is the beginning of the run that goes well."""
    whole = Trace.of(case.run(simulate))
    last = case.ranks - 1
    program = whole.programs[last]
    timed = [i for i, event in enumerate(program.events) if event.op in TIMED and event.op not in COMMUNICATION]
    stop = timed[len(timed) // 2]
    until = program.events[stop].issued

    def broken(model: Model) -> Any:
        if model.rank == last:
            model.program.budget = model.program.free = stop
        return _as_error(case.function, model)

    with pytest.raises(PuzzleError) as caught:
        case._replace(function=broken).run(simulate)
    assert caught.value.rank == last
    assert caught.value.trace is not None
    for one, other in zip(caught.value.trace.programs, whole.programs, strict=True):
        if one.rank != last:
            begun = [event for event in other.events if event.issued <= until]
            got = [event.op for event in one.events]
            assert got == [event.op for event in begun][: len(got)]
            assert all(event.issued <= until for event in one.events)
            assert all(event.start is None or event.start <= until for event in one.events)


async def _as_error(function: Callable[[Model], Any], model: Model) -> Any:
    """A budget that is used up as an ordinary error, after which others go on."""
    try:
        result = function(model)
        return await result if isinstance(result, Awaitable) else result
    except BudgetError:
        raise RuntimeError("enough") from None


def test_a_loop_without_end_on_another_rank_ends_there() -> None:
    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        if model.rank == 0:
            model.forward(0, inp, weight)
            raise RuntimeError("no")
        while True:
            try:
                model.forward(0, inp, weight)
            except Exception:
                await asyncio.sleep(0)

    _, trace = failed(function, ranks=3, layers=1, batches=3)
    assert [len(program.events) for program in trace.programs] == [3, 4, 4]


def test_what_ranks_print_ends_there_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def function(model: Model) -> None:
        weight, inp = model.load_weights(0)[0], model.get_activation([model.rank])
        for time in range(9):
            print(f"rank {model.rank} at {time}")
            if model.rank == 1 and time == 2:
                raise RuntimeError("no")
            model.forward(0, inp, weight)

    lines = [f"rank {rank} at {time}" for time in range(3) for rank in range(3)]
    for order in (sorted, lambda names: names[::-1]):
        failed(function, ranks=3, layers=1, batches=3, order=order)
        assert capsys.readouterr().out.splitlines() == lines
