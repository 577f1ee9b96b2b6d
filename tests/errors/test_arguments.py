"""What a student's call hands in: it has an end, becomes plain numbers at the door, and cannot change the world."""

import copy
import itertools
import json
import pickle
from time import process_time
from typing import Any

import pytest

from lib import Activation, Dist, Mesh, Model, RuleError, Weight, WeightGrad, simulate
from lib.errors.wording import plain, written
from lib.trace.json_format import encode
from lib.trace.validation import decode
from tests.support.said import Said


class Evil(int):
    """Equal to everything, less than nothing."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __index__(self) -> int:
        return 99


class Number:
    """What numpy's integers are: no int, with an index."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def said(call: Any) -> str:
    with pytest.raises(RuleError) as raised:
        call()
    return str(raised.value).split("\n  where:")[0]


def at_once(call: Any) -> str:
    """What is said of a call of a Model of 2 layers and 2 batches: in a second, and nothing is recorded."""
    started = process_time()
    model = Model(layers=2, batches=2)
    weight, _ = model.load_weights(0)
    more = model.get_activation([0]), model.fake_grad(0)
    before = len(model.program.events), len(model.program.values)
    text = said(lambda: call(model, weight, *more))
    assert process_time() - started < 1
    assert len(text) < 1000
    assert (len(model.program.events), len(model.program.values)) == before
    return text


test_what_has_no_end_or_lies_is_refused = Said(__file__, "endless").test(
    lambda: globals() | {"itertools": itertools, "Activation": Activation}
)


def test_batches_may_be_repeated() -> None:
    assert Model(batches=2).get_activation([0, 1] * 300).batches == {0, 1}


def test_a_million_shards_are_made_saved_and_read() -> None:
    def one(model: Model) -> None:
        model.set_final_weight(0, model.load_weights(0, 7, 10**6)[0])

    trace = simulate(one, layers=1)[0].trace
    assert encode(decode(json.loads(json.dumps(encode(trace))))) == encode(trace)


def step(number: Any) -> Any:
    async def function(model: Model) -> None:
        weight, state = model.load_weights(number(0), number(0), number(1))
        x = model.get_activation([number(0), number(1)])
        grad, _ = model.backward(number(0), x, model.loss(model.forward(number(0), x, weight)), weight)
        grad = await model.allreduce(grad if model.rank == 0 else model.fake_grad(number(0)), number(0), [0, number(1)])
        await model.broadcast(weight, number(0), root=number(0))
        if model.rank == 0:
            await model.pass_to(number(1), grad)
        else:
            await model.receive(number(0))
        model.set_final_weight(number(0), model.update(number(0), grad, weight, state, number(0))[0])
        assert all(type(layer) is int for layer in model.final_weights)

    return function


@pytest.mark.parametrize("number", [Evil, Number])
def test_numbers_of_any_class_are_the_numbers_that_they_are(number: Any) -> None:
    traces = [simulate(step(of), ranks=2, layers=1, batches=2)[0].trace for of in (int, number)]
    texts = [json.dumps({**encode(trace), "places": None}) for trace in traces]
    assert texts[0] == texts[1]
    for rank, event in traces[1].events():
        numbers = [rank, event.layer, *event.batches, *event.arg, *event.group, event.peer]
        assert {type(one) for one in numbers} <= {int, type(None)}


def test_plain_and_written() -> None:
    assert type(plain(Evil(3))) is int
    assert (plain(Evil(3)), plain(True), plain(Number(4)), plain("x"), plain(1.0)) == (3, 1, 4, "x", 1.0)
    assert written(10**5000) == "2**16609 or more"
    assert written(-5) == "-5"


def test_names_and_members_of_a_group() -> None:
    class Name(str):
        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            return True

    model = Model(1, Dist(4, mesh=Mesh({"replica": 2, "shard": 2})))
    assert model.group(Name("shard")) == model.group("shard") == (0, 1)
    assert model.group([Name("replica")]) == (1, 3)
    assert model.group([Evil(1), Number(2)]) == (1, 2)  # type: ignore[list-item]
    for wrong in ([1, 1.0], [1.0], 3, [1, 9], [1, 1]):
        with pytest.raises(RuleError, match=r"group"):
            model.group(wrong)  # type: ignore[arg-type]


def test_sizes_are_plain() -> None:
    model = Model(Evil(1), Dist(Evil(2)), layers=Evil(3), batches=Number(4))  # type: ignore[arg-type]
    assert [type(n) for n in (model.rank, model.RANKS, model.LAYERS, model.BATCHES)] == [int] * 4
    for wrong in ({"layers": 1.0}, {"batches": "1"}, {"rank": 0.5}):
        with pytest.raises(ValueError, match="got"):
            Model(**wrong)  # type: ignore[arg-type]


class Fat(Weight):
    __slots__ = ()

    def is_complete(self) -> bool:
        return True

    def elements(self) -> int:
        return 0


def test_a_value_made_by_hand_is_recorded_as_what_it_is() -> None:
    model = Model(layers=1, batches=2)
    model.grad_weights[0] = WeightGrad(Evil(0), 1, [Evil(0), Evil(1)], 2)
    (grad,) = model.program.values
    assert isinstance(grad, WeightGrad)
    assert {type(n) for n in (grad.layer, *grad.batches)} == {int}
    decode(json.loads(json.dumps(encode(model.trace))))


FAT = Fat(0, 1, 0, frozenset([Evil(0)]), 2)


WORLD = [
    *("rank", "RANKS", "LAYERS", "BATCHES", "dist", "program", "shape", "sandbox", "final_weights"),
    *("weights", "opt_states", "activations", "grad_activations", "grad_weights"),
    *("time", "log", "mesh", "coord", "trace"),
]


@pytest.mark.parametrize("name", WORLD)
def test_what_describes_the_world_is_only_read(name: str) -> None:
    model = Model()
    assert said(lambda: setattr(model, name, 1)).startswith(f"model.{name} cannot be set: it is ")
    assert said(lambda: delattr(model, name)).startswith(f"model.{name} cannot be deleted: it is ")


def test_the_words_for_it() -> None:
    def function(model: Model) -> None:
        model.BATCHES = 1

    with pytest.raises(RuleError) as raised:
        simulate(function, batches=4)
    lines = str(raised.value).splitlines()
    assert lines[0] == "model.BATCHES cannot be set: it is the number of batches of the step"
    assert "model.BATCHES = 1" in lines[2]
    assert lines[3] == "  fix:      make another world: simulate(..., batches=...)"


def test_the_rest_of_the_world() -> None:
    mesh = Mesh({"a": 2}, host_size=1, processes=[[1], [0]])
    dist = Dist(2, mesh=mesh)
    Model(0, dist)
    for thing, names in ((dist, Dist.given), (mesh, Mesh.given)):
        for name in names:
            assert "cannot be set" in said(lambda thing=thing, name=name: setattr(thing, name, 1))
    with pytest.raises(TypeError):
        mesh.axes["a"] = 3  # type: ignore[index]
    assert pickle.loads(pickle.dumps(mesh)) == copy.deepcopy(mesh) == mesh


def test_names_of_ones_own_are_free() -> None:
    model = Model()
    model.fake = 1  # type: ignore[attr-defined]
    del model.fake  # type: ignore[attr-defined]
