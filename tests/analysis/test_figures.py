"""The figures of a Trace: when it ends, what memory holds and why, bubbles, and what is sent."""

from collections import Counter
from fractions import Fraction
from math import inf
from typing import Any

import pytest
from hypothesis import given

from lib import HIDDEN, LENGTH, Costs, Model, Trace, simulate
from lib.analysis import figures
from lib.schedules.pipelines.generators import gpipe
from lib.schedules.pipelines.program import program_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, TIMED
from tests.support.random_programs import Schedule, run, schedules
from tests.support.schedules import CLASSIC, EVERYTHING, Case

WEIGHT, BATCH = HIDDEN * HIDDEN, HIDDEN * LENGTH


# -- memory, worked out the slow way ------------------------------------------------------------------------------


IN_PLACE = ("allreduce", "allreduce_bucket", "broadcast")


def alive(trace: Trace, rank: int, index: int) -> list[int]:
    """The ids of the values alive when an event starts, straight from the definition.

    From its birth until it left the stores and was used for the last time; what was loaded and is used, from the first
    moment; what was handed in, and the state after an update, to the end. While a communication is under way it keeps
    its inputs, and the output of a receive, of a read or of a collective that is not in place. What was sent is there
    until the other side has issued its receive. A value that is stored later than it is made waits in a variable. A
    collective that works in place and is waited for later has a buffer of its own where anything else needs its input.
    """
    program = trace.programs[rank]
    count = len(program.values)
    born, needed, held = [len(program.events)] * count, [-1] * count, [0] * count
    used = {value for event in program.events for value in event.inputs}
    for number, event in enumerate(program.events):
        if event.op == "wait":
            work = program.events[event.arg[0]]
            early = work.op in ("receive", "read") or (work.op in COLLECTIVES and work.op not in IN_PLACE)
            early = early or (work.op in COLLECTIVES and needed_besides(trace, rank, event.arg[0], number))
            for value in work.outputs:
                born[value] = event.arg[0] if early else number
                needed[value] = max(needed[value], number)
            for value in work.inputs:
                needed[value] = max(needed[value], number)
        elif event.op not in COMMUNICATION or event.blocking:
            for value in event.outputs:
                born[value] = -1 if event.op == "load_weights" and value in used else number
        if event.op == "update":
            needed[event.outputs[1]] = len(program.events)
        for value in event.inputs:
            needed[value] = max(needed[value], number)
            if event.op == "pass_to" and number < index and program.events[index].issued < taken(trace, rank, number):
                needed[value] = max(needed[value], index)
            if event.op == "set_final_weight":
                needed[value] = len(program.events)
    for position, _, value, change in program.moves:
        if position <= index:
            held[value] += change
        if change > 0 and position - 1 > born[value]:
            needed[value] = max(needed[value], position - 1)
    return [v for v in range(count) if born[v] < index and (held[v] > 0 or index <= needed[v])]


def needed_besides(trace: Trace, rank: int, call: int, wait: int) -> bool:
    """Whether anything else needs what a collective would write over, once it is called."""
    return any(needs(trace, rank, value, call, wait) for value in trace.programs[rank].events[call].inputs)


def needs(trace: Trace, rank: int, value: int, call: int, wait: int) -> bool:
    """The same of one value."""
    program = trace.programs[rank]
    waits = {event.arg[0]: number for number, event in enumerate(program.events) if event.op == "wait"}
    for number, event in enumerate(program.events):
        if value not in event.inputs or number == call:
            continue
        until: float = number
        if event.op == "pass_to":
            until = max([number, *(i for i, e in enumerate(program.events) if e.issued <= taken(trace, rank, number))])
        elif event.op == "set_final_weight":
            until = inf
        elif event.op in COMMUNICATION and not event.blocking:
            until = waits.get(number, inf)
        if until >= call:
            return True
    count, left = 0, -1.0
    for position, _, moved, change in program.moves:
        if moved == value:
            count += change
            left = inf if count > 0 else position
    return left > wait + 1


def taken(trace: Trace, rank: int, number: int) -> float:
    """When the receive of a message was issued."""
    sent = trace.programs[rank].events
    target = sent[number].peer
    assert target is not None
    place = sum(event.op == "pass_to" and event.peer == target for event in sent[:number])
    other = trace.programs[target].events
    receives = [e.issued for e in other if e.op == "receive" and e.peer == rank and e.start is not None]
    return receives[place] if place < len(receives) else inf


