"""Random programs of one rank: whatever the rules accept has to be right, in numbers.

`python -m tests.values.fuzz 100000` plays so many of them.
"""

import random
import sys
from collections import Counter
from typing import Any

from lib import Activation, ActivationGrad, Dist, Model, PuzzleError, Weight, WeightGrad, route_by_loads
from lib.values.layers import Layer
from lib.values.placement import Part
from lib.values.values import Value
from tests.values.numbers import play

__all__ = ["NETS", "fuzzed", "program"]

ROWS = 12
NETS: dict[str, list[Layer]] = {
    "mlp": [Layer("linear", 4, 8, ROWS), Layer("linear", 8, 4, ROWS)],
    "norm": [Layer("norm", 4, 4, ROWS), Layer("linear", 4, 8, ROWS), Layer("linear", 8, 4, ROWS)],
    "norms": [Layer("norm", 4, 4, ROWS), Layer("layer_norm", 4, 4, ROWS)],
    "attention": [Layer("linear", 4, 4, ROWS), Layer("attention", 4, 4, ROWS, heads=2), Layer("linear", 4, 4, ROWS)],
    "grouped": [
        Layer("linear", 4, 8, ROWS),
        Layer("linear", 4, 8, ROWS, of=(0,)),
        Layer("attention", 8, 8, ROWS, heads=4, kv_heads=2, of=(1, 2)),
        Layer("linear", 8, 4, ROWS),
    ],
    "residual": [Layer("norm", 4, 4, ROWS), Layer("linear", 4, 4, ROWS), Layer("add", 4, 4, ROWS, of=(2, 0))],
    "vocabulary": [Layer("embedding", 12, 4, ROWS), Layer("linear", 4, 12, ROWS), Layer("cross_entropy", 12, 1, ROWS)],
    "experts": [
        Layer("linear", 4, 4, ROWS),
        Layer("dispatch", 4, 4, ROWS, experts=4, route=route_by_loads([5, 4, 2, 1], top=2), capacity=3, groups=(4, 8)),
        Layer("experts", 4, 8, ROWS, experts=4),
        Layer("experts", 8, 4, ROWS, experts=4),
        Layer("combine", 4, 4, ROWS),
    ],
    "convolution": [
        Layer("convolution", 4, 6, ROWS, kernel=3, padding=1),
        Layer("convolution", 6, 4, ROWS, kernel=4, stride=2, dilation=2, padding=1),
        Layer("linear", 4, 4, 4),
    ],
    "grid": [
        Layer("convolution", 3, 4, 6, columns=4, kernel=3, padding=1),
        Layer("pooling", 4, 4, 6, columns=4, kernel=2, stride=2),
        Layer("transposed_convolution", 4, 4, 3, columns=2, kernel=3, stride=2, padding=1),
        Layer("transform", 4, 4, 5, columns=3, along="columns"),
    ],
    "neighborhood": [
        Layer("linear", 4, 8, ROWS),
        Layer("linear", 4, 8, ROWS, of=(0,)),
        Layer("neighborhood_attention", 8, 8, ROWS, heads=4, kv_heads=2, kernel=3, of=(1, 2)),
    ],
    "window": [
        Layer("linear", 4, 4, 5, columns=4),
        Layer("neighborhood_attention", 4, 4, 5, columns=4, heads=2, kernel=3),
    ],
    "group norm": [
        Layer("linear", 4, 4, 4, columns=3),
        Layer("moments", 4, 4, 4, columns=3),
        Layer("group_norm", 4, 4, 4, columns=3, of=(1, 2)),
        Layer("mean", 4, 4, 4, columns=3),
        Layer("linear", 4, 3, 1, columns=1),
    ],
}
OPERANDS: dict[str, Any] = {"weight": Weight, "activation": Activation}
OFTEN = {"load": 2, "data": 1, "shard": 2, "cut": 2, "add": 6, "combine": 4, "loss": 2, "forward": 5, "backward": 12}
MOVES = [move for move, times in OFTEN.items() for _ in range(times)]


def _shared(value: Value, parts: dict[str, Part]) -> int:
    """How many of its dims are cut as these are; features, which layers change, count always."""
    mine = value.place.named
    return sum(role == "features" or role not in mine or mine[role].alike(part) for role, part in parts.items())


