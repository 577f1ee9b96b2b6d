"""simulate: the same function gives the same Trace, however its ranks are stepped."""

import asyncio
import gc
import sys
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    PUZZLES,
    UNIT,
    BudgetError,
    DeadlockError,
    Links,
    MismatchError,
    Model,
    NotSolved,
    PuzzleError,
    RankFailed,
    Trace,
    Unsolved,
    check,
    retime,
    simulate,
)
from lib.analysis import figures
from lib.trace import json_format as serial
from lib.trace.rebuild import rebuild
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, READS
from tests.support.drivers import DRIVERS, encoded, in_asyncio, python, without_places
from tests.support.profiles import examples, sample
from tests.support.puzzles import SCHEDULES
from tests.support.random_programs import RUNS, Schedule, run, schedules, traced
from tests.support.schedules import EVERYTHING, Case

randoms = st.randoms(use_true_random=False)


def shuffled(random: Random) -> Any:
    def order(names: list[int]) -> Sequence[int]:
        random.shuffle(names)
        return names

    return order


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
@examples(10)
@given(randoms)
def test_neither_the_order_of_ranks_nor_asyncio_changes_anything(case: Case, random: Random) -> None:
    wanted = encoded(case.run(simulate))
    assert encoded(case.run(simulate, order=shuffled(random))) == wanted
    assert encoded(case.run(in_asyncio)) == wanted


@given(schedules(), randoms)
def test_neither_order_nor_asyncio_changes_anything_in_random_schedules(schedule: Schedule, random: Random) -> None:
    wanted = encoded(run(schedule))
    assert encoded(run(schedule, order=shuffled(random))) == wanted
    assert encoded(run(schedule, in_asyncio)) == wanted


def test_the_hash_seed_changes_nothing() -> None:
    code = (
        "import hashlib, json\n"
        "from lib import simulate\n"
        "from tests.support.drivers import encoded\n"
        "from tests.support.schedules import EVERYTHING\n"
        "for case in EVERYTHING:\n"
        "    data = encoded(case.run(simulate))\n"
        "    print(case.name, hashlib.sha256(json.dumps(data).encode()).hexdigest())\n"
    )
    first, other = [python(code, PYTHONHASHSEED=seed) for seed in ("0", "31337")]
    assert len(first.splitlines()) == len(EVERYTHING)
    assert other == first


def check_times(trace: Trace) -> None:
    """No clock runs back, nothing starts before it was issued, and a stream does one thing at a time."""
    streams: dict[Any, list[tuple[int, int]]] = {}
    for program in trace.programs:
        clock = 0
        for event in program.events:
            assert event.issued >= clock
            clock = event.issued
            if event.start is None:
                continue
            assert event.start >= event.issued
            assert event.length >= 0
            clock = event.issued
            if event.op not in COMMUNICATION:
                assert event.start == event.issued
            if event.blocking or event.op not in COMMUNICATION:
                clock = event.start + event.length
            if event.op in READS:  # the next examples are read while these are copied
                continue
            if event.op in COLLECTIVES:
                stream = (event.group, program.rank)
            else:
                stream = (event.op, program.rank, event.peer) if event.op in COMMUNICATION else ("own", program.rank)
            streams.setdefault(stream, []).append((event.start, event.start + event.length))
        assert getattr(program, "clock", clock) >= clock  # a loaded program has none
    for spans in streams.values():
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@given(schedules())
def test_members_of_a_collective_start_and_end_together(schedule: Schedule) -> None:
    trace = Trace.of(run(schedule))
    met: dict[Any, list[Any]] = {}
    for program in trace.programs:
        count: dict[Any, int] = {}
        for event in program.events:
            if event.op in COLLECTIVES:
                number = count[event.group] = count.get(event.group, -1) + 1
                met.setdefault((event.group, number), []).append(event)
    for (group, _), events in met.items():
        assert len(events) == len(group)
        assert len({(event.op, event.start, event.length) for event in events}) == 1
        assert events[0].start >= max(event.issued for event in events)


