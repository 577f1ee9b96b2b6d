"""What was tried, with fresh eyes, to get to a goal of a puzzle cheaper than an honest solution can; and what happened.

Each trick is a function at the size of its puzzle. It runs, and is judged as a grader judges: by the JSON of its Trace.
`Outcome` says what became of it, and every outcome is tested:

- REFUSED: the operation raised as the student's function ran.
- FOUND OUT: it ran, and the check says what was dishonest.
- COUNTED: it is correct, and no cheaper than without the trick: what was hidden counts, what was left out was timed.

The tricks by private names (`model.program.events`, patched modules) work on the record of a run in the student's own
process. Nothing can stop that there: whoever controls the process controls what it prints. They are worth nothing to
who is graded by another process, from the JSON: that rebuilds every value and every time from the operations, and a
program that was tampered with is just another program. What saves something and is no trick comes before the
tests, at the end.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Any

import pytest

from lib import (
    PUZZLES,
    Activation,
    Costs,
    Dist,
    Model,
    OptState,
    PuzzleError,
    Trace,
    TraceError,
    Verdict,
    Weight,
    check,
    simulate,
)
from lib.schedules.data_parallel import ddp as ddp_lean
from lib.schedules.data_parallel import fully_sharded
from lib.schedules.steps import accumulate, backward, compute, forward, load, loss, mine, step, update
from lib.submissions.load import load_function
from lib.submissions.locations import reference
from lib.trace.json_format import encode
from lib.values.operations import OPERATIONS
from tests.adversary.judging import read
from tests.support.schedules import basic, grad_accum

fsdp = fully_sharded()
Trick = Callable[[Model], Any]


class Outcome(Enum):
    """What became of a trick."""

    REFUSED = "refused"
    FOUND_OUT = "found out"
    COUNTED = "counted"


TRICKS: dict[str, tuple[str, Outcome, Trick]] = {}


def trick(puzzle: str, outcome: Outcome, name: str = "") -> Callable[[Trick], Trick]:
    """Enters a trick into the table, under its own name or another."""

    def enter(function: Trick) -> Trick:
        known = name or function.__name__
        assert known not in TRICKS
        TRICKS[known] = puzzle, outcome, function
        return function

    return enter


REFUSED, FOUND_OUT, COUNTED = Outcome


@cache
def honest(puzzle: str) -> tuple[Verdict, ...]:
    """The reference, and the schedule that tricks here begin with."""
    known: dict[str, Trick] = {"basic": basic, "grad_accum": grad_accum, "ddp": ddp_lean, "fsdp": fsdp, "wsdp": fsdp}
    functions = [load_function(reference(puzzle), puzzle), *([known[puzzle]] if puzzle in known else [])]
    return tuple(check(Trace.of(simulate(function, puzzle=puzzle)), puzzle) for function in functions)


def judged(function: Trick, puzzle: str) -> Verdict | Exception:
    """The verdict of a grader, who has the JSON only; or what the student's function ended with."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Model, "patch", patch, raising=False)
            data = encode(Trace.of(simulate(function, puzzle=puzzle)))
        trace = read(data)
    except (PuzzleError, ValueError) as error:
        return error
    return check(trace, puzzle)


def became(verdict: Verdict | Exception, puzzle: str) -> Outcome:
    if isinstance(verdict, TraceError) or (isinstance(verdict, Verdict) and not verdict.correct):
        return FOUND_OUT
    if isinstance(verdict, Exception):
        return REFUSED
    for other in honest(puzzle):
        cheaper = verdict.time < other.time or verdict.memory < other.memory
        assert not (cheaper and verdict.time <= other.time and verdict.memory <= other.memory), "it pays"
    return COUNTED


# -- weights, states and data that are somewhere else for a while ---------------------------------------------


@trick("basic", COUNTED)
def states_loaded_when_they_are_needed(model: Model) -> None:
    """What was at rest before the step was there from its first moment on."""
    model.activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        model.weights[layer], _ = model.load_weights(layer)
        forward(model, layer)
    loss(model)
    for layer in reversed(range(model.LAYERS)):
        accumulate(model, layer, backward(model, layer))
        _, model.opt_states[layer] = model.load_weights(layer)
        step(model, layer)


