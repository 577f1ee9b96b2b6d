"""Where ranks meet: messages of any object in order, bare receives in simulated time, groups, and what joins them."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import LINKS, UNIT, Costs, Dist, ForgottenAwait, Links, Model, RuleError, Trace, Weight, simulate
from lib.analysis import figures
from lib.trace.rebuild import rebuild
from tests.support.drivers import DRIVERS, Run, encoded, in_asyncio
from tests.support.said import Said


def work(model: Model, steps: int) -> None:
    weight, _ = model.load_weights(0)
    for _ in range(steps):
        model.forward(0, model.get_activation([0]), weight)


def starts(model: Model, typ: str = "pass") -> list[float]:
    return [event.time for event in model.log if event.typ == typ]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(plain)
def test_any_object_arrives_as_it_was(thing: Any) -> None:
    got: list[Any] = []

    async def send(model: Model) -> None:
        if model.rank:
            got.append(await model.receive(0))
        else:
            await model.pass_to(1, thing)

    simulate(send, ranks=2)
    assert got == [thing]


def test_objects_of_a_students_own_arrive_too(run: Run) -> None:
    thing = object()

    async def send(model: Model) -> None:
        if model.rank:
            assert await model.receive(0) is thing
        else:
            await model.pass_to(1, thing)

    run(send, ranks=2)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_values_travel_in_what_is_like_a_list_a_tuple_or_a_dict(run: Run) -> None:
    """Each arrives as what it was, also where the value is a key; what is in a message twice, or in itself, is one."""

    def message(value: Any) -> list[Any]:
        again: list[Any] = [value]
        again.append(again)
        likes = [Pair(value, 1), deque([0, value], maxlen=2), OrderedDict(a=value), defaultdict(list, a=value)]
        return [*likes, {value: 1, (value, 2): 3}, [[value]] * 2, again]

    async def send(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, message(model.load_weights(0)[0]))
        else:
            *got, ring = await model.receive(0)
            *wanted, _ = message(Weight(0, 2, 0))
            assert (got, [type(thing) for thing in got]) == (wanted, [type(thing) for thing in wanted])
            assert got[1].maxlen == 2
            assert got[3]["b"] == []
            assert got[5][0] is got[5][1]
            assert ring[1] is ring
            for value in (got[0].first, got[1][1], got[2]["a"], got[3]["a"], *got[4], got[5][0][0], ring[0]):
                model.weights["mine"] = value[0] if isinstance(value, tuple) else value

    sender, receiver = run(send, ranks=2)
    assert [len(event.inputs) for event in sender.program.events if event.op == "pass_to"] == [1]
    assert [len(event.outputs) for event in receiver.program.events] == [1]


@dataclass
class Box:
    inside: Any


class Own(list[Any]):
    """A list of a student's own, which says that it is empty."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Slotted(tuple[Any, ...]):
    _fields = ()
    more: Any = None


def stored(value: Any) -> Any:
    model = Model()
    model.weights[0] = value.at(value.place)
    return model.weights


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "set": lambda value: {value},
    "frozenset": lambda value: frozenset({value}),
    "Box": lambda value: Box({"deep": [value]}),
    "SimpleNamespace": lambda value: SimpleNamespace(inside=(value, 1)),
    "Own": lambda value: Own([value]),
    "Slotted": lambda value: Slotted([value]),
    "list_iterator": lambda value: iter([value]),
    "partial": lambda value: partial(print, value),
    "Store": stored,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_value_in_anything_else_is_refused_where_it_is_sent(name: str) -> None:
    async def send(model: Model) -> None:
        if model.rank:
            await model.receive(0)
        else:
            model.weights[0], _ = model.load_weights(0)
            await model.pass_to(1, ["first", HOLDERS[name](model.weights[0])])

    with pytest.raises(RuleError) as raised:
        simulate(send, ranks=2)
    assert raised.value.rank == 0
    assert raised.value.words() == (
        f"pass_to was given a {name} with a value in it, which would not arrive",
        "values travel in lists, tuples and dicts",
        f"a {name} that holds the weight of layer 0",
        "send the value itself, or a list, a tuple or a dict of what is to arrive",
    )


def test_a_call_in_an_object_is_not_awaited() -> None:
    async def send(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, Box(model.allreduce(model.fake_grad(0), 0, [0])))

    with pytest.raises(ForgottenAwait, match="the value given to pass_to was not awaited"):
        simulate(send, ranks=2)


def test_a_message_that_is_nested_too_deeply() -> None:
    thing: list[Any] = []
    for _ in range(10**5):
        thing = [thing]
    with pytest.raises(RuleError, match="nested too deeply"):
        Model(0, Dist(2)).pass_to(1, thing)


@pytest.mark.timeout(10)
def test_a_message_costs_what_is_there_however_often_it_is_named() -> None:
    thing: list[Any] = [1]
    for _ in range(60):
        thing = [thing, thing]
    Model(0, Dist(2)).pass_to(1, thing)