@given(schedules())
def test_a_message_arrives_after_it_was_sent(schedule: Schedule) -> None:
    """And messages between two ranks arrive in the order in which they were sent."""
    trace = Trace.of(run(schedule))
    for sender in trace.programs:
        for target in range(trace.ranks):
            sent = [e for e in sender.events if e.op == "pass_to" and e.peer == target]
            got = [e for e in trace.programs[target].events if e.op == "receive" and e.peer == sender.rank]
            if not schedule.costs.shared:
                assert [e.length for e in sent] == [e.length for e in got]
            assert [len(e.inputs) for e in sent] == [len(e.outputs) for e in got]
            for one, other in zip(sent, got, strict=True):
                assert one.end is not None
                assert other.start is not None
                assert other.start >= one.end


@given(RUNS)
def test_values_and_times_follow_from_the_operations(one: Case | Schedule) -> None:
    trace = traced(one)
    check_times(trace)
    assert [p.values for p in rebuild(trace).run.programs] == [p.values for p in trace.programs]
    assert serial.encode(retime(trace, trace.costs)) == serial.encode(trace)


@given(schedules(messages=False), st.sampled_from([UNIT, Links(host_size=2, latency=0.3)]))
def test_other_costs_give_what_a_run_under_them_would(schedule: Schedule, costs: Any) -> None:
    there = Trace.of(run(schedule, costs=costs))
    again = retime(Trace.of(run(schedule)), costs)
    served = [[event.arg for _, event in trace.events() if event.op in READS] for trace in (there, again)]
    if served[0] == served[1]:  # else the readers would have served their requests in another order
        assert serial.encode(again) == serial.encode(there)


@pytest.mark.parametrize("puzzle", sample(SCHEDULES))
def test_a_puzzle_brings_its_sizes(puzzle: str) -> None:
    record = PUZZLES[puzzle]
    models = simulate(lambda model: None, puzzle=puzzle)
    assert [model.rank for model in models] == list(range(record.ranks))
    assert {(model.RANKS, model.LAYERS, model.BATCHES) for model in models} == {
        (record.ranks, record.layers, record.batches)
    }
    assert models[0].dist.mesh == record.mesh


def test_arguments_win_over_the_puzzle() -> None:
    (model,) = simulate(lambda model: None, puzzle="pipeline_fsdp", ranks=1, layers=3, costs=Links(p2p=9))
    assert (model.RANKS, model.LAYERS, model.BATCHES, model.dist.costs) == (1, 3, 16, Links(p2p=9))
    assert model.dist.mesh is None


def test_plain_functions_lambdas_and_callables_run_too() -> None:
    class Student:
        async def __call__(self, model: Model) -> None:
            model.fake_grad(0)
            await model.allreduce(model.fake_grad(0), 0)

    def plain(model: Model) -> None:
        model.fake_grad(0)

    async def inner(model: Model) -> None:
        await model.allreduce(model.fake_grad(0), 0)

    assert [e.op for e in simulate(plain)[0].program.events] == ["fake_grad"]
    assert [e.op for e in simulate(Student(), ranks=2)[1].program.events] == ["fake_grad", "fake_grad", "allreduce"]
    assert simulate(lambda model: inner(model), ranks=2)[0].time == 0.3


def test_a_stub_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    async def ddp(model: Model) -> None:
        model.load_weights(0)
        raise NotSolved("ddp")

    models = simulate(ddp, puzzle="ddp")
    assert isinstance(models, Unsolved)
    assert (list(models), models.puzzle) == ([], "ddp")
    assert capsys.readouterr().out == (
        "ddp is not solved yet\n"
        "  expected: your code in place of the line that raises NotSolved\n"
        "  fix:      read the text above the cell, replace that line, and run the cell again\n"
    )
    assert Model.check(models, puzzle="ddp") is None
    assert capsys.readouterr().out == "Not solved yet: ddp\n"


def test_a_stub_in_one_branch_is_a_stub() -> None:
    async def pipeline(model: Model) -> None:
        if model.rank == 1:
            raise NotSolved("pipeline")
        await model.receive(1)

    assert isinstance(simulate(pipeline, ranks=2), Unsolved)