# -- memory where nobody looks --------------------------------------------------------------------------------


def parked(park: Callable[[Model, Activation], Callable[[], Activation]]) -> Trick:
    """The data of one device, between forward and backward, in a place of one's own."""

    def run(model: Model) -> None:
        load(model)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        forward(model, 0)
        fetch = park(model, model.activations.pop(0))
        for layer in range(1, model.LAYERS):
            forward(model, layer)
        loss(model)
        for layer in reversed(range(model.LAYERS)):
            if layer == 0:
                model.activations[0] = fetch()
            accumulate(model, layer, backward(model, layer))
            step(model, layer)

    return run


def in_a_generator(model: Model, value: Activation) -> Callable[[], Activation]:
    def hold() -> Any:
        kept = value
        yield
        yield kept

    generator = hold()
    next(generator)
    return lambda: next(generator)


def in_a_store_behind_its_back(model: Model, value: Activation) -> Callable[[], Activation]:
    dict.__setitem__(model.weights, "hidden", value)  # type: ignore[arg-type]
    return lambda: dict.pop(model.weights, "hidden")  # type: ignore[return-value]


def in_the_model(model: Model, value: Activation) -> Callable[[], Activation]:
    model.spare = value  # type: ignore[attr-defined]
    return lambda: model.spare  # type: ignore[attr-defined]


def in_a_default(model: Model, value: Activation) -> Callable[[], Activation]:
    return lambda kept=value: kept


def made_again_by_hand(model: Model, value: Activation) -> Callable[[], Activation]:
    """From what it looks like."""
    fields = [getattr(value, name) for name in value.__match_args__]
    return lambda: Activation(*fields)


for _park in (in_a_generator, in_a_store_behind_its_back, in_the_model, in_a_default, made_again_by_hand):
    trick("basic", FOUND_OUT if _park is made_again_by_hand else COUNTED, f"data_{_park.__name__}")(parked(_park))


@trick("gpipe", COUNTED)
async def activations_in_the_mail(model: Model) -> None:
    """Passed to the next stage long before that asks for them: until it does, they are the sender's."""
    each = model.LAYERS // model.RANKS
    layers = range(model.rank * each, (model.rank + 1) * each)
    load(model, layers)
    sent = []
    for batch in range(model.BATCHES):
        if model.rank:
            at = await model.receive(model.rank - 1)
        else:
            at = model.get_activation([batch])
        for layer in layers:
            model.activations[layer, batch] = at
            at = model.forward(layer, at, model.weights[layer])
        model.activations["out", batch] = at
        if model.rank + 1 < model.RANKS:
            sent.append(model.pass_to(model.rank + 1, model.activations.pop(("out", batch))))
    for batch in range(model.BATCHES):
        if model.rank + 1 < model.RANKS:
            grad = await model.receive(model.rank + 1)
        else:
            grad = model.loss(model.activations.pop(("out", batch)))
        for layer in reversed(layers):
            made, grad = model.backward(layer, model.activations.pop((layer, batch)), grad, model.weights[layer])
            accumulate(model, layer, made)
        if model.rank:
            await model.pass_to(model.rank - 1, grad)
    for work in sent:
        await work
    for layer in layers:
        step(model, layer)


Pair = collections.namedtuple("Pair", "left right")


class Bag:
    """A class of a student's own."""

    def __init__(self, value: Any) -> None:
        self.value = value


def smuggled(wrap: Callable[[Any], Any], unwrap: Callable[[Any], Any]) -> Trick:
    """A gradient in something that a message might not be looked into for values."""

    async def run(model: Model) -> None:
        load(model)
        compute(model, mine(model))
        for layer in range(model.LAYERS):
            grad = model.grad_weights.pop(layer)
            for rank in range(model.RANKS):
                if rank != model.rank:
                    await model.pass_to(rank, wrap(grad))
            for rank in range(model.RANKS):
                if rank != model.rank:
                    grad = grad + unwrap(await model.receive(rank))
            model.grad_weights[layer] = grad
            step(model, layer)

    return run


