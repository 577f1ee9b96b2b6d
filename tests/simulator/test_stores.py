"""The stores: dictionaries, whatever one does to them, that tell the Trace what enters and leaves."""

import copy
import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lib import AbsentKey, BudgetError, Model, RuleError, Weight, simulate
from lib.trace.event import STORES

keys = st.one_of(st.integers(0, 3), st.sampled_from(["whole", (0, 1), None]))
which = st.integers(0, 4)


def held(model: Model) -> list[Counter[int]]:
    """What the moves of the Trace leave in each store: ids of values, with how many keys have it."""
    found: list[Counter[int]] = [Counter() for _ in STORES]
    for _, store, value, change in model.program.moves:
        found[store][value] += change
        assert found[store][value] >= 0, "a value leaves no store that it is not in"
    return [+counter for counter in found]


class Stores(RuleBasedStateMachine):
    """Every way to change a dictionary, on the stores and on plain dictionaries alike."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(layers=4, batches=4)
        self.plain: list[dict[Any, Any]] = [{} for _ in STORES]

    def both(self, store: int) -> tuple[Any, dict[Any, Any]]:
        return self.model.storage()[store], self.plain[store]

    def value(self, store: int, layer: int) -> Any:
        if store < 2:
            return self.model.load_weights(layer, 0, 1 + layer)[store]
        return self.model.get_activation([layer]) if store < 4 else self.model.fake_grad(layer, [layer])

    @rule(store=which, key=keys, layer=st.integers(0, 3))
    def put(self, store: int, key: Any, layer: int) -> None:
        mine, plain = self.both(store)
        mine[key] = plain[key] = self.value(store, layer)

    @rule(store=which, key=keys, other=keys)
    def put_again(self, store: int, key: Any, other: Any) -> None:
        """The same value under another key, or under its own."""
        mine, plain = self.both(store)
        if key in plain:
            mine[other] = plain[other] = mine[key]

    @rule(store=which, key=keys)
    def delete(self, store: int, key: Any) -> None:
        mine, plain = self.both(store)
        if key in plain:
            del mine[key], plain[key]
        else:
            with pytest.raises(AbsentKey):
                del mine[key]

    @rule(store=which, key=keys, default=st.booleans())
    def pop(self, store: int, key: Any, default: bool) -> None:
        mine, plain = self.both(store)
        if default:
            assert mine.pop(key, "none") is plain.pop(key, "none")
        elif key in plain:
            assert mine.pop(key) is plain.pop(key)
        else:
            with pytest.raises(AbsentKey):
                mine.pop(key)

    @precondition(lambda self: any(self.plain))
    @rule(store=which)
    def popitem(self, store: int) -> None:
        mine, plain = self.both(store)
        if plain:
            assert mine.popitem() == plain.popitem()

    @rule(store=which)
    def clear(self, store: int) -> None:
        for one in self.both(store):
            one.clear()

    @rule(store=which, key=keys, layer=st.integers(0, 3))
    def setdefault(self, store: int, key: Any, layer: int) -> None:
        mine, plain = self.both(store)
        value = self.value(store, layer)
        assert mine.setdefault(key, value) is plain.setdefault(key, value)

    @rule(store=which, some=st.dictionaries(keys, st.integers(0, 3), max_size=3), how=st.integers(0, 4))
    def update(self, store: int, some: dict[Any, int], how: int) -> None:
        new = {key: self.value(store, layer) for key, layer in some.items()}
        for one in self.both(store):
            match how:
                case 0:
                    one.update(new)
                case 1:
                    one.update(list(new.items()))
                case 2:
                    one.update(**{str(key): value for key, value in new.items()})
                case 3:
                    one |= new
                case _:
                    one.update(one)

    @rule(store=which, key=keys)
    def refuse(self, store: int, key: Any) -> None:
        for thing in ("weight", None, (self.value(0, 0), self.value(1, 0))):
            with pytest.raises(RuleError):
                self.both(store)[0][key] = thing

    @invariant()
    def they_are_equal(self) -> None:
        stores = self.model.storage()
        assert list(stores) == self.plain
        assert [list(store) for store in stores] == [list(plain) for plain in self.plain]
        assert self.model.memory() == float(sum(v.elements() for plain in self.plain for v in plain.values()))
        by_id = [Counter(self.model.program.id(v) for v in plain.values()) for plain in self.plain]
        assert held(self.model) == by_id


Stores.TestCase.settings = settings(stateful_step_count=25)
TestStores = Stores.TestCase


def test_moves_stand_before_the_next_event() -> None:
    model = Model(layers=2)
    model.weights[0], model.opt_states["state"] = model.load_weights(0)
    inp = model.get_activation([0])
    model.activations[0] = inp
    model.activations[1] = model.forward(0, model.activations.pop(0), model.weights[0])
    model.weights[0], model.opt_states["state"] = model.load_weights(0)
    moves = ", ".join("{} {} {} {:+}".format(*move) for move in model.program.moves)
    assert moves == "1 0 0 +1, 1 1 1 +1, 2 2 2 +1, 2 2 2 -1, 3 2 3 +1, 4 0 0 -1, 4 0 4 +1, 4 1 1 -1, 4 1 5 +1"


@pytest.mark.parametrize(
    ("keys", "held"), [([], "nothing"), ([0], "[0]"), ([0, "whole", (1, 2)], "[0], ['whole'], [1, 2]")]
)
def test_a_key_that_is_not_there_says_what_is(keys: list[Any], held: str) -> None:
    model = Model(rank=2)
    for key in keys:
        model.grad_weights[key] = model.fake_grad(0)
    for ask in (
        lambda: model.grad_weights[3],
        lambda: model.grad_weights.pop(3),
        lambda: model.grad_weights.__delitem__(3),
    ):
        with pytest.raises(AbsentKey) as raised:
            ask()
        assert isinstance(raised.value, KeyError)
        assert str(raised.value).startswith(
            "rank 2: grad_weights[3] is empty\n"
            "  expected: a weight gradient under this key\n"
            f"  got:      the store holds {held}\n"
            "  where:    test_stores.py, line "
        )
        assert raised.value.held == keys
    assert model.grad_weights.get(3) is None
    assert 3 not in model.grad_weights


def test_a_value_made_by_hand_may_be_stored_and_is_told_apart() -> None:
    model = Model(layers=2, batches=2)
    by_hand = Weight(0, 2, 0)
    with pytest.raises(TypeError):
        model.weights[[0]] = model.load_weights(0)[0]
    assert (model.program.moves, model.memory()) == ([], 0)
    model.weights[0] = by_hand
    model.weights[1] = by_hand
    assert model.weights[0] is by_hand
    assert model.memory() == 2 * by_hand.memory()
    assert [event.op for event in model.program.events] == ["load_weights", "foreign"]


def test_stores_are_dictionaries_to_everything_else() -> None:
    model = Model(layers=3)
    for layer in range(3):
        model.weights[layer], _ = model.load_weights(layer)
    plain = dict(model.weights)
    assert isinstance(model.weights, dict)
    assert model.weights == plain
    assert model.weights | {} == plain
    assert copy.copy(model.weights) == plain
    assert copy.deepcopy(model.weights) == plain
    assert pickle.loads(pickle.dumps(model.weights)) == plain
    assert sorted(model.weights) == [0, 1, 2]
    assert list(model.weights.items()) == list(plain.items())
    moves = list(model.program.moves)
    model.weights.copy().clear()
    copy.copy(model.weights).clear()
    assert model.program.moves == moves, "a copy is not a store"


@given(st.integers(1, 20))
def test_a_store_that_changes_without_end_is_stopped(budget: int) -> None:
    def fill(model: Model) -> None:
        weight, _ = model.load_weights(0)
        while True:
            model.weights[0] = weight

    with pytest.raises(BudgetError) as raised:
        simulate(fill, budget=budget)
    assert str(raised.value) == (
        f"rank 0: the stores of one rank changed more than {4 * budget} times\n"
        "  expected: a schedule that ends\n"
        "  got:      a value enters or leaves a store again and again\n"
        f"  where:    test_stores.py, line {fill.__code__.co_firstlineno + 3}, in fill: model.weights[0] = weight\n"
        "  fix:      a loop around this line does not end: what its condition asks for has to change inside it\n"
        "            (for a really large run raise the limit: simulate(..., budget=...))"
    )
    assert raised.value.trace.error == str(raised.value)


def test_a_printed_store_has_a_line_for_each_value() -> None:
    model = Model(layers=2)
    assert repr(model.weights) == "weights is empty"
    model.weights[0], model.opt_states[0] = model.load_weights(0)
    model.weights[1, "full"], _ = model.load_weights(1, 1, 2)
    assert f"{model.weights}" == "weights[0]: weight of layer 0\nweights[1, 'full']: weight of layer 1, shard 1 of 2"
