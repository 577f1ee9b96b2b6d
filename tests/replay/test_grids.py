"""Grids in parts, with real tensors, beside torch's own functions in one process."""

from typing import Any

import pytest

from lib import Layer, Model, Trace, simulate
from lib.replay import replay
from tests.values.test_averages import net, norm
from tests.values.test_grids import attending, corners, redistributed, same, spectral, windows

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")


def agrees(function: Any, layers: list[Layer], ranks: int, transport: str = "local") -> None:
    """Whether a step with real tensors is that of one process, and sends what the simulator says."""
    schedule = Trace.of(simulate(function, layers=layers, ranks=ranks, batches=2))
    result = replay(schedule, transport=transport, dtype="float64")
    assert result.ok, result.text()
    assert [one.sent for one in result.ranks] == [one.simulated_sent for one in result.ranks]


TILES = {
    "even": ([4, 4], [3, 3]),
    "uneven": ([5, 3], [2, 6]),
    "of eight": ([2, 3, 2, 4], [4, 3]),
    "of sixteen": ([2, 3, 2, 4], [3, 2, 2, 2]),
}


@pytest.mark.parametrize("name", TILES)
def test_convolutions_of_tiles_are_those_of_the_grid(name: str) -> None:
    rows, columns = TILES[name]
    agrees(corners(rows, columns), same(rows, columns), len(rows) * len(columns))


def test_tiles_travel_between_processes() -> None:
    agrees(corners(*TILES["uneven"]), same(*TILES["uneven"]), 4, "gloo")


@pytest.mark.parametrize("sizes", [[4, 8, 12, 16], [5, 5, 5, 5], [3, 3, 3, 0], [2, 3] * 4])
@pytest.mark.parametrize("mean", ["", "mean of means"])
def test_a_group_norm_and_a_weighted_mean(sizes: list[int], mean: str) -> None:
    if mean and len(set(sizes)) > 1:
        sizes = [6] * len(sizes)
    agrees(norm(sizes, mean), net(sum(sizes)), len(sizes), "gloo" if sizes[0] == 4 else "local")


@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [4, 3, 3, 4], [12, 3, 5, 4], [5] * 8])
def test_windows_of_neighbours_are_those_of_a_loop_over_all_points(sizes: list[int]) -> None:
    agrees(windows(sizes), attending(sum(sizes)), len(sizes))


@pytest.mark.parametrize(("rows", "columns"), [([4] * 4, [4] * 4), ([1, 2, 5, 3], [4, 1, 2, 2]), ([4, 0], [3, 2])])
def test_rows_become_columns(rows: list[int], columns: list[int]) -> None:
    agrees(redistributed(rows, columns), spectral(sum(rows), sum(columns)), len(rows), "gloo")


SIZES: dict[str, Any] = {"rows": 6, "columns": 4, "planes": 5}
NETS: dict[str, list[Layer]] = {
    "three dims": [Layer("convolution", 2, 3, **SIZES, kernel=3, padding=1)] * 1
    + [Layer("convolution", 3, 2, **SIZES, kernel=2, stride=2)],
    "transposed": [
        Layer("transposed_convolution", 3, 2, 6, columns=4, kernel=4, stride=2, padding=1),
        Layer("linear", 2, 2, 12, columns=8),
    ],
    "transposed rows": [Layer("transposed_convolution", 3, 2, 6, kernel=2, stride=2)],
    "transposed in three dims": [Layer("transposed_convolution", 3, 2, 6, columns=2, planes=3, kernel=3, stride=2)],
    "pooled": [
        Layer("convolution", 2, 3, 8, columns=6, kernel=3, padding=1),
        Layer("pooling", 3, 3, 8, columns=6, kernel=2, stride=2),
        Layer("linear", 3, 2, 4, columns=3),
    ],
    "pooled rows that overlap": [Layer("linear", 2, 2, 7), Layer("pooling", 2, 2, 7, kernel=3, stride=2)],
    "pooled in three dims": [Layer("linear", 2, 2, **SIZES), Layer("pooling", 2, 2, **SIZES, kernel=2)],
    "per pixel": [
        Layer("convolution", 2, 5, 6, columns=4, kernel=3, padding=1),
        Layer("cross_entropy", 5, 1, 6, columns=4),
    ],
    "windows": [
        Layer("linear", 4, 4, 6, columns=5),
        Layer("neighborhood_attention", 4, 4, 6, columns=5, heads=2, kernel=3),
    ],
    "windows in three dims": [
        Layer("linear", 4, 4, **SIZES),
        Layer("neighborhood_attention", 4, 4, **SIZES, heads=2, kernel=3),
    ],
    "norm of a grid": [
        Layer("convolution", 2, 4, 6, columns=4, kernel=3, padding=1),
        Layer("moments", 4, 4, 6, columns=4),
        Layer("group_norm", 4, 4, 6, columns=4, of=(1, 2)),
        Layer("norm", 4, 4, 6, columns=4),
    ],
}


def step(cut: str) -> Any:
    """A step in which each rank has all of the grid before a layer, and works on a part of what this gives: of rows, or
    of columns."""

    async def function(model: Model) -> None:
        x: dict[int, Any] = {0: model.get_activation(range(model.BATCHES))}
        g: dict[int, Any] = {}
        shape = model.shape
        for layer, kind in enumerate(shape.kinds):
            if kind.weight is not None:
                model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            of = [x[one] for one in shape.of(layer)]
            beside = [model.weights[layer]] if kind.weight is not None else of[1:]
            y = model.forward(layer, of[0], *beside)
            size = y.place.named[cut].dim.size if cut in y.place.named else 1
            if size > 1:  # as if the others had worked out the rest
                y = await model.allgather(
                    y.cut(cut, *[rank * size // 2 for rank in (model.rank, model.rank + 1)]), layer
                )
            x[layer + 1] = y
        g[model.LAYERS] = model.loss(x[model.LAYERS])
        for layer in reversed(range(model.LAYERS)):
            kind, of = shape.kinds[layer], shape.of(layer)
            beside = [model.weights[layer]] if kind.weight is not None else [x[one] for one in of[1:]]
            found = model.backward(layer, x[of[0]], g.pop(layer + 1), *beside)
            pairs = [(of[0], found)] if not kind.takes else [(of[0], found[1]), (of[-1], found[0])]
            if kind.weight is not None:
                model.set_final_weight(
                    layer, model.update(layer, found[0], model.weights[layer], model.opt_states[layer])[0]
                )
                pairs = pairs[:1]
            for number, one in pairs:
                g[number] = g[number] + one if number in g else one

    return function


@pytest.mark.parametrize("cut", ["rows", "columns"])
@pytest.mark.parametrize("name", NETS)
def test_each_kind_of_a_grid_is_what_torch_says(name: str, cut: str) -> None:
    agrees(step(cut), NETS[name], 2)
