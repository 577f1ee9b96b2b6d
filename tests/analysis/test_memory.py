"""Where values are, against the figures of memory; what is alive at the peak, and what of it nobody needed any more."""

from dataclasses import replace

import pytest
from hypothesis import given

from lib import Model, PuzzleError, Trace, simulate
from lib.analysis import figures
from lib.analysis.memory import PLACES, Holding, holdings, lean, rows, whereabouts
from lib.schedules.given import given as given_helper
from lib.schedules.steps import load
from lib.trace.event import STORES, Program
from lib.values.values import OptState, Weight
from tests.drawing.pages.runs import TRACES
from tests.support.random_programs import RUNS, Schedule, traced
from tests.support.schedules import EVERYTHING, Case

PROGRAMS = [(name, program) for name, trace in TRACES.items() for program in trace.programs[:4]]


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[f"{name}-{program.rank}" for name, program in PROGRAMS])
def test_the_values_alive_at_every_event_are_those_of_the_figures(name: str, program: Program) -> None:
    trace = TRACES[name]
    values = trace.lifetimes()[program.rank].values
    found = whereabouts(trace, program.rank)
    for index in range(len(program.events) + 1):
        here = [life for life in found if life.start <= index < life.stop]
        wanted = figures.alive_at(trace, program.rank, index)
        assert [values[life.value] for life in here] == [alive.value for alive in wanted]
        assert [life.hidden for life in here] == [alive.hidden for alive in wanted]
        assert [program.events[life.made] if life.made >= 0 else None for life in here] == [a.born for a in wanted]


def test_where_a_value_is() -> None:
    program = TRACES["prefetch"].programs[0]
    places = {(str(program.values[life.value]), PLACES[life.place]) for life in whereabouts(TRACES["prefetch"], 0)}
    gathered = "weight of layer 1, shards 0-2 of 3"
    assert (gathered, "a communication under way") in places  # its buffer, before it is awaited
    assert (gathered, "weights") in places
    assert ("weight of layer 1, shard 0 of 3", "a local variable") in places
    program = TRACES["overlapped"].programs[0]
    places = {(str(program.values[life.value]), PLACES[life.place]) for life in whereabouts(TRACES["overlapped"], 0)}
    assert ("weight of layer 0, step 1", "handed in as final") in places
    assert PLACES[1:6] == STORES


def at_peak(trace: Trace) -> tuple[Holding, ...]:
    return holdings(trace, figures.peak(trace))


def frugal(trace: Trace) -> Trace:
    """The same operations where no store ever holds anything but the results of the optimizer.

    A value is alive while somebody still uses it, in a store or not: so this run deletes everything at once.
    """

    def without(program: Program) -> Program:
        moves = [
            move for move in program.moves if isinstance(v := program.values[move[2]], OptState | Weight) and v.step > 0
        ]
        return Program(program.rank, program.events, program.values, moves)

    return replace(trace, programs=[without(program) for program in trace.programs])


def check_peak(trace: Trace) -> None:
    top, found = figures.peak(trace), at_peak(trace)
    assert sum(holding.elements for holding in found) == top.elements
    assert [holding.value for holding in found] == [alive.value for alive in top.alive]
    assert sum(row.elements for row in rows(trace, found)) == top.elements
    program = trace.programs[top.rank]
    for holding in found:
        number = next(i for i, value in enumerate(program.values) if value is holding.value)
        later = [e for e in program.events[top.index :] if number in e.inputs]
        if holding.state == "idle":
            assert not later
            assert holding.used is None or number in holding.used.inputs
    assert lean(trace) == figures.peak(frugal(trace)).elements <= top.elements
    if lean(trace) < top.elements and len(trace.programs) == 1:
        assert any(holding.state == "idle" for holding in found)


@given(RUNS)
def test_the_values_sum_to_the_peak(one: Case | Schedule) -> None:
    check_peak(traced(one))


def wasteful(model: Model) -> None:
    """Keeps its input after its last use, and the gradient of the data for nobody."""
    load(model)
    model.activations[0] = model.get_activation([0])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    model.grad_activations[1] = model.loss(model.activations.pop(1))
    rest = model.fake_grad(0, range(1, 8))
    grad, model.grad_activations[0] = model.backward(
        0, model.activations[0], model.grad_activations.pop(1), model.weights[0]
    )
    model.weights[0], model.opt_states[0] = model.update(0, grad + rest, model.weights[0], model.opt_states[0])
    model.forward(0, model.get_activation(range(1, 8)), model.weights[0])
    model.set_final_weight(0, model.weights[0])


