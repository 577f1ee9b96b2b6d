"""Columns, features and partial sums in files and texts: they come back, and what there cannot be is refused."""

import copy
from typing import Any

import pytest

from lib import Mesh, Model, Trace, TraceError, check, simulate
from lib.schedules.mesh_parallel import tensor_parallel
from lib.trace.validation import decode
from lib.values.layers import by_hand
from lib.values.values import Activation, Weight, value_of
from tests.support.said import Said
from tests.support.version_1 import encode

MESH = Mesh({"data": 2, "model": 2})
TRACE = Trace.of(simulate(tensor_parallel(), layers=2, batches=2, mesh=MESH))


def forged(place: int, last: Any, program: int = 0) -> dict[str, Any]:
    """The file of the run, with something else as the last field of a value."""
    data = copy.deepcopy(encode(TRACE))
    data["programs"][program]["values"][place][-1] = last
    return data


def test_the_form_of_a_file() -> None:
    data = encode(TRACE)
    values = data["programs"][1]["values"]
    assert values[0] == ["weight", 0, 2, 0, "0", 1, {"out": ["1", 2]}]
    assert ["activation", 1, 2, "0", 2, {"features": ["1", 2]}] in values
    assert ["activation", 2, 2, "0", 2, {"terms": ["1", 2]}] in values
    assert ["activation", 2, 2, "0", 2] in values
    assert [event[9] for event in data["programs"][1]["events"][:2]] == [[1, 2, 1], [1, 2]]
    assert encode(decode(data)) == data
    assert "W0@1.2.1>" in TRACE.text()
    assert Trace.parse(TRACE.text()).text() == TRACE.text()


SAID = Said(__file__, "parts")


@pytest.mark.parametrize("call", SAID.texts)
def test_parts_that_there_cannot_be_are_refused(call: str) -> None:
    with pytest.raises(TraceError):
        eval(call, globals())
    SAID.check(call, globals())


def loads(arg: list[int]) -> dict[str, Any]:
    """The file of the run, with something else as what the first load names."""
    data = copy.deepcopy(encode(TRACE))
    data["programs"][0]["events"][0][9] = arg
    return data


def test_columns_and_rows_of_one_layer_are_two_loads_of_what_they_share() -> None:
    async def crossed(model: Model) -> None:
        columns, _ = model.load_weights(0, 0, 2, dim="out")
        rows, _ = model.load_weights(0, 1, 2)
        others, _ = model.load_weights(0, 1, 2, dim="out")
        model.weights["columns"], model.weights["rows"] = columns.combine(others), rows
        model.set_final_weight(0, model.weights["columns"])
        await model.allgather(rows, 0)

    verdict = check(simulate(crossed, layers=1, batches=1)[0].trace)
    assert not verdict.correct
    rebuilt = simulate(crossed, layers=1, batches=1)[0].trace.rebuilt()
    assert [flaw.what for flaw in rebuilt.flaws.values() if "second time" in flaw.what]


def test_values_by_hand_are_written_with_their_parts() -> None:
    async def by_hand_made(model: Model) -> None:
        made = value_of(Weight, by_hand(), 0, 1, 0, frozenset([0]), 1, [("out", [1], 2)])
        given = value_of(Activation, by_hand(1), 0, 1, frozenset([0]), 1)
        model.activations[1] = model.forward(0, given, made)

    trace = Trace.of(simulate(by_hand_made, layers=1, batches=1))
    assert "Q0;0;1;0;0;1;out=1/2>" in trace.text()
    assert Trace.parse(trace.text()).text() == trace.text()
    assert encode(decode(encode(trace))) == encode(trace)
    assert str(trace.programs[0].values[2]) == "activation 1, batch 0, features 1 of 2"


@pytest.mark.parametrize("dim", ["in", "out"])
def test_the_two_halves_of_a_weight_are_loaded_one_after_the_other(dim: str) -> None:
    """On one rank, by rows or by columns: neither is a second load of the other."""

    def step(model: Model) -> None:
        parts = [model.load_weights(0, shard, 2, dim) for shard in (0, 1)]
        (weight, state), (more, rest) = parts
        weight, state = weight.combine(more), state.combine(rest)
        given = model.get_activation([0])
        grad, _ = model.backward(0, given, model.loss(model.forward(0, given, weight)), weight)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    assert check(simulate(step, layers=1, ranks=1)).faults == ()
