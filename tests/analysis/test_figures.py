"""The figures of a Trace: when it ends, what memory holds and why, bubbles, and what is sent."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from lib import HIDDEN, LENGTH, Costs, Model, Trace, simulate
from lib.analysis import figures
from tests.adversary import oracle
from tests.support.random_programs import Schedule, run, schedules
from tests.support.schedules import CLASSIC, EVERYTHING, Case
from tests.support.version_1 import encode

WEIGHT, BATCH = HIDDEN * HIDDEN, HIDDEN * LENGTH


def check_memory(trace: Trace) -> None:
    """By the second opinion on what is alive."""
    try:
        second = oracle.alive(json.loads(json.dumps(encode(trace))))
    except oracle.TooFine:
        return
    for program, moments in zip(trace.programs, second, strict=True):
        samples = figures.samples(trace, program.rank)
        assert [sample.index for sample in samples] == [index for index, _, _ in moments]
        for sample, (_, ids, elements) in zip(samples, moments, strict=True):
            values = [value for number in sorted(ids) if (value := program.values[number]) is not None]
            by_kind: Counter[str] = Counter()
            for value in values:
                by_kind[value.kind] += value.elements()  # type: ignore[assignment]
            assert {kind: size for kind, size in sample.by_kind.items() if size} == +by_kind
            assert sample.total == sum(sample.by_kind.values()) == elements
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
    each = [[(s.total, s.index, s.time) for _, rank, s in every if rank == program.rank] for program in trace.programs]
    assert figures.peaks(trace) == [max(mine, key=lambda one: one[0], default=None) for mine in each]
    bubble = figures.bubbles(trace)
    assert 0 <= bubble.makespan <= 1
    assert 0 <= bubble.span <= 1
    if every:
        first = next((rank, s) for total, rank, s in every if total == top.elements)
        assert (top.rank, top.index, top.time) == (first[0], first[1].index, first[1].time)
        assert sum(one.value.elements() for one in top.alive) == top.elements


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


def test_a_run_that_does_nothing() -> None:
    trace = Trace.of(simulate(lambda model: None, ranks=3))
    assert (figures.printed(trace), figures.end(trace)) == (0.0, 0.0)
    assert figures.peak(trace) == figures.Peak(0, 0, 0, 0, ())
    assert figures.bubbles(trace) == figures.Bubbles(0.0, 0.0)
    assert figures.traffic(trace) == [(0, 0)] * 3


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
    assert figures.busiest(trace) == 3
    assert figures.bubbles(trace).makespan == pytest.approx(1 - 5 / 20)
    assert figures.bubbles(trace).span == pytest.approx(1 - 5 / 12)


def outlives(model: Model) -> None:
    secret = model.get_activation([0])
    model.forward(0, model.get_activation([1]), model.weights[0])
    model.forward(0, secret, model.weights[0])


def was_stored(model: Model) -> None:
    model.activations[0] = model.get_activation([0])
    secret = model.activations.pop(0)
    model.forward(0, model.get_activation([1]), model.weights[0])
    model.forward(0, secret, model.weights[0])


def goes_on(model: Model) -> None:
    out = model.forward(0, model.get_activation([0]), model.weights[0])
    model.loss(model.forward(1, out, model.weights[1]))


def handed_in(model: Model) -> None:
    weight, _ = model.update(0, model.fake_grad(0, [0, 1]), model.weights[0], model.load_weights(0)[1])
    model.set_final_weight(0, weight)
    model.forward(0, model.get_activation([0]), model.weights[0])


@pytest.mark.parametrize(("use", "hidden"), [(outlives, 1), (was_stored, 1), (goes_on, 0), (handed_in, 0)])
def test_a_value_that_is_in_no_store_during_an_operation_is_hidden(use: Any, hidden: int) -> None:
    """What goes straight from one to the next is not, nor is what was handed in."""

    def function(model: Model) -> None:
        model.weights[0], model.weights[1] = (model.load_weights(layer)[0] for layer in range(2))
        use(model)

    trace = Trace.of(simulate(function, layers=2, batches=2))
    assert [str(one.value) for _, one in figures.hidden(trace)] == ["activation 0, batch 0"] * hidden