def check_memory(trace: Trace) -> None:
    for program in trace.programs:
        timed = [i for i, event in enumerate(program.events) if event.op in TIMED and event.start is not None]
        samples = figures.samples(trace, program.rank)
        assert [sample.index for sample in samples] == timed
        for sample in samples:
            ids = alive(trace, program.rank, sample.index)
            values = [value for number in ids if (value := program.values[number]) is not None]
            by_kind: Counter[str] = Counter()
            for value in values:
                by_kind[value.kind] += value.elements()  # type: ignore[assignment]
            assert {kind: size for kind, size in sample.by_kind.items() if size} == {
                k: v for k, v in by_kind.items() if v
            }
            assert sample.total == sum(sample.by_kind.values())
            assert sample.time == program.events[sample.index].start
            assert [one.value for one in figures.alive_at(trace, program.rank, sample.index)] == values


@pytest.mark.parametrize("case", [case for case in EVERYTHING if case.ranks <= 8], ids=lambda case: case.name)
def test_memory_is_what_the_definition_says(case: Case) -> None:
    check_memory(Trace.of(case.run(simulate)))


@given(schedules())
def test_memory_is_what_the_definition_says_in_random_schedules(schedule: Schedule) -> None:
    check_memory(Trace.of(run(schedule)))


@pytest.mark.parametrize("case", CLASSIC, ids=lambda case: case.name)
def test_whoever_keeps_everything_in_the_stores_has_the_originals_memory(case: Case) -> None:
    """All that is counted is in the stores, or an input of what starts just then."""
    for model in case.run(simulate):
        for sample, logged in zip(figures.samples(model.trace, model.rank), model.log, strict=True):
            event = model.program.events[sample.index]
            values = model.program.values
            loose = sum(values[number].elements() for number in event.inputs)  # type: ignore[union-attr]
            assert logged.memory <= sample.total <= logged.memory + loose


@given(schedules())
def test_the_peak_is_the_largest_sample(schedule: Schedule) -> None:
    trace = Trace.of(run(schedule))
    top = figures.peak(trace)
    every = [(s.total, p.rank, s) for p in trace.programs for s in figures.samples(trace, p.rank)]
    assert top.elements == max((total for total, _, _ in every), default=0)
    bubble = figures.bubbles(trace)
    assert 0 <= bubble.makespan <= 1
    assert 0 <= bubble.span <= 1
    if every:
        first = next((rank, s) for total, rank, s in every if total == top.elements)
        assert (top.rank, top.index, top.time) == (first[0], first[1].index, first[1].time)
        assert sum(one.value.elements() for one in top.alive) == top.elements


# -- the peak says why --------------------------------------------------------------------------------------------


def test_the_peak_names_kinds_and_lines() -> None:
    def train(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        inp = model.get_activation([0, 1])
        model.activations[1] = model.forward(0, inp, model.weights[0])
        grad = model.loss(model.activations[1])
        model.backward(0, inp, grad, model.weights[0])

    trace = simulate(train, layers=1, batches=2)[0].trace
    top = figures.peak(trace)
    assert (top.rank, top.time, top.elements) == (0, 2 * 10**9, 2 * WEIGHT + 6 * BATCH)
    lines = {}
    for one in top.alive:
        assert one.born is not None
        place = trace.place(one.born)
        assert place is not None
        lines[one.value.kind, one.value.layer, one.hidden] = (place.line - train.__code__.co_firstlineno, place.text)
    assert lines == {
        ("weight", 0, False): (1, "model.weights[0], model.opt_states[0] = model.load_weights(0)"),
        ("optimizer state", 0, False): (1, "model.weights[0], model.opt_states[0] = model.load_weights(0)"),
        ("activation", 0, True): (2, "inp = model.get_activation([0, 1])"),
        ("activation", 1, False): (3, "model.activations[1] = model.forward(0, inp, model.weights[0])"),
        ("activation gradient", 0, True): (4, "grad = model.loss(model.activations[1])"),
    }


def test_sizes_that_do_not_divide_stay_exact() -> None:
    model = Model()
    for shard in range(3):
        model.weights[shard], _ = model.load_weights(0, shard, 3)
    model.loss(
        model.forward(
            1, model.forward(0, model.get_activation([0]), model.load_weights(0)[0]), model.load_weights(1)[0]
        )
    )
    assert figures.samples(model.trace, model.rank)[0].by_kind["weight"] == 3 * WEIGHT
    assert isinstance(figures.samples(model.trace, model.rank)[0].by_kind["weight"], int | Fraction)


# -- time ---------------------------------------------------------------------------------------------------------


def test_printed_is_a_start_and_end_is_an_end() -> None:
    async def step(model: Model) -> None:
        await model.allreduce(model.fake_grad(0), 0)
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), weight)
        model.set_final_weight(0, weight)

    trace = simulate(step, ranks=2)[0].trace
    assert (figures.printed(trace), figures.end(trace)) == (0.3, 1.3)


