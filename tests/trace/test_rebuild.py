"""rebuild: what a Trace says of its values is not believed, and one that is not a program says where it is none."""

from dataclasses import replace
from typing import Any

import pytest

from lib import Activation, Costs, Model, RuleError, Trace, TraceError, Weight, check, simulate
from lib.trace.event import Event
from lib.trace.rebuild import rebuild
from lib.values import placement
from tests.support.changes import changed
from tests.support.schedules import EVERYTHING, Case, basic


def of_basic() -> Trace:
    """A small run, whose program has room for values that nobody makes."""
    trace = Trace.of(simulate(basic, layers=1, batches=1))
    return changed(trace, 0, values=(*trace.programs[0].values, *[None] * 9))


def event(trace: Trace, op: str) -> Event:
    return next(event for _, event in trace.events() if event.op == op)


def uses_the_future() -> Trace:
    trace = of_basic()
    event(trace, "forward").inputs = (2, 9)
    return trace


async def exchange(model: Model) -> None:
    """Give away what stays here, too: the root keeps what it sends, and each rank its own part."""
    weight, _ = model.load_weights(0)
    await model.broadcast(weight, 0)
    data = [model.get_activation([2 * model.rank + part]) for part in range(2)]
    await model.alltoall(data, 0)


def test_each_value_of_a_rank_is_one_of_its_own() -> None:
    """Whoever asks which of them are gathered guests asks for the object."""
    for program in rebuild(Trace.of(simulate(exchange, ranks=2, layers=1, batches=4))).run.programs:
        assert len({id(value) for value in program.values}) == len(program.values) == 7


def test_a_trace_that_is_no_program() -> None:
    loss, forward = of_basic(), of_basic()
    event(loss, "loss").outputs += (3,)
    event(forward, "forward").layer = None
    for trace, message in (
        (uses_the_future(), "rank 0 uses value 9 before it exists"),
        (loss, "rank 0: loss has 1 results, the Trace says 2"),
        (forward, "an operation that needs a layer has none"),
    ):
        with pytest.raises(TraceError) as raised:
            rebuild(trace)
        assert str(raised.value) == message
        assert check(trace).faults[0] == message


def test_nobody_waits_twice() -> None:
    async def later(model: Model) -> None:
        work = model.allreduce(model.fake_grad(0, []), 0)
        model.get_activation([0])
        await work

    trace = Trace.of(simulate(later, ranks=1, layers=1, batches=1))
    trace = changed(trace, 0, events=(*trace.programs[0].events, trace.programs[0].events[-1].copy()))
    with pytest.raises(TraceError) as raised:
        rebuild(trace)
    assert str(raised.value) == "rank 0 waits twice for one allreduce"


def test_what_a_run_that_failed_did_not_do_is_not_made() -> None:
    trace = replace(uses_the_future(), error="it failed")
    made = tuple(rebuild(trace).run.programs[0].values)
    assert made[:3] == trace.programs[0].values[:3]
    assert made[3:] == (None,) * len(made[3:])


async def hands(model: Model) -> None:
    """Pass on values made by hand, and messages of none."""
    if model.rank == 0:
        await model.pass_to(1, Weight(1, 2, 0).shard(0, 2))
        await model.pass_to(1, Weight(1, 2, 0, [0], 2).combine(model.load_weights(1, 1, 2)[0]))
        await model.pass_to(1, "nothing")
        model.forward(0, Activation(0, 2, [1], 2), model.load_weights(0)[0])
        await model.pass_to(1, model.fake_grad(1, [0, 1]))
    else:
        for _ in range(4):
            await model.receive(0)


@pytest.mark.parametrize("case", [*EVERYTHING, Case("hands", hands, 2, 2, 2)], ids=lambda case: case.name)
def test_what_an_event_is_about_follows_from_its_values(case: Case) -> None:
    """Times depend on it, so a Trace is not believed; only of the data are batches what was asked for."""
    trace = Trace.of(case.run(simulate))
    said = [(event.op, event.layer, event.batches) for _, event in trace.events()]
    for _, one in trace.events():
        if one.op not in ("get_activation", "read", "fake_grad"):  # what was asked for is part of the program
            one.batches = frozenset([77])
        if one.op in ("foreign", "loss", "get_activation", "add", "combine", "shard", "pass_to", "receive", "wait"):
            one.layer = 77
    assert [(event.op, event.layer, event.batches) for _, event in rebuild(trace).run.events()] == said


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
def test_without_times_all_else_is_the_same(case: Case) -> None:
    """A check at hidden sizes asks for no times; those that the run states stay, whatever they are."""
    trace = Trace.of(case.run(simulate))
    for _, one in trace.events():
        assert one.copy() == one
        assert one.copy() is not one
        one.issued += 7
    timed, plain = rebuild(trace), rebuild(trace, timed=False)
    assert plain.flaws == timed.flaws
    assert {key: found[1:] for key, found in plain.finals.items()} == {
        key: found[1:] for key, found in timed.finals.items()
    }
    for one, other, stated in zip(plain.run.programs, timed.run.programs, trace.programs, strict=True):
        assert one.values == other.values
        pairs = zip(one.events, other.events, stated.events, strict=True)
        assert [mine.at(0, 0, 0) for mine, _, _ in pairs] == [event.at(0, 0, 0) for event in other.events]
        assert [event.issued for event in one.events] == [event.issued for event in stated.events]


