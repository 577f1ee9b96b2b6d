"""What operations cost: the classic constants, and the ring formulas of Links."""

import json
from collections import defaultdict
from dataclasses import fields, replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import HIDDEN, LENGTH, LINKS, UNIT, Costs, Links, Mesh, Model, Trace, Uneven, simulate
from lib.analysis import figures
from lib.cluster.costs import TICKS, Stream, costs_from, in_units, ticks, units
from lib.trace.json_format import encode
from lib.trace.retiming import retime
from lib.trace.validation import decode
from lib.values.collectives import COLLECTIVES
from lib.values.operations import OPERATIONS
from tests.support.said import Said

WEIGHT = HIDDEN * HIDDEN
BATCH = HIDDEN * LENGTH
BETA = Fraction(2, 10) / BATCH
ROUNDS = {"allreduce": 2, "allgather": 1, "scatterreduce": 1, "broadcast": 1}


def price(costs: Costs, op: str, elements: int | Fraction, members: Any) -> float:
    return units(costs.communicate(COLLECTIVES[op], elements, tuple(members)))


def test_the_classic_constants() -> None:
    times = {"forward": 4.0, "backward": 4.0, "update": 0.5, "loss": 0.0}
    assert {
        op: units(UNIT.compute(OPERATIONS[op], 0, 1, 4 if OPERATIONS[op].per_batch else 1)) for op in times
    } == times
    assert {price(UNIT, op, n, range(n)) for op in COLLECTIVES for n in (1, 2, 16)} == {0.3}
    assert units(UNIT.message(10**9, 0, 7)) == 0.2


def test_the_copy_of_a_batch_to_the_device_is_on_the_clock_of_its_rank() -> None:
    async def step(model: Model) -> Model:
        model.get_activation([0, 2])
        model.get_activation([1])
        return model

    (free,) = simulate(step, layers=1, batches=3)
    assert (free.time, free.log) == (0, [])
    (model,) = simulate(step, layers=1, batches=3, costs=Costs(to_device=0.25))
    assert (model.time, model.log) == (0.75, [])  # the log, the samples and what draw prints are the original's
    trace = model.trace
    assert [units(event.length) for event in trace.programs[0].events] == [0.5, 0.25]
    assert figures.bubbles(trace).makespan == 1.0  # a copy is no computation
    assert Trace.parse(trace.text()).text() == trace.text()
    assert figures.end(retime(trace, UNIT)) == 0
    assert "to_device" in Costs(to_device=0.25).to_json()
    assert "to_device" not in UNIT.to_json()
    assert costs_from(UNIT.to_json()) == UNIT


@given(
    st.sampled_from(sorted(ROUNDS)),
    st.integers(1, 64),
    st.integers(0, 10**7),
    st.sampled_from([None, 1, 3, 4]),
    st.sampled_from([1.0, 2.5, 10.0]),
    st.sampled_from([0.0, 0.02, 0.5]),
)
def test_ring_formulas(op: str, n: int, size: int, host: int | None, ratio: float, alpha: float) -> None:
    links = Links(host_size=host, ratio=ratio, latency=alpha)
    beta = BETA * (1 if host is None or n <= host else Fraction(str(ratio)))
    busiest = Fraction(n - 1, n) if op != "broadcast" else int(n > 1)  # its last element goes all the way
    exact = ROUNDS[op] * (busiest * size * beta + (n - 1) * Fraction(str(alpha)))
    assert abs(links.communicate(COLLECTIVES[op], size, range(n)) - exact * TICKS) <= 1