BAGS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a_bag": (Bag, lambda bag: bag.value),
    "a_namedtuple": (lambda value: Pair(value, 0), lambda pair: pair.left),
    "a_set": (lambda value: {value}, lambda items: next(iter(items))),
    "a_key": (lambda value: {value: 0}, lambda items: next(iter(items))),
    "a_closure": (lambda value: lambda: value, lambda call: call()),
}
for _name, _pair in BAGS.items():
    # What a NamedTuple and the keys of a dict hold travels with them, and is counted.
    trick("ddp", COUNTED if _name in ("a_namedtuple", "a_key") else REFUSED, f"gradients_in_{_name}")(smuggled(*_pair))


# -- work that is not done ------------------------------------------------------------------------------------


@trick("ddp", FOUND_OUT)
async def errors_that_are_swallowed(model: Model) -> None:
    """What was refused did not happen, whoever catches it: no update, and no new weight."""
    load(model)
    compute(model, mine(model))
    for layer in range(model.LAYERS):
        try:
            update(model, layer)
        except PuzzleError:
            model.weights[layer], _ = model.load_weights(layer)
        model.set_final_weight(layer, model.weights[layer])


@trick("ddp", REFUSED)
async def a_collective_that_does_not_fit_is_swallowed(model: Model) -> None:
    load(model)
    compute(model, mine(model))
    with contextlib.suppress(PuzzleError):
        await model.allreduce(model.grad_weights[model.rank % 2], model.rank % 2)
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        step(model, layer)


@trick("ddp", REFUSED)
async def a_result_seen_before_it_is_there(model: Model) -> None:
    """Before the last member has come there is nothing to be seen."""
    load(model)
    compute(model, mine(model))
    for layer in range(model.LAYERS):
        work: Any = model.allreduce(model.grad_weights[layer], layer)
        model.grad_weights[layer] = work._signal.value[work._place]
        step(model, layer)


@trick("ddp", FOUND_OUT)
async def a_result_taken_out_of_its_work(model: Model) -> None:
    """It is known when the last member has come; taken from there, and not waited for, it is nobody's value."""
    load(model)
    compute(model, mine(model))
    works: list[Any] = [model.allreduce(model.grad_weights[layer], layer) for layer in range(model.LAYERS)]
    await model.allreduce(model.fake_grad(0), 0)  # now everybody has come
    for layer, work in enumerate(works):
        model.grad_weights[layer] = work._signal.value[work._place]
        step(model, layer)


@trick("ddp", REFUSED)
async def a_second_model_of_the_same_rank(model: Model) -> None:
    """It has a clock of its own."""
    other = Model(model.rank, model.dist, model.LAYERS, model.BATCHES)
    load(other)
    compute(other, mine(model))
    load(model)
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(other.grad_weights[layer], layer)
        step(model, layer)


@trick("ddp", FOUND_OUT)
async def a_second_model_does_everything(model: Model) -> None:
    await ddp_lean(Model(model.rank, model.dist, model.LAYERS, model.BATCHES))


@trick("ddp", COUNTED)
async def one_rank_writes_the_programs_of_all(model: Model) -> None:
    """By way of `model.dist.models`: the clocks are those of the ranks all the same."""
    if model.rank == 0:
        for other in model.dist.models.values():
            load(other)
            compute(other, mine(other))
    else:
        await model.receive(0)
    for rank in range(1, model.RANKS if model.rank == 0 else 0):
        await model.pass_to(rank, "done")
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = await model.allreduce(model.grad_weights[layer], layer)
        step(model, layer)


# -- by private names: worth nothing in a file ----------------------------------------------------------------


def tampered(base: Trick, touch: Callable[[Model], Any]) -> Trick:
    """An honest run whose record is touched up when it is over."""

    async def run(model: Model) -> None:
        result: Any = base(model)
        if result is not None:
            await result
        touch(model)

    return run


def stores_that_are_emptied_before_they_are_filled(model: Model) -> None:
    model.program.moves[:] = [move for move in model.program.moves if move[3] > 0 and move[1] in (1, 3, 4)]


def more_leaves_than_came(model: Model) -> None:
    model.program.moves.extend([(len(model.program.events), 0, 0, -1)] * 3)


def a_smaller_model(model: Model) -> None:
    model.LAYERS, model.BATCHES = 1, 1


