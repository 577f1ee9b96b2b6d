"""Operators of a grid in parts, beside the truth tables of another model (tests/support/data).

Its operators are plain: without the tanh that our layers begin with. Inputs come of a generator of three lines, and a
tensor is compared by its checksum: its shape, its sum, the sum of its elements times their place, and the largest.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest

from lib import Activation, ActivationGrad, Layer, Mesh, Model, Trace, WeightGrad, simulate
from lib.schedules.mesh_parallel import domain_parallel
from lib.values.dims import RunSet
from tests.replay.hooks import hooked

torch = pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from lib.replay.layers import Held, RealLayer  # noqa: E402
from lib.replay.options import ReplayOptions  # noqa: E402
from lib.replay.rank.kernels import Call  # noqa: E402
from lib.replay.sizes import Sizes  # noqa: E402
from lib.replay.training import InitialNumbers  # noqa: E402

TABLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "support/data/grids.json").read_text())
Tensor = Any
CLOSE = 1e-12


def rnd(seed: int, *shape: int) -> Tensor:
    """The numbers that the tables are of."""
    x, found = (seed * 2654435761 + 12345) % 2**32, list[float]()
    for _ in range(prod(shape)):
        x = (1664525 * x + 1013904223) % 2**32
        found.append(x / 2**31 - 1)
    return torch.tensor(found, dtype=torch.float64).view(shape)


def same(tensor: Tensor, expected: Sequence[Any]) -> None:
    shape, *numbers = expected
    assert [*tensor.shape] == shape
    flat = tensor.flatten()
    places = torch.arange(1, len(flat) + 1, dtype=torch.float64) / len(flat)
    found = [flat.sum().item(), (flat * places).sum().item(), flat.abs().max().item()]
    assert found == pytest.approx(numbers, abs=CLOSE * numbers[-1], rel=0)


def first(x: Tensor) -> Tensor:
    """A grid as the tables have it, features first, in our order, features last; and `last` the other way round."""
    return x.movedim(1, -1)


def last(x: Tensor) -> Tensor:
    return x.movedim(-1, 1)


class Found:
    """What the ranks of a replay have worked out, put together: each tensor by its kind and number."""

    def __init__(self, trace: Trace, data: Tensor, weights: Mapping[int, Tensor], gradient: Tensor) -> None:
        sizes = Sizes.of(trace, ReplayOptions())
        self.trace, self.wholes = trace, dict[tuple[type[Any], int], Tensor]()
        self.parts: list[dict[tuple[type[Any], int], tuple[Tensor, Any]]] = [{} for _ in trace.programs]
        given = {"data": data, "target": gradient}
        usual = InitialNumbers._make  # pyright: ignore[reportPrivateUsage]

        def make(initial: InitialNumbers, kind: str, index: int) -> Tensor:
            if kind in given:
                return given[kind][index].flatten().clone()
            return weights[index].flatten().clone() if kind == "weight" else usual(initial, kind, index)

        def look(rank: int, index: int, event: Any, tensors: dict[int, Any]) -> None:
            program = trace.rebuilt().run.programs[rank]
            for number in program.events[event.arg[0]].outputs if event.op == "wait" else event.outputs:
                value: Any = program.values[number]
                if number not in tensors or not isinstance(value, Activation | ActivationGrad | WeightGrad):
                    continue
                key, elements = (type(value), value.layer), sizes.elements(value)
                if event.op in ("forward", "backward"):
                    self.parts[rank][key] = tensors[number].clone(), value
                if value.place.open:
                    continue
                schema = value.place.schema
                whole = self.wholes.setdefault(
                    key, torch.full([dim.size for dim in schema.spaces[: schema.ndim]], torch.nan, dtype=torch.float64)
                )
                at = torch.cat([torch.arange(*map(int, ends)) for ends in elements.runs or [(0, 0)]])
                before, now = whole.view(-1)[at], tensors[number].flatten()
                assert torch.where(before.isnan(), 0, before - now).abs().max().item() < CLOSE if len(at) else True
                whole.view(-1)[at] = now

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "tanh", lambda x: x)
            patch.setattr(Held, "tanh", lambda x: x.rows)
            patch.setattr(InitialNumbers, "_make", make)
            patch.setattr(RealLayer, "loss", lambda layer, y, target, rows: (y * target).sum())
            patch.setattr(RealLayer, "loss_gradient", lambda layer, y, target, rows: target)
            patch.setattr(Call, "is_used", lambda call, place: True)
            patch.setattr("lib.replay.plan._must_be_a_training_step", lambda trace: None)
            result = hooked(trace, look, transport="local", verify=bool(weights))
        assert result.ok, result.text()

    def whole(self, kind: type[Any], number: int) -> Tensor:
        found = self.wholes[kind, number]
        assert not found.isnan().any(), "some rank has each element of it"
        return found


def ran(layers: list[Layer], batches: int, **sizes: Sequence[int]) -> Trace:
    mesh = Mesh({role: len(each) for role, each in sizes.items()})
    return Trace.of(simulate(domain_parallel(sizes), layers=layers, mesh=mesh, batches=batches))


def as_it_is(features: int, **space: Any) -> Layer:
    """A layer that gives what it takes: nobody gives back the gradient of the data, and of its output everybody."""
    return Layer("pooling", features, features, **space, kernel=1)


@pytest.mark.parametrize("row", TABLES["conv"], ids=lambda row: f"{row['sizes']} {row['kernel']} {row['cols']}")
def test_a_convolution(row: dict[str, Any]) -> None:
    (inputs, outputs), sizes, kernel, seed = row["channels"], row["sizes"], row["kernel"], row["seed"]
    space: dict[str, Any] = {"rows": sum(sizes), **({"columns": row["cols"]} if row["cols"] else {})}
    how = {name: row[name] for name in ("kernel", "stride", "padding", "dilation")}
    layers = [as_it_is(inputs, **space), Layer("convolution", inputs, outputs, **space, **how)]
    weight = rnd(seed + 1, outputs, inputs, *[kernel] * len(space))
    trace = ran(layers, row["batches"], rows=sizes)
    gradient = rnd(seed + 2, *row["y"][0])
    data = rnd(seed, row["batches"], inputs, *space.values())
    found = Found(trace, first(data), {1: weight.transpose(0, 1)}, first(gradient))
    dx = last(found.whole(ActivationGrad, 0))
    same(last(found.whole(Activation, 2)), row["y"])
    same(dx, row["dx"])
    same(found.whole(WeightGrad, 1).transpose(0, 1).reshape(weight.shape), row["dw"])
    ends = [*pairwise([0, *accumulate(sizes)])]
    for rank, (program, (low, high)) in enumerate(zip(trace.rebuilt().run.programs, ends, strict=True)):
        forward = [event for event in program.events if event.op == "forward"][-1]
        x, y = (program.values_of(numbers)[0].place.named["rows"] for numbers in (forward.inputs, forward.outputs))
        assert len(y.pieces) >= row["outputs"][rank]
        assert RunSet.of(x.pieces).runs == (tuple(row["needs"][rank]),)
        back = [event for event in program.events if event.op == "halo"][-1]
        given = [len(value.place.named["rows"].pieces) for value in program.values_of(back.inputs)]
        assert [*filter(None, given)] == [*filter(None, row["gradient_rows_given_back"][rank])]
        tensor, value = found.parts[rank][ActivationGrad, 0]
        here, most = [*value.place.named["rows"].pieces], 0.0
        mine = last(tensor.view(row["batches"], len(here), *[*space.values()][1:], inputs))
        for number in range(low, high):
            most = max(most, (mine[:, :, here.index(number)] - dx[:, :, number]).abs().max().item())
        assert most == pytest.approx(row["without_give_back_a_rank_is_wrong_by"][rank], abs=CLOSE)


def test_corners_of_a_grid() -> None:
    (row,) = TABLES["conv_corners"]
    rows, columns, n, kernel, seed = (row[name] for name in ("rows", "cols", "channels", "kernel", "seed"))
    space: dict[str, Any] = {"rows": sum(rows), "columns": sum(columns)}
    layers = [as_it_is(n, **space), Layer("convolution", n, n, **space, kernel=kernel, padding=kernel // 2)]
    data, gradient = (first(rnd(seed + more, 1, n, *space.values())) for more in (0, 2))
    weight = rnd(seed + 1, n, n, kernel, kernel).transpose(0, 1)
    found = Found(ran(layers, 1, rows=rows, columns=columns), data, {1: weight}, gradient)
    same(last(found.whole(Activation, 2)), row["y"])
    same(last(found.whole(ActivationGrad, 0)), row["dx"])


@pytest.mark.parametrize("row", TABLES["neighborhood"], ids=lambda row: str(row["sizes"]))
def test_attention_to_windows(row: dict[str, Any]) -> None:
    """Queries, keys and values are features side by side, of which two linear layers choose theirs. Where half a window
    of a neighbour is too little for the first rank, here it gets more."""
    sizes, heads, dim, seed = row["sizes"], row["heads"], row["dim"], row["seed"]
    rows, wide = sum(sizes), heads * dim
    q, k, v, gradient = (rnd(seed + i, row["batches"], heads, rows, dim).transpose(1, 2) for i in range(4))
    data = torch.cat([q.flatten(2), torch.stack([k, v], 3).flatten(2)], 2)
    layers = [
        Layer("linear", 3 * wide, wide, rows),
        Layer("linear", 3 * wide, 2 * wide, rows, of=(0,)),
        Layer("neighborhood_attention", wide, wide, rows, heads=heads, kv_heads=heads, kernel=row["kernel"], of=(1, 2)),
    ]
    chosen = torch.eye(3 * wide, dtype=torch.float64)
    found = Found(ran(layers, row["batches"], rows=sizes), data, {0: chosen[:, :wide], 1: chosen[:, wide:]}, gradient)

    def by_head(tensor: Tensor) -> Tensor:
        return tensor.unflatten(-1, (heads, dim)).transpose(1, 2)

    same(by_head(found.whole(Activation, 3)), row["y"])
    same(by_head(found.whole(ActivationGrad, 0)), row["dq"])
    for half, name in enumerate(("dk", "dv")):
        both = found.whole(ActivationGrad, 1).unflatten(-1, (heads, 2, dim))
        same(both[..., half, :].transpose(1, 2), row[name])


def test_a_group_norm() -> None:
    """Its gain and shift are none of our layer's: the gradient comes with the gain, and the output gets both."""
    (row,) = TABLES["group_norm"]
    n, batches, seed, rows = row["channels"], row["batches"], row["seed"], sum(row["sizes"])
    x = rnd(seed, batches, n, rows) + torch.linspace(0, row["ramp"], rows, dtype=torch.float64)
    gain, shift = (rnd(seed + more, n)[:, None] for more in (1, 2))
    gradient = rnd(seed + 3, batches, n, rows)
    layers = [
        as_it_is(n, rows=rows),
        Layer("moments", n, 2 * row["groups"], rows),
        Layer("group_norm", n, n, rows, of=(1, 2)),
    ]
    found = Found(ran(layers, batches, rows=row["sizes"]), first(x), {}, first(gradient * gain))
    y, moments = last(found.whole(Activation, 3)), found.whole(Activation, 2)[:, 0]
    same(y * gain + shift, row["y"])
    same((gradient * y).sum((0, 2)), row["dweight"])
    dx = last(found.whole(ActivationGrad, 0))
    assert dx.sum().item() == pytest.approx(0, abs=CLOSE)
    same(dx, [row["dx"][0], dx.sum().item(), *row["dx"][2:]])
    mean, squares = moments[:, 0::2], moments[:, 1::2]
    assert mean.tolist() == [pytest.approx(one, abs=CLOSE) for one in row["mean"]]
    assert (squares - mean**2).tolist() == [pytest.approx(one, abs=CLOSE) for one in row["var"]]


