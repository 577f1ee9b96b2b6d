"""The table of operations, and the sets of names that follow it."""

from dataclasses import replace

import pytest

from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS
from lib.values.layers import LAYER_KINDS, Shape
from lib.values.operations import COMMUNICATION, COMPUTE, LOCAL, MESSAGES, OPERATIONS, READS, TIMED, calls, signatures
from lib.values.values import Activation, OptState, Value, Weight, WeightGrad

SHAPE = Shape(2, 4)


def test_nobody_adds_to_a_table() -> None:
    for table in (OPERATIONS, COLLECTIVES, DIMS, LAYER_KINDS):
        with pytest.raises(TypeError):
            table["another"] = next(iter(table.values()))  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


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
    assert [*row.make(SHAPE, layer, frozenset([0, 1]), arg, values)] == made
    kinds = [type(value) for value in made]
    assert len(kinds) == len(row.gives)
    assert all(issubclass(kind, given) for kind, given in zip(kinds, row.gives, strict=True))


def test_batches_stand_in_the_word_where_they_say_what_it_is() -> None:
    shown = {name for name, row in OPERATIONS.items() if row.has_batches}
    assert {"get_activation", "forward", "backward", "fake_grad"} <= shown
    assert not {"loss", "update", "add", "load_weights"} & shown
    assert replace(OPERATIONS["update"], per_batch=True).has_batches