@given(st.integers(2, 4), st.data())
def test_messages_are_ordered_for_each_source_and_target(ranks: int, data: st.DataObject) -> None:
    """Whatever else is on its way."""
    plan = data.draw(st.lists(st.permutations(range(ranks)).map(lambda p: (p[0], p[1])), max_size=15))
    wanted = data.draw(st.permutations(range(len(plan))))
    got: dict[tuple[int, int], list[int]] = {}

    async def send(model: Model) -> None:
        works = [model.pass_to(target, number) for number, (source, target) in enumerate(plan) if source == model.rank]
        for number in wanted:
            source, target = plan[number]
            if target == model.rank:
                got.setdefault((source, target), []).append(await model.receive(source))
        for one in works:
            await one

    simulate(send, ranks=ranks)
    for pair, numbers in got.items():
        assert numbers == [number for number, other in enumerate(plan) if other == pair]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_bare_receives_do_not_depend_on_the_order_of_steps(delays: list[int], random: Any) -> None:
    got: list[list[int]] = []

    async def race(model: Model) -> None:
        if model.rank:
            work(model, delays[model.rank - 1])
            await model.pass_to(0, model.rank)
            work(model, delays[-model.rank])
            await model.pass_to(0, -model.rank)
        else:
            got.append([await model.receive() for _ in range(2 * len(delays))])

    def order(names: list[int]) -> list[int]:
        random.shuffle(names)
        return names

    ranks = len(delays) + 1
    first = encoded(simulate(race, ranks=ranks))
    assert encoded(simulate(race, ranks=ranks, order=order)) == first
    assert encoded(in_asyncio(race, ranks=ranks)) == first
    sent = [(delays[rank - 1] + 0.2, rank) for rank in range(1, ranks)]
    assert [number for number in got[0] if number > 0] == [rank for _, rank in sorted(sent)]
    assert got[0] == got[1] == got[2]


@pytest.mark.parametrize("early", [False, True])
def test_a_message_is_there_when_it_was_sent_and_has_room(run: Run, early: bool) -> None:
    """One message fits in a channel. Where rank 0 asks late, the second one of rank 1 is there at 3, when the first is
    received; where it asks early, there is room long before that message is sent."""

    async def race(model: Model) -> None:
        if model.rank == 0:
            work(model, 0 if early else 3)
            assert [await model.receive() for _ in range(3)] == ["first", "other", "second"]
        elif model.rank == 1:
            first = model.pass_to(0, "first")
            work(model, 5 if early else 0)
            await model.pass_to(0, "second")
            await first
        else:
            work(model, 2)
            await model.pass_to(0, "other")

    assert starts(run(race, ranks=3)[0]) == ([0.2, 2.2, 5.2] if early else [3.0, 3.2, 3.4])


def test_a_bare_receive_under_way_leaves_a_named_one_its_message() -> None:
    """The Trace must say who got what: its values follow from its operations."""

    async def mixed(model: Model) -> None:
        if model.rank == 1:
            anybody = model.receive()
            named = model.receive(0)
            model.activations["named"] = await named
            model.activations["anybody"] = await anybody
        else:
            await model.pass_to(1, model.get_activation([0]))
            await model.pass_to(1, model.get_activation([1]))

    for driver in DRIVERS.values():
        trace = Trace.of(driver(mixed, ranks=2, batches=2))
        again = rebuild(trace).run
        assert [p.values for p in again.programs] == [p.values for p in trace.programs]


def test_a_broadcast_names_its_root_by_rank(run: Run) -> None:
    async def half(model: Model) -> None:
        if model.rank >= 2:
            got = await model.broadcast(model.fake_grad(0, [model.rank]), 0, root=3, group=(2, 3))
            assert got.batches == {3}
        else:
            with pytest.raises(RuleError) as raised:
                model.broadcast(model.fake_grad(0), 0, root=3, group=(0, 1))
            assert raised.value.what == "rank 3 cannot be the root of this broadcast: it is not in the group"
            assert raised.value.expected == "the root is one of ranks [0, 1]"

    run(half, ranks=4, batches=4)


@pytest.mark.parametrize("costs", [UNIT, LINKS, Links(latency=0.05)])
def test_the_same_ranks_are_one_stream_however_they_are_ordered(run: Run, costs: Costs) -> None:
    """Else the same links would carry as many collectives at once as the ranks have orders."""

    async def gather_in(model: Model, groups: Sequence[Any]) -> None:
        mine = [
            model.load_weights(layer, group.index(model.rank) if group else model.rank, 3)[0]
            for layer, group in enumerate(groups)
        ]
        coming = [model.allgather(mine[layer], layer, group) for layer, group in enumerate(groups)]
        for layer, work in enumerate(coming):
            gathered = await work
            assert gathered.is_complete()
            assert gathered.layer == layer

    orders: list[Any] = [*permutations(range(3))]
    ends: set[float] = set()
    for groups in ([(0, 1, 2)] * 6, [None] * 6, orders, [*orders[:5], None]):
        trace = Trace.of(run(lambda model, groups=groups: gather_in(model, groups), ranks=3, layers=6, costs=costs))
        ends.add(figures.end(trace))
        again = Trace.parse(trace.text())
        assert figures.end(again) == figures.end(trace)
    assert len(ends) == 1


SAID = Said(__file__, "targets")


@pytest.mark.parametrize("call", SAID.texts)
def test_a_message_goes_to_another_rank(call: str) -> None:
    with pytest.raises(RuleError):
        eval(call, globals())
    SAID.check(call, globals())