def test_a_mean_of_squares() -> None:
    (row,) = TABLES["mean"]
    sizes, n = row["sizes"], row["features"]
    x = rnd(row["seed"], 1, sum(sizes), n)
    layers = [as_it_is(n, rows=sum(sizes)), Layer("moments", n, 2, sum(sizes))]
    gradient = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    found = Found(ran(layers, 1, rows=sizes), x, {}, gradient)
    assert found.whole(Activation, 2).flatten()[1].item() == pytest.approx(row["mean"], abs=CLOSE)
    same(found.whole(ActivationGrad, 0)[0], row["dx"])


def test_rows_become_columns() -> None:
    (row,) = TABLES["redistribute"]
    ends = {dim: [0, *accumulate(row[dim])] for dim in ("rows", "cols")}
    space = {"rows": ends["rows"][-1], "columns": ends["cols"][-1]}

    async def step(model: Model) -> None:
        own = ends["rows"][model.rank], ends["rows"][model.rank + 1]
        x = model.forward(0, model.get_activation([0]).cut("rows", *own))
        first, *others = await model.alltoall([x.cut("columns", *both) for both in pairwise(ends["cols"])], 1)
        for other in others:
            first = first.combine(other)
        model.forward(1, first)

    layers = [as_it_is(row["features"], **space)] * 2
    trace = Trace.of(simulate(step, layers=layers, ranks=len(row["rows"]), batches=1))
    for rank, program in enumerate(trace.rebuilt().run.programs):
        (swap,) = [event for event in program.events if event.op == "alltoall"]
        assert [one.elements() for one in program.values_of(swap.inputs)] == row["sent"][rank]
    data = rnd(row["seed"], 1, *space.values(), row["features"])
    found = Found(trace, data, {}, data)
    for rank, expected in enumerate(row["members"]):
        tensor, _ = found.parts[rank][Activation, 2]
        same(tensor.view(expected[0]), expected)
