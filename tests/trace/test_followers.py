"""Ranks that do what another one does, on other batches: rebuilt as if each were worked out alone."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Model, PuzzleError, Trace, TraceError, simulate
from lib.schedules.data_parallel import ddp
from lib.schedules.steps import compute, load
from lib.trace import rebuild as module
from lib.trace.event import Event
from lib.trace.lifetimes import alike
from lib.trace.rebuild import rebuild
from lib.trace.retiming import plan_of
from tests.support.changes import changed
from tests.support.profiles import examples
from tests.support.schedules import EVERYTHING, Case

LAYERS, BATCHES = 3, 4


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow even where it is not worth it."""
    monkeypatch.setattr(module, "REPEATS", 0)


def told(trace: Trace) -> Any:
    """All that a rebuild finds out, or its error."""
    try:
        run, flaws, finals = rebuild(trace)
    except (PuzzleError, TraceError) as error:
        return str(error)
    things = [*plan_of(run).things, None]
    values = [[value and (value, value.updates, repr(value)) for value in program.values] for program in run.programs]
    return values, [*run.events()], flaws, finals, [things[number] for number in plan_of(run).thing]


def alone(trace: Trace) -> Any:
    """The same with every rank worked out by the rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "alike", lambda run: [*range(run.ranks)])
        return told(trace)


def events(trace: Trace, change: Callable[[int, int, Event], None]) -> Trace:
    """The same run with changed events; `change` gets each with its rank and number."""
    for rank in range(trace.ranks):
        copies = [event.copy() for event in trace.programs[rank].events]
        for number, event in enumerate(copies):
            change(rank, number, event)
        trace = changed(trace, rank, events=tuple(copies))
    return trace


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: case.name)
def test_known_schedules(case: Case) -> None:
    trace = Trace.of(case.run(simulate))
    assert told(trace) == alone(trace)


def test_what_does_not_depend_on_batches_is_one_value_for_all_ranks() -> None:
    first, second = rebuild(Trace.of(simulate(ddp, ranks=2, layers=3, batches=2))).run.programs
    shared = [mine for mine, theirs in zip(first.values, second.values, strict=True) if mine is theirs]
    # Of layers 1 and 2 the weights and their states, before and after the update; and all sums of gradients.
    assert len(shared) == 2 * 2 * 2 + 3


Give = Callable[[Model], Iterable[Any]]
Work = Callable[[Model, list[Any]], None]


def fed(gives: Sequence[Give], work: Work) -> Trace:
    """A run in which ranks 0 and 1 do the same work on what they are given, by ranks 2 and 3."""

    async def step(model: Model) -> None:
        if model.rank < 2:
            work(model, await model.receive(model.rank + 2))
        else:
            await model.pass_to(model.rank - 2, [*gives[model.rank - 2](model)])

    return Trace.of(simulate(step, ranks=4, layers=LAYERS, batches=BATCHES))


def computes(model: Model, given: list[Any]) -> None:
    weight, _ = model.load_weights(1)
    for x in given:
        model.forward(1, x, weight)


def cuts(model: Model, given: list[Any]) -> None:
    for value in given:
        value.shard(0, 2)


def joins(model: Model, given: list[Any]) -> None:
    for one, other in zip(given[::2], given[1::2], strict=True):
        one.combine(other)


def updates(model: Model, given: list[Any], first: int = 0) -> None:
    for layer, gradient in enumerate(given, first):
        model.set_final_weight(layer, model.update(layer, gradient, *model.load_weights(layer))[0])


def outputs(model: Model, *batches: int) -> Iterable[Any]:
    data, (weight, _) = {n: model.get_activation([n]) for n in sorted({*batches})}, model.load_weights(0)
    return [model.forward(0, data[n], weight) for n in batches]


def halves(model: Model, number: int = 0) -> Iterable[Any]:
    return [model.load_weights(layer, shard, 2)[number] for layer in range(LAYERS) for shard in range(2)]


def gradients(model: Model, *fake: int) -> Iterable[Any]:
    load(model)
    compute(model, range(BATCHES))
    honest = model.grad_weights
    return [model.fake_grad(n, range(BATCHES)) if n in fake else honest[n] for n in range(LAYERS)]


def weights(model: Model, *updated: int) -> Iterable[Any]:
    sums = [*gradients(model)]
    loaded = [(model.weights[layer], model.opt_states[layer]) for layer in range(LAYERS)]
    return [model.update(n, sums[n], *mine)[0] if n in updated else mine[0] for n, mine in enumerate(loaded)]


FED: dict[str, tuple[Give, Give, Work]] = {
    "all the same": (gradients, gradients, updates),
    "two places for one": (lambda model: outputs(model, 0, 0, 0), lambda model: outputs(model, 0, 1, 2), computes),
    "one place for two": (lambda model: outputs(model, 0, 1, 2), lambda model: outputs(model, 0, 0, 0), computes),
    "other kinds": (halves, lambda model: halves(model, 1), joins),
    "updated": (lambda model: weights(model, 0, 1, 2), weights, cuts),
    "updated at last": (lambda model: weights(model, 2), lambda model: weights(model, 1), cuts),
    "made up": (gradients, lambda model: gradients(model, 1), updates),
}


@pytest.mark.parametrize("name", FED)
def test_ranks_that_do_the_same_to_something_else(name: str) -> None:
    trace = fed(FED[name][:2], FED[name][2])
    assert alike(trace)[1] == 0
    assert told(trace) == alone(trace)


def test_other_layers_than_the_run_states() -> None:
    """Both ranks state the same."""

    def give(model: Model) -> Iterable[Any]:
        return [model.load_weights(layer)[0] for layer in ((0, 1, 2) if model.rank == 2 else (0, 2, 1))]

    def lie(rank: int, number: int, event: Event) -> None:
        event.layer = 0 if rank < 2 else event.layer

    trace = events(fed((give, give), cuts), lie)
    assert alike(trace)[1] == 0
    assert told(trace) == alone(trace)


async def loads_again(model: Model) -> None:
    """That shows only where the weights are used."""
    weights = [model.load_weights(0)[0] for _ in range(3)]
    await model.allreduce(model.fake_grad(0, []), 0)
    x = model.get_activation([model.rank])
    for weight in weights:
        model.forward(0, x, weight)


def cuts_for(*shards: tuple[int, int]) -> Callable[[Model], None]:
    """Cut parts out of the rank's data, on each rank its own, and all but the first again."""

    def step(model: Model) -> None:
        x = model.get_activation([2 * model.rank, 2 * model.rank + 1])
        for part in [x.shard(both[model.rank], 2) for both in shards][1:]:
            part.cut("rows", 0, 2)

    return step