@given(
    st.integers(1, 24),
    st.integers(0, 10**7),
    st.sampled_from([1, 3, 4, 32]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([0.5, 2.5, 10.0]),
)
def test_an_all_to_all_takes_as_long_as_its_busiest_link(
    n: int, size: int, host: int, cards: int | None, ratio: float
) -> None:
    loads = defaultdict[Any, Fraction](Fraction)
    for one, other in permutations(range(n), 2):
        if one // host == other // host:
            loads["inside", one] += 1
        else:
            card = one % host if cards is None or cards >= host else one % host * cards // host
            loads[one // host, card] += Fraction(str(ratio))
    exact = max(loads.values(), default=0) * Fraction(size, n) * BETA + (n - 1) * Fraction(1, 50)
    links = Links(host_size=host, cards=cards, ratio=ratio, latency=0.02)
    assert abs(links.communicate(COLLECTIVES["alltoall"], size, range(n)) - exact * TICKS) <= 1


@given(st.integers(1, 64), st.fractions(0, 10**7), st.sampled_from([None, 1, 3, 8]), st.sampled_from([0.0, 0.07]))
def test_all_reduce_is_reduce_scatter_and_all_gather_to_the_tick(
    n: int, size: Fraction, host: int | None, alpha: float
) -> None:
    links = Links(host_size=host, latency=alpha)
    costs = {op: links.communicate(row, size, range(n)) for op, row in COLLECTIVES.items()}
    assert costs["allreduce"] == costs["scatterreduce"] + costs["allgather"]


@given(st.lists(st.integers(0, 15), min_size=2, max_size=6, unique=True), st.sampled_from(sorted(COLLECTIVES)))
def test_the_order_of_a_group_does_not_change_the_price(members: list[int], op: str) -> None:
    assert price(LINKS, op, WEIGHT, members) == price(LINKS, op, WEIGHT, sorted(members))


numbers = st.floats(0, 1000, allow_nan=False)
links = st.builds(Links, p2p=numbers, host_size=st.none() | st.integers(1, 64), ratio=numbers, latency=numbers)


@given(st.builds(Costs, numbers, numbers, numbers, numbers, numbers, numbers) | links)
def test_costs_survive_json(costs: Costs) -> None:
    again = costs_from(costs.to_json())
    assert again == costs
    assert type(again) is type(costs)


async def forward_and_back(model: Model) -> None:
    weights = [model.load_weights(layer) for layer in range(model.LAYERS)]
    activations = [model.get_activation(range(model.BATCHES))]
    for layer in range(model.LAYERS):
        activations.append(model.forward(layer, activations[layer], weights[layer][0]))
    grad = model.loss(activations[-1])
    for layer in reversed(range(model.LAYERS)):
        made, grad = model.backward(layer, activations[layer], grad, weights[layer][0])
        model.update(layer, made, *weights[layer])


def test_uneven_layers_differ_in_what_they_compute_and_in_nothing_else() -> None:
    costs = Uneven(layers=(2, 0.5, 0.1), backward=2)
    trace = Trace.of(simulate(forward_and_back, layers=4, batches=3, costs=costs))
    lengths: dict[str, list[int]] = {}
    for _, event in trace.events():
        lengths.setdefault(event.op, []).append(event.length)
    factors = [2_000_000_000, 500_000_000, 100_000_000, 2_000_000_000]
    assert lengths["forward"] == [3 * factor for factor in factors]
    assert lengths["backward"] == [6 * factor for factor in reversed(factors)]
    assert lengths["update"] == [500_000_000] * 4
    assert lengths["get_activation"] == [0]
    again = decode(json.loads(json.dumps(encode(trace))))
    assert again.costs == costs
    assert encode(again) == encode(trace)


def uneven(**sizes: Any) -> None:
    """What is said of layers or ranks, and of a file that has them."""
    said: list[ValueError] = []
    for make in (lambda: Uneven(**sizes), lambda: costs_from({"model": "uneven", **sizes})):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            make()
        said.append(raised.value)
    assert str(said[0]) == str(said[1])
    raise said[0]


test_costs_that_there_cannot_be_are_refused = Said(__file__, "costs").test(lambda: globals())


@pytest.mark.parametrize("costs", [UNIT, LINKS, Links(ratio=3, latency=0.1)])
def test_a_file_from_before_a_cost_existed_has_its_default(costs: Costs) -> None:
    for missing in costs.to_json():
        if missing != "model":
            old = {name: value for name, value in costs.to_json().items() if name != missing}
            default = {field.name: field.default for field in fields(costs)}[missing]
            assert costs_from(old) == replace(costs, **{missing: default})


def test_hosts_are_those_of_the_mesh_where_it_has_some() -> None:
    """Where a device is built in follows from its number: of hosts of two, devices 0 and 1 are on the first."""
    mesh = Mesh({"data": 4}, ranks=[0, 2, 1, 3], host_size=2)
    assert [mesh.host(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert [Mesh({"data": 4}).host(rank) for rank in range(4)] == [0] * 4
    for costs in (Links(), Links(host_size=2), LINKS):
        placed = costs.on(mesh)
        assert units(placed.message(BATCH, 0, 1)) == 0.2
        assert units(placed.message(BATCH, 0, 2)) == 2.0
        assert price(placed, "allgather", WEIGHT, (0, 1)) == 0.2
        assert costs.on(None) is costs
        assert costs.on(Mesh({"data": 4})) is costs
    assert UNIT.on(mesh) is UNIT


@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 1.0, 0.07]), max_size=30))
def test_sums_of_times_are_exact(times: list[float]) -> None:
    assert units(sum(map(ticks, times))) == float(sum((Fraction(str(t)) for t in times), Fraction(0)))


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 50), min_size=1, max_size=3), st.integers(0, 9)),
        max_size=20,
    )
)
def test_a_stream_does_one_thing_at_a_time_as_early_as_it_can(jobs: list[tuple[str, list[int], int]]) -> None:
    streams = defaultdict[str, Stream](Stream)
    over: dict[str, int] = {}
    for stream, issued, length in jobs:
        start = streams[stream].carry(max(issued), length)
        assert start == max(over.get(stream, 0), *issued)
        over[stream] = start + length


@given(st.lists(st.tuples(st.sampled_from("ab"), *[st.integers(0, 50)] * 2, st.integers(0, 9)), max_size=20))
def test_a_receive_begins_when_it_is_issued_and_its_message_is_sent(jobs: list[tuple[str, int, int, int]]) -> None:
    streams = defaultdict[str, Stream](Stream)
    over: dict[str, int] = {}
    for stream, issued, sent, length in jobs:
        start = streams[stream].carry(issued, length, sent)
        assert start == max(over.get(stream, 0), issued, sent)
        over[stream] = start + length


def test_a_time_in_words() -> None:
    times = (1, 1.4, 0, 2, Fraction(1, 3))
    words = ["1 time unit", "1.4 time units", "0 time units", "2 time units", "0.3333 time units"]
    assert [in_units(ticks(time)) for time in times] == words