def test_a_run_that_does_nothing() -> None:
    trace = Trace.of(simulate(lambda model: None, ranks=3))
    assert (figures.printed(trace), figures.end(trace)) == (0.0, 0.0)
    assert figures.peak(trace) == figures.Peak(0, 0, 0, 0, ())
    assert figures.bubbles(trace) == figures.Bubbles(0.0, 0.0)
    assert figures.traffic(trace) == [(0, 0)] * 3


# -- bubbles and traffic ------------------------------------------------------------------------------------------


def test_both_bubble_rates() -> None:
    """Rank 0 computes 3 of 10 steps, in a span of 6; rank 1 computes 2, in a span of 2."""

    async def step(model: Model) -> None:
        weight, _ = model.load_weights(0)
        inp = model.get_activation([0])
        if model.rank == 0:
            model.forward(0, inp, weight)
            await model.allreduce(model.fake_grad(0), 0)
            model.forward(0, inp, weight)
            model.forward(0, inp, weight)
            await model.pass_to(1, "done")
        else:
            model.forward(0, inp, weight)
            model.forward(0, inp, weight)
            await model.allreduce(model.fake_grad(0), 0)
            await model.receive(0)

    trace = Trace.of(simulate(step, ranks=2, costs=Costs(collective=2, p2p=2)))
    assert figures.end(trace) == 10
    assert figures.bubbles(trace).makespan == pytest.approx(1 - 5 / 20)
    assert figures.bubbles(trace).span == pytest.approx(1 - 5 / 12)


def test_one_rank_that_only_computes_has_no_bubble() -> None:
    trace = Trace.of(simulate(program_of(gpipe(1, 3)), layers=2, batches=3))
    assert figures.bubbles(trace) == figures.Bubbles(0.0, 0.0)


# -- values outside the stores ------------------------------------------------------------------------------------


def hidden(function: Any, **sizes: Any) -> list[list[str]]:
    return [[str(one.value) for one in figures.hidden(model.program)] for model in simulate(function, **sizes)]


def test_a_value_that_outlives_an_operation_in_a_local_is_hidden() -> None:
    def hide(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        secret = model.get_activation([0])
        model.activations["other"] = model.get_activation([1])
        model.activations["other"] = model.forward(0, model.activations["other"], model.weights[0])
        model.forward(0, secret, model.weights[0])

    assert hidden(hide, batches=2) == [["activation 0, batch 0"]]


def test_a_value_that_goes_straight_from_one_operation_to_the_next_is_not() -> None:
    def pass_on(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.weights[1], _ = model.load_weights(1)
        out = model.forward(0, model.get_activation([0]), model.weights[0])
        out = model.forward(1, out, model.weights[1])
        model.loss(out)

    assert hidden(pass_on) == [[]]


def test_a_value_that_was_stored_for_a_while_and_then_hidden() -> None:
    def hide(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        secret = model.activations.pop(0)
        model.forward(0, model.get_activation([1]), model.weights[0])
        model.forward(0, secret, model.weights[0])

    assert hidden(hide, batches=2) == [["activation 0, batch 0"]]


def test_what_was_handed_in_is_not_hidden() -> None:
    def hand_in(model: Model) -> None:
        weight, state = model.load_weights(0)
        weight, state = model.update(0, model.fake_grad(0, [0]), weight, state)
        model.set_final_weight(0, weight)
        model.weights[1], _ = model.load_weights(1)
        model.forward(0, model.get_activation([0]), model.load_weights(0)[0])

    model = Model()
    hand_in(model)
    assert figures.hidden(model.program) == []
