"""The table of operations, and the sets of names that follow it."""

from dataclasses import dataclass, replace

import pytest

from lib.values.collectives import COLLECTIVES
from lib.values.layers import Shape
from lib.values.operations import COMMUNICATION, COMPUTE, LOCAL, MESSAGES, OPERATIONS, READS, TIMED, calls, signatures
from lib.values.table import Table
from lib.values.values import Activation, OptState, Value, Weight, WeightGrad

SHAPE = Shape(2, 4)


@dataclass(frozen=True)
class Fruit:
    name: str
    ripe: bool


def test_sets_of_names_follow_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table([Fruit("apple", True), Fruit("pear", False)])
    ripe = table.names(lambda row: row.ripe)
    both = table.names(lambda row: not row.ripe, {"from another table"})
    assert (ripe, both) == ({"apple"}, {"pear", "from another table"})
    with monkeypatch.context() as patch:
        patch.setitem(table, "pear", Fruit("pear", True))
        patch.setitem(table, "plum", Fruit("plum", True))
        assert (ripe, both) == ({"apple", "pear", "plum"}, {"from another table"})
    assert (ripe, both) == ({"apple"}, {"pear", "from another table"})
    del table["apple"]
    assert ripe == set()


def test_the_sets_are_those_of_the_properties() -> None:
    costly = {name for name, row in OPERATIONS.items() if row.cost is not None}
    assert costly - {name for name, row in OPERATIONS.items() if row.loads} == COMPUTE >= {"forward", "update"}
    assert {"pass_to", "receive"} <= MESSAGES
    assert MESSAGES | READS | set(COLLECTIVES) == COMMUNICATION
    assert {"read"} == READS
    assert TIMED == COMPUTE | COMMUNICATION
    assert set(OPERATIONS) - MESSAGES - READS - {"wait"} == LOCAL


def test_calls_are_signatures_without_their_await() -> None:
    assert calls().keys() == signatures().keys()
    assert signatures()["allreduce"] == "await model.allreduce(gradient, layer)"
    assert calls()["allreduce"] == "model.allreduce(gradient, layer)"
    assert calls()["forward"] == signatures()["forward"]
    assert not {"add", "foreign", "wait"} & calls().keys()


MADE: dict[str, tuple[int | None, tuple[int, ...], list[Value], list[Value]]] = {
    "load_weights": (1, (0, 2), [], [Weight(1, 2, 0, [0], 2), OptState(1, 2, 0, [0], 2)]),
    "get_activation": (None, (), [], [Activation(0, 2, [0, 1], 4)]),
    "forward": (0, (), [Activation(0, 2, [0], 4), Weight(0, 2, 0)], [Activation(1, 2, [0], 4)]),
    "fake_grad": (1, (), [], [WeightGrad(1, 2, [0, 1], 4)]),
    "set_final_weight": (1, (), [Weight(1, 2, 1)], []),
    "shard": (None, (1, 2), [Weight(0, 2, 0)], [Weight(0, 2, 0, [1], 2)]),
}


@pytest.mark.parametrize("name", MADE)
def test_a_row_makes_what_the_operation_gives(name: str) -> None:
    layer, arg, values, made = MADE[name]
    row = OPERATIONS[name]
    assert row.make(SHAPE, layer, frozenset([0, 1]), arg, values) == made
    kinds = [type(value) for value in made]
    assert len(kinds) == len(row.gives)
    assert all(issubclass(kind, given) for kind, given in zip(kinds, row.gives, strict=True))


def test_batches_stand_in_the_word_where_they_say_what_it_is() -> None:
    shown = {name for name, row in OPERATIONS.items() if row.has_batches}
    assert {"get_activation", "forward", "backward", "fake_grad"} <= shown
    assert not {"loss", "update", "add", "load_weights"} & shown
    assert replace(OPERATIONS["update"], per_batch=True).has_batches