def test_gc_is_as_it_was() -> None:
    def fail(model: Model) -> None:
        raise KeyError("oh")

    assert gc.isenabled()
    with pytest.raises(RankFailed):
        simulate(fail)
    assert gc.isenabled()
    gc.disable()
    try:
        simulate(lambda model: None)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_runs_that_nobody_has_any_more_are_found() -> None:
    """A run's objects count as old at once, so the collector would never look for them by itself."""
    found = python(
        "import gc\nfrom lib import Dist, simulate\nfrom lib.trace import trace\n"
        "from lib.schedules.data_parallel import ddp\n"
        "trace.FEW, trace.MOST_UNSEEN = 10, 5_000\n"
        "for _ in range(20): models = simulate(ddp, ranks=4, layers=8, batches=4)\n"
        "print(gc.get_count()[0] < 700, sum(type(one) is Dist for one in gc.get_objects()))"
    ).split()
    assert found[0] == "True"
    assert 1 <= int(found[1]) <= 10


@given(schedules(), st.data())
def test_a_rank_that_leaves_something_out_gets_a_trace_that_can_be_read(
    schedule: Schedule, data: st.DataObject
) -> None:
    """Whatever becomes of it: a run, a deadlock or a mismatch, the same with both drivers."""
    lazy = data.draw(st.integers(0, schedule.ranks - 1))
    left_out = data.draw(st.sets(st.integers(0, max(0, len(schedule.steps) - 1)), min_size=1, max_size=2))

    async def skip(model: Model) -> None:
        steps = [s for s in schedule.steps if model.rank != lazy or s.number not in left_out]
        await schedule.follow(model, steps)

    kinds: list[Any] = []
    for driver in DRIVERS.values():
        failure: PuzzleError | None = None
        try:
            trace = Trace.of(driver(skip, **schedule.sizes))
        except PuzzleError as error:
            failure, trace = error, error.trace
            if trace is None:
                pytest.fail("the error carries no Trace")
        kinds.append(type(failure))
        assert check(trace).correct <= (failure is None)
        encoded_ = without_places(trace)
        assert without_places(serial.decode(serial.encode(trace))) == encoded_
        if not isinstance(failure, MismatchError):  # what broke a rule cannot be made by the rules again
            assert without_places(Trace.parse(trace.text())) == encoded_
        assert figures.end(trace) >= figures.printed(trace) >= 0
        check_times(trace)
    assert kinds[0] == kinds[1]


def test_waiting_on_the_way_out_hides_no_error() -> None:
    """A `finally` that communicates cannot be finished once the run is over; the deadlock is what matters."""

    async def stubborn(model: Model) -> None:
        try:
            await model.receive(1 - model.rank)
        finally:
            await model.pass_to(1 - model.rank, "bye")
            await model.allreduce(model.fake_grad(0), 0)

    with pytest.raises(DeadlockError, match="these ranks wait for each other: 0 -> 1 -> 0"):
        simulate(stubborn, ranks=2)


def test_a_collective_that_nobody_waits_for_and_others_never_call_is_no_deadlock() -> None:
    async def alone(model: Model) -> None:
        if model.rank == 0:
            model.allreduce(model.fake_grad(0), 0)
            model.receive(1)

    trace = Trace.of(simulate(alone, ranks=2))
    assert [event.start for event in trace.programs[0].events] == [0, None, None]
    assert serial.encode(serial.decode(serial.encode(trace))) == serial.encode(trace)
    assert Trace.parse(trace.text()).text() == trace.text()
    assert figures.end(trace) == 0