def test_the_load_that_is_first_in_the_program_is_the_first_one() -> None:
    """Even if it is used last."""

    def backwards(model: Model) -> None:
        first, _ = model.load_weights(0)
        second, _ = model.load_weights(0)
        x = model.get_activation([0])
        model.loss(model.forward(0, x, second))
        model.forward(0, x, first)

    trace = Trace.of(simulate(backwards, layers=1, batches=1))
    line = backwards.__code__.co_firstlineno
    assert {(flaw.what, flaw.event.outputs) for flaw in rebuild(trace).flaws.values()} == {
        (f"the weight of layer 0 was loaded a second time (the first time in line {line + 1})", (2, 3))
    }


def taken(model: Model) -> None:
    for start in (0, 40, 80):
        model.get_activation(range(start, start + 40))


def added(model: Model) -> None:
    """Unions of 32, 32 and 64 numbers, the last of two values; and what is known already."""
    grads = [model.fake_grad(0, range(start, start + 16)) for start in range(0, 64, 16)]
    for _ in range(3):
        model.grad_weights[0] = (grads[0] + grads[1]) + (grads[2] + grads[3])


def sliced(model: Model) -> None:
    whole = model.get_activation(range(64))
    for _ in range(2):
        whole.shard(0, 2)


@pytest.mark.parametrize(("function", "numbers"), [(taken, 3 * 24), (added, 32), (sliced, 48 + 2 * 48)])
def test_the_numbers_of_sets_are_counted(monkeypatch: pytest.MonkeyPatch, function: Any, numbers: int) -> None:
    """In a run and where it is rebuilt: all beyond 16 for each value that goes in; what is known costs nothing."""
    trace = Trace.of(simulate(function, layers=1, batches=120))
    monkeypatch.setattr(placement, "MOST_NUMBERS", numbers)
    rebuild(trace)
    assert Trace.of(simulate(function, layers=1, batches=120)).text() == trace.text()
    monkeypatch.setattr(placement, "MOST_NUMBERS", numbers - 1)
    for make in (lambda: rebuild(trace), lambda: simulate(function, layers=1, batches=120)):
        with pytest.raises(RuleError) as raised:
            make()
        assert raised.value.what.startswith("the batches and shards taken, put together and cut here are more than")
        assert raised.value.rank == 0


def test_what_grows_is_counted_and_what_hands_on_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def grows(model: Model) -> None:
        whole = model.load_weights(0, 0, 120)[0]
        for shard in range(1, 40):
            whole = whole.combine(model.load_weights(0, shard, 120)[0])

    def hands_on(model: Model) -> None:
        weight, _ = model.load_weights(0)
        x = model.get_activation(range(16))
        model.backward(0, x, model.loss(model.forward(0, x, weight)), weight)

    monkeypatch.setattr(placement, "MOST_NUMBERS", sum(range(1, 9)))  # the last of 33 to 40 numbers, 32 of them free
    rebuild(Trace.of(simulate(grows, layers=1, batches=1)))
    monkeypatch.setattr(placement, "MOST_NUMBERS", sum(range(1, 9)) - 1)
    with pytest.raises(RuleError, match="are more than"):
        simulate(grows, layers=1, batches=1)
    monkeypatch.setattr(placement, "MOST_NUMBERS", 0)
    rebuild(Trace.of(simulate(hands_on, layers=1, batches=16)))


@pytest.mark.parametrize("times", [1, 2])
def test_an_example_is_read_once_on_a_rank(times: int) -> None:
    async def step(model: Model) -> None:
        weight, state = model.load_weights(0)
        read = [await model.read([0]) for _ in range(times)]
        grad = model.loss(model.forward(0, read[0], weight))
        sums, _ = model.backward(0, read[-1], grad, weight)
        model.set_final_weight(0, model.update(0, sums, weight, state)[0])

    faults = check(simulate(step, layers=1, batches=1, ranks=2, costs=Costs(read=1))).faults
    assert len(faults) == times - 1
    for fault in faults:
        assert "rank 0: the final weight of layer 0 does not count: activation 0 was loaded a second time" in fault
        assert "expected: each example read once on a rank" in fault