class _Fuzz:
    def __init__(self, net: str, seed: int) -> None:
        self.random = random.Random(f"{net} {seed}")
        layers = NETS[net]
        self.grid = layers[0].columns > 0
        dist = Dist(1)
        dist.descriptions = layers
        dist.until = (-1, -1)  # as if another rank had failed before: of what is refused no text is written
        self.model = Model(0, dist, len(layers), 2)
        self.pool: list[Value] = [self.model.get_activation(self.some())]
        self.done: Counter[str] = Counter()

    def some(self) -> list[int]:
        return self.random.sample([0, 1], self.random.randint(1, 2))

    def pick(self, *kinds: type[Value], layer: int | None = None, like: Value | None = None) -> Any:
        """A value of one of these kinds, of those that were made last; or mostly one that is cut as another one is."""
        found = [value for value in self.pool if type(value) in kinds and layer in (None, value.layer)]
        if like is not None and self.random.random() < 0.8:
            parts = like.place.named
            found = [value for value in found if _shared(value, parts) == len(parts)] or found
        return self.random.choice(found[-12:]) if found else None

    def step(self, move: str) -> Any:
        """What one operation gives; None where nothing is there for it."""
        chance, model = self.random, self.model
        shape = model.shape
        if move == "load":
            total, layer = chance.choice([1, 1, 2]), chance.randrange(model.LAYERS)
            return model.load_weights(layer, chance.randrange(total), total, dim=chance.choice(["in", "out"]))[0]
        if move == "data":
            return model.get_activation(self.some())
        if move == "shard":
            value = self.pick(Activation, ActivationGrad, WeightGrad, Weight)
            dims = ["rows", "features", "batch", "in", "out", "columns" if self.grid else "experts", "taps"]
            dim, total = chance.choice(dims), chance.choice([2, 2, 3, 4])
            return tuple(model.shard(value, dim, i, total) for i in range(total))
        if move == "cut":
            ends = sorted(chance.sample(range(ROWS + 1), 2))
            value = self.pick(Activation, ActivationGrad)
            dim = "columns" if self.grid and chance.random() < 0.5 else "rows"
            size = value.place.part(dim).dim.size
            return value.cut(dim, *[end * size // ROWS for end in ends])
        if move in ("add", "combine"):
            return self.together(move)
        if move == "loss":
            value = self.pick(Activation, layer=model.LAYERS)
            return None if value is None else model.loss(value)
        one = self.pick(Activation if move == "forward" else ActivationGrad)
        if one is None:
            return None
        near = range(model.LAYERS) if move == "forward" else [one.layer]
        layer = chance.choice(near)
        if not 0 <= layer < model.LAYERS:
            return None
        kind, of = shape.kinds[layer], shape.of(layer)
        x = self.pick(Activation, layer=of[0], like=one if move == "backward" else None)
        given = [] if not kind.takes else [self.pick(OPERANDS[kind.takes], layer=of[1] if of[1:] else layer)]
        if x is None or None in given:
            return None
        if move == "forward":
            return model.forward(layer, x, *given)
        if kind.takes == "weight" and chance.random() < 0.2:
            return model.backward_weight(layer, x, one)
        return model.backward(layer, x if kind.keeps or chance.random() < 0.5 else None, one, *given)

    def together(self, move: str) -> Any:
        one = self.pick(Activation, ActivationGrad, WeightGrad)
        if move == "add":
            one = self.random.choice([value for value in self.pool if value.place.open] or [one])
        found = [value for value in self.pool if type(value) is type(one) and value.layer == one.layer]
        if move == "add":
            found = [value for value in found if value.place.dims == one.place.dims and value.place is not one.place]
        else:
            found = [value for value in found if value.place.dims != one.place.dims]
        if not found:
            return None
        other = self.random.choice(found)
        return one + other if move == "add" else one.combine(other)


def fuzzed(net: str, seed: int, steps: int = 90) -> _Fuzz:
    fuzz = _Fuzz(net, seed)
    for _ in range(6 * steps):
        if len(fuzz.model.program.events) > steps:
            break
        move = fuzz.random.choice(MOVES)
        try:
            made = fuzz.step(move)
        except PuzzleError:
            continue
        if made is not None:
            fuzz.pool += made if isinstance(made, tuple) else [made]
            fuzz.done[move] += 1
    return fuzz


def program(net: str, seed: int, steps: int = 90) -> tuple[Counter[str], int, int]:
    """Plays a random program: which operations were accepted, values compared, and done gradients."""
    fuzz = fuzzed(net, seed, steps)
    gradients = [value for value in fuzz.pool if isinstance(value, ActivationGrad | WeightGrad)]
    return fuzz.done, play(fuzz.model.trace), sum(not value.place.open for value in gradients)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seen, every = Counter[str](), Counter[str]()
    for number in range(first, first + count):
        net = list(NETS)[number % len(NETS)]
        try:
            accepted, compared, gradients = program(net, number)
        except AssertionError as error:
            print("WRONG", net, number, str(error)[:200], flush=True)
            seen["wrong"] += 1
            continue
        every += accepted
        seen.update(programs=1, compared=compared, gradients=gradients)
        if number % 1000 == 999:
            print(number + 1, dict(seen), dict(every), flush=True)
    print(dict(seen), dict(every))