def test_something_else_to_await_is_refused() -> None:
    class Thing:
        def __await__(self) -> Any:
            yield 1

    async def wait(model: Model) -> None:
        if model.rank == 1:
            await Thing()
        else:
            await model.receive(1)

    with pytest.raises(PuzzleError) as raised:
        simulate(wait, ranks=2)
    assert str(raised.value) == (
        "rank 1: awaited something that is not an operation of the model\n"
        "  expected: `await` on what model.allreduce, allgather, pass_to, receive, ... return\n"
        "  got:      an int\n"
        f"  where:    test_simulator.py, line {wait.__code__.co_firstlineno + 2}, in wait: await Thing()\n"
        "  fix:      time is simulated, and there is nothing else to wait for: leave this `await` out"
    )
    assert raised.value.trace.ranks == 2


def test_a_coroutine_that_catches_its_error_goes_on() -> None:
    async def careful(model: Model) -> None:
        for ask in (lambda: model.weights[3], model.weights.popitem):
            with pytest.raises(KeyError):
                ask()
        await model.allreduce(model.fake_grad(0), 0)

    assert simulate(careful, ranks=2)[0].time == 0.3


def test_a_run_that_is_over_is_one_trace_until_somebody_writes_on() -> None:
    """What follows from it is worked out once for all its pictures; and a Trace that was taken stays what it was."""
    left: list[Any] = []

    async def leaves_its_send(model: Model) -> None:
        if model.rank == 0:
            assert model.trace is not model.trace  # ranks still run
            left.append(model.pass_to(1, model.get_activation([0])))
        else:
            await model.receive(0)

    out = simulate(leaves_its_send, ranks=2, layers=1, batches=1)
    trace = Trace.of(out)
    assert Trace.of([*reversed(out)]).programs == out[0].trace.programs
    assert out[0].trace is Trace.of(out)
    assert Trace.of(out[:1]).programs[1].events == ()

    async def comes_late() -> None:
        await left[0]  # nothing is written down, but that nobody did anything else before

    asyncio.run(comes_late())
    assert Trace.of(out) is not trace
    later = Trace.of(out)
    out[1].load_weights(0)
    assert (
        len(Trace.of(out).programs[1].events) == len(later.programs[1].events) + 1 == len(trace.programs[1].events) + 1
    )
    model = Model(layers=1, batches=1)
    assert model.trace is not model.trace


@pytest.mark.parametrize("loop", [False, True], ids=["our driver", "an event loop"])
@pytest.mark.parametrize("leave", [sys.exit, exit, lambda: exit(3)])
def test_who_wants_to_end_python_ends_the_run(leave: Any, loop: bool) -> None:
    async def leaves(model: Model) -> None:
        if loop:
            await asyncio.sleep(1)
        leave()

    with pytest.raises(RankFailed, match="SystemExit") as caught:
        simulate(leaves, ranks=2)
    assert "end the whole of Python" in str(caught.value)
    assert caught.value.trace is not None


@pytest.mark.parametrize("loop", [False, True], ids=["our driver", "an event loop"])
def test_an_interrupt_stays_one_and_says_what_it_stopped(loop: bool) -> None:
    async def long(model: Model) -> None:
        if loop:
            await asyncio.sleep(1)
        if model.rank == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        simulate(long, ranks=2)
    (note,) = caught.value.__notes__
    assert note.startswith("You stopped the run")
    assert simulate(lambda model: None)  # nothing is left of it


def test_an_exit_of_a_notebook_is_pythons_while_ranks_run_and_its_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("ExitAutocall", (), {"__module__": "IPython.core.autocall", "__call__": lambda self: None})()
    names: dict[str, Any] = {"exit": own}
    exec("def leaves(model): exit()", names)
    with pytest.raises(RankFailed, match="SystemExit"):
        simulate(names["leaves"])
    assert names["exit"] is own


def test_at_the_size_of_a_puzzle_a_run_is_short() -> None:
    def endless(model: Model) -> None:
        while True:
            model.get_activation([0])

    with pytest.raises(BudgetError, match="more than 10000 events"):
        simulate(endless, puzzle="ddp")
    assert simulate(lambda model: None, puzzle="ddp", layers=1)[0].program.budget == 250_000
    with pytest.raises(BudgetError, match="more than 7 events"):
        simulate(endless, puzzle="ddp", budget=7)