def other_costs(model: Model) -> None:
    model.dist.costs = Costs(forward=0, backward=0, update=0, collective=0)


def everybody_is_rank_0(model: Model) -> None:
    model.rank = 0


for _puzzle, _base, _outcome, _touch in (
    ("basic", basic, COUNTED, stores_that_are_emptied_before_they_are_filled),
    ("basic", basic, FOUND_OUT, more_leaves_than_came),
    ("basic", basic, REFUSED, a_smaller_model),
    ("ddp", ddp_lean, REFUSED, other_costs),
    ("ddp", ddp_lean, REFUSED, everybody_is_rank_0),
):
    trick(_puzzle, _outcome, _touch.__name__)(tampered(_base, _touch))


@trick("basic", REFUSED)
def final_weights_written_into_the_model(model: Model) -> None:
    model.final_weights = {layer: Weight(layer, model.LAYERS, 1) for layer in range(model.LAYERS)}


@trick("basic", COUNTED)
def operations_without_a_time(model: Model) -> None:
    model.patch.setattr(Costs, "compute", lambda self, op, rank, layer, batches: 0)  # type: ignore[attr-defined]
    basic(model)


@trick("basic", FOUND_OUT)
def rules_that_allow_everything(model: Model) -> None:
    """An update by the gradient of one batch."""

    def anything(shape: Any, layer: int, grad: Any, weight: Weight, state: OptState) -> tuple[Weight, OptState]:
        return Weight(layer, shape.layers, 1), OptState(layer, shape.layers, 1)

    model.patch.setitem(OPERATIONS, "update", replace(OPERATIONS["update"], rule=anything))  # type: ignore[attr-defined]
    load(model)
    compute(model, [0])
    for layer in range(model.LAYERS):
        step(model, layer)


@trick("ddp", REFUSED)
async def a_run_that_calls_itself_a_sandbox(model: Model) -> None:
    model.sandbox = True
    load(model)
    for layer in range(model.LAYERS):
        model.grad_weights[layer] = model.fake_grad(layer, range(model.BATCHES))
        step(model, layer)


@trick("ddp", COUNTED)
async def other_costs_from_the_start(model: Model) -> None:
    model._costs = Costs(forward=0, backward=0)
    await ddp_lean(model)


@trick("ddp", FOUND_OUT)
async def a_world_of_ones_own(model: Model) -> None:
    """The real one stays empty."""
    if model.rank == 0:
        dist = Dist(1)
        own = Model(0, dist, model.LAYERS, model.BATCHES)
        basic(own)


# -- no tricks, though they save something ---------------------------------------------------------------------


async def second_hand_data(model: Model) -> None:
    """The data of layer 0 is not kept for its backward: the neighbour loads it, too, and passes it on in time.

    A rank reads a batch once. But data is not at rest: any rank may read it, as with data loaders, and what is passed
    on takes time and memory like everything else. One activation less is alive at the peak.
    """
    load(model, shard=model.rank, total=model.RANKS)
    after, before = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        forward(model, layer, model.weights.pop("whole"))
    del model.activations[0]
    loss(model)
    coming: Any = None
    for layer in reversed(range(model.LAYERS)):
        model.weights["whole"] = await model.allgather(model.weights[layer], layer)
        if layer == 0:
            model.activations[0] = await coming
        made = backward(model, layer, model.weights.pop("whole"))
        model.grad_weights[layer] = await model.allreduce(made, layer)
        step(model, layer)
        if layer == 2:
            model.pass_to(after, model.get_activation([after]))
            coming = model.receive(before)


def test_data_may_be_read_by_two_ranks() -> None:
    verdict = judged(second_hand_data, "wsdp")
    assert isinstance(verdict, Verdict)
    assert verdict.correct
    assert verdict.memory == honest("wsdp")[0].memory - 512 * 256


# -- the tests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick(name: str) -> None:
    puzzle, outcome, function = TRICKS[name]
    verdict = judged(function, puzzle)
    assert became(verdict, puzzle) is outcome, verdict


def test_every_kind_of_puzzle_was_tried() -> None:
    assert len(TRICKS) >= 25
    assert {puzzle for puzzle, _, _ in TRICKS.values()} <= set(PUZZLES)