def test_each_value_has_a_maker_a_last_use_and_a_fate() -> None:
    trace = Trace.of(simulate(wasteful, layers=1, batches=8))
    found = at_peak(trace)
    told = {(str(h.value), h.state, h.made and h.made.op, h.used and h.used.op, h.hidden) for h in found}
    assert told == {
        ("weight of layer 0, step 1", "final", "update", "set_final_weight", False),
        ("optimizer state of layer 0, step 1", "kept", "update", None, False),
        ("activation 0, batch 0", "idle", "get_activation", "backward", False),
        ("gradient of activation 0, batch 0", "idle", "backward", None, False),
        ("activation 0, batches 1-7", "needed", "get_activation", "forward", False),
    }


def test_the_table_says_where_to_delete() -> None:
    trace = Trace.of(simulate(wasteful, layers=1, batches=8))
    first, second, *others = rows(trace, at_peak(trace))
    line = wasteful.__code__.co_firstlineno + 7  # of the backward
    assert (first.kind, first.what) == ("activation", "activation 0, batch 0")
    assert first.made == f"made by get_activation in line {line - 4}"
    assert first.fate == f"last used by backward in line {line}"
    advice = f"could have been deleted before: del it after test_memory.py, line {line}: grad, "
    assert second.fate == "never used"
    assert first.advice == ""  # one line, said once: at the last of the rows that it is about
    assert second.advice.startswith(advice)
    assert not any(row.idle for row in others)
    assert "kept for the next training step" in {row.fate for row in others}
    assert "handed in as final" in {row.fate for row in others}


@given_helper
def halves(model: Model) -> None:
    for part in (0, 1):
        model.activations["half", part] = model.activations[0].shard(part, 2)
    model.activations[1] = model.forward(0, model.activations["half", 0], model.weights[0])


@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_can_be_deleted_within_the_call_that_uses_it_last(at_once: bool) -> None:
    async def cuts(model: Model) -> None:
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[0] = model.get_activation(range(8))
        halves(model)
        if at_once:
            del model.activations[0]
        model.forward(0, model.activations["half", 1], model.weights[0])

    trace = Trace.of(simulate(cuts, layers=1, batches=8))
    first = figures.peak(trace)
    assert first.index == max(n for n, e in enumerate(trace.programs[0].events) if e.op == "forward") - at_once
    (data,) = (one for one in holdings(trace, first) if one.made and one.made.op == "get_activation")
    assert data.state == ("needed" if at_once else "idle")


def test_values_that_are_alike_share_a_row() -> None:
    trace = Trace.of(next(case for case in EVERYTHING if case.name == "gpipe").run(simulate))
    assert [(row.what, row.idle) for row in rows(trace, at_peak(trace))] == [
        ("activation 0, batches 0-3", True),
        ("activation 1, batches 0-3", True),
        ("4 gradients of activation 1, batches 0-3", True),
        ("4 gradients of activation 0, batches 0-3", True),
        ("activation 2, batches 0-3", True),
        ("2 weights of layers 0, 1", False),
        ("2 optimizer states of layers 0, 1", False),
        ("2 weight gradients of layers 0, 1, batches 0-3", False),
    ]


def test_a_run_that_failed_blames_no_value() -> None:
    async def fails(model: Model) -> None:
        load(model)
        model.forward(0, model.get_activation([0]), model.weights[0])
        await model.receive(1 - model.rank)

    with pytest.raises(PuzzleError) as raised:
        simulate(fails, ranks=2)
    assert isinstance(raised.value.trace, Trace)
    states = {holding.state for holding in at_peak(raised.value.trace)}
    assert states == {"needed", "unknown"}


def test_shards_and_what_lies_outside_the_stores() -> None:
    async def gathers(model: Model) -> None:
        shard, state = model.load_weights(1, model.rank, 2)
        work = model.allgather(shard, 1)
        model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
        model.forward(1, model.forward(0, model.get_activation([1]), model.load_weights(0)[0]), await work)
        del state

    trace = Trace.of(simulate(gathers, ranks=2, batches=2))
    told = {(row.what, row.fate) for row in rows(trace, at_peak(trace))}
    assert ("weight of layer 1, shard 0 of 2", "still needed by all-gather, outside the stores") in told


def test_nothing_is_alive_in_a_run_of_nothing() -> None:
    trace = Trace.of(simulate(lambda model: None, ranks=2))
    assert at_peak(trace) == ()
    assert lean(trace) == 0


def test_a_result_counts_while_a_store_holds_it() -> None:
    def comes_back(model: Model) -> None:
        load(model)
        grad = model.fake_grad(0, [0])
        weight, state = model.update(0, grad, model.weights.pop(0), model.opt_states.pop(0))
        model.opt_states[0] = state
        model.forward(0, model.get_activation([0]), weight)
        del model.opt_states[0]
        model.forward(0, model.get_activation([0]), weight)
        model.opt_states[0] = state
        model.forward(0, model.get_activation([0]), weight)

    trace = Trace.of(simulate(comes_back, layers=1))
    assert lean(trace) == figures.peak(frugal(trace)).elements