def loads_other_layers(model: Model) -> None:
    for layer in (0, 2, 1) if model.rank else (0, 1, 2):
        model.load_weights(layer)


def hands_in(model: Model) -> None:
    for layer in range(LAYERS):
        model.set_final_weight(layer, model.load_weights(layer)[0])


async def made_up_later(model: Model) -> None:
    """Rank 3 gives a gradient that is made up when rank 0, which rank 1 follows, is done."""
    if model.rank < 2:
        for layer in range(2):
            updates(model, await model.receive(model.rank + 2), layer)
    elif model.rank < 4:
        sums = [*gradients(model)]
        await model.pass_to(model.rank - 2, sums[:1])
        for _ in range(9 if model.rank == 3 else 0):
            await model.pass_to(4, "wait")
            await model.receive(4)
        await model.pass_to(model.rank - 2, [model.fake_grad(1, range(BATCHES)) if model.rank == 3 else sums[1]])
    else:
        for _ in range(9):
            await model.receive(3)
            await model.pass_to(3, "wait")


STEPS = {
    "loads again": loads_again,
    "loads other layers": loads_other_layers,
    "other parts": cuts_for((0, 0), (1, 1)),
    "two parts for one": cuts_for((0, 0), (0, 1), (0, 0)),
    "one part for two": cuts_for((0, 0), (1, 0), (1, 1)),
    "hands in": hands_in,
    "made up later": made_up_later,
}


@pytest.mark.parametrize("name", STEPS)
def test_ranks_that_do_the_same(name: str) -> None:
    trace = Trace.of(simulate(STEPS[name], ranks=5 if "later" in name else 2, layers=LAYERS, batches=BATCHES))
    assert alike(trace)[1] == 0
    assert told(trace) == alone(trace)


def test_values_that_are_made_twice() -> None:
    """The leader has the last one already when the other rank needs the first."""

    def again(rank: int, number: int, event: Event) -> None:
        event.inputs, event.outputs = (
            tuple([one - 2 if one > 3 else one for one in numbers]) for numbers in (event.inputs, event.outputs)
        )

    trace = events(Trace.of(simulate(hands_in, ranks=2, layers=LAYERS, batches=BATCHES)), again)
    assert told(trace) == alone(trace)


class Equal(int):
    """A number that claims to be equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_what_only_claims_to_be_the_same() -> None:
    def lie(rank: int, number: int, event: Event) -> None:
        if rank == 1 and event.op == "forward":
            event.inputs = (Equal(0), *event.inputs[1:])

    trace = Trace.of(simulate(ddp, ranks=2, layers=LAYERS, batches=BATCHES))
    forged = events(trace, lie)
    assert alike(forged) == [0, 1]
    assert told(forged) == alone(forged)
    for liar in range(2):

        def lie_about_layers(rank: int, number: int, event: Event, liar: int = liar) -> None:
            event.layer = Equal(0) if rank == liar else event.layer

        forged = events(trace, lie_about_layers)
        assert told(forged) == alone(forged)


TRIES: list[Callable[[Model, Any, Any, int], Any]] = [
    lambda model, one, other, number: model.forward(0, one, other),
    lambda model, one, other, number: one + other,
    lambda model, one, other, number: one.combine(other),
    lambda model, one, other, number: one.shard(number, 2),
    lambda model, one, other, number: one.cut("rows", 0, 2),
]


@examples(400, 40)
@given(st.data())
def test_whatever_two_ranks_are_given(data: st.DataObject) -> None:
    """They try the same on it, each with a part of its own."""
    few = st.integers(0, 3)
    kinds = st.sampled_from(["data", "weight", "state"])
    thing = st.tuples(kinds, few, few)
    both = data.draw(st.lists(st.tuples(thing, st.none() | thing), min_size=1, max_size=5))
    steps = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 30)), max_size=20))

    def give(model: Model) -> Iterable[Any]:
        for one, other in both:
            kind, number, part = one if model.rank == 2 or other is None else other
            loaded = model.load_weights(number % LAYERS, part % 2, 2) if kind != "data" else ()
            yield loaded[kind == "state"] if loaded else model.get_activation(sorted({number, part}))

    def work(model: Model, given: list[Any]) -> None:
        given += model.load_weights(0)
        for step, one, other in steps:
            number = (other + model.rank * one) % 2
            with suppress(PuzzleError):
                given.append(TRIES[step](model, given[one % len(given)], given[other % len(given)], number))

    trace = fed((give, give), work)
    assert told(trace) == alone(trace)
