"""Grids in parts, with real tensors, beside torch's own functions in one process: every value that is done is its part
of the whole, forward and backward, to 1e-12."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from lib import Layer, Mesh, Model, Trace, simulate
from lib.schedules.mesh_parallel import domain_parallel
from tests.support.profiles import sample
from tests.support.puzzles import in_parts, with_rows
from tests.values.test_averages import net, norm, parts

pytest.importorskip("torch", reason="a replay needs torch: pip install torch")

from tests.replay.test_inside import CLOSE, right, values_compared


def agrees(trace: Trace, transport: str = "local") -> None:
    """Whether a step with real tensors is that of one process in each value, memory and bytes as simulated."""
    result, count = values_compared(trace, transport=transport, timeout=120)
    right(result)
    assert max(error.relative for error in result.errors) <= CLOSE
    assert count > (10 * trace.ranks if transport == "local" else -1)


def line(rows: int) -> dict[str, list[Layer]]:
    def layer(kind: str, inputs: int, outputs: int, by: int = 1, **more: Any) -> Layer:
        return Layer(kind, inputs, outputs, rows // by, **more)

    return {
        "rows": [
            layer("convolution", 2, 3, kernel=5, padding=2),
            layer("convolution", 3, 2, kernel=4, stride=2, padding=1),
            layer("transposed_convolution", 2, 3, 2, kernel=4, stride=2, padding=1),
            layer("pooling", 3, 3, kernel=3, stride=2),
        ],
        "norms of rows": [
            layer("convolution", 2, 4, kernel=3, dilation=2, padding=2),
            layer("moments", 4, 4),
            layer("group_norm", 4, 4, of=(1, 2)),
            layer("layer_norm", 4, 4),
            layer("mean", 4, 4),
        ],
        "windows of rows": [
            layer("linear", 2, 4),
            layer("linear", 2, 8, of=(0,)),
            layer("neighborhood_attention", 4, 4, heads=2, kv_heads=2, kernel=5, of=(1, 2)),
        ],
    }


def sheet(rows: int, columns: int) -> dict[str, list[Layer]]:
    wide: dict[str, Any] = {"rows": rows, "columns": columns}
    low: dict[str, Any] = {"rows": rows // 2, "columns": columns // 2}
    return {
        "a grid": [
            Layer("convolution", 2, 3, **wide, kernel=3, stride=2, padding=1),
            Layer("convolution", 3, 3, **low, kernel=3, dilation=2, padding=2),
            Layer("transposed_convolution", 3, 4, **low, kernel=4, stride=2, padding=1),
            Layer("cross_entropy", 4, 1, **wide),
        ],
        "norms of a grid": [
            Layer("pooling", 4, 4, **wide, kernel=2, stride=2),
            Layer("moments", 4, 4, **low),
            Layer("group_norm", 4, 4, **low, of=(1, 2)),
            Layer("norm", 4, 4, **low),
            Layer("add", 4, 4, **low, of=(4, 1)),
            Layer("mean", 4, 4, **low),
            Layer("linear", 4, 3, 1, columns=1),
        ],
        "windows of a grid": [
            Layer("convolution", 2, 4, **wide, kernel=2, stride=2),
            Layer("neighborhood_attention", 4, 4, **low, heads=2, kernel=3),
        ],
    }


def cube(rows: int, columns: int, planes: int) -> dict[str, list[Layer]]:
    wide: dict[str, Any] = {"rows": rows, "columns": columns, "planes": planes}
    low: dict[str, Any] = {role: size // 2 for role, size in wide.items()}
    return {
        "three dims": [
            Layer("convolution", 2, 3, **wide, kernel=3, padding=1),
            Layer("convolution", 3, 2, **wide, kernel=2, stride=2),
            Layer("transposed_convolution", 2, 2, **low, kernel=2, stride=2),
            Layer("pooling", 2, 2, **wide, kernel=2, stride=2),
        ],
        "windows of three dims": [
            Layer("norm", 2, 2, **wide),
            Layer("neighborhood_attention", 2, 2, **wide, heads=1, kernel=3),
        ],
    }


Domain = dict[str, Sequence[int]]
LINE, SHEET, CUBE = line(64), sheet(24, 16), cube(4, 6, 4)
EVEN_AND_NOT: list[tuple[dict[str, list[Layer]], list[Domain]]] = [
    (
        LINE,
        [
            *({"rows": [64 // ranks] * ranks} for ranks in (4, 8, 16)),
            *({"rows": [3, 5] * (ranks // 4) + [256 // ranks - 12, 4] * (ranks // 4)} for ranks in (4, 8, 16)),
            *({"rows": [*[64 // ranks] * (ranks - 2), 0, 128 // ranks]} for ranks in (4, 8, 16)),
        ],
    ),
    (
        SHEET,
        [
            {"rows": [12, 12], "columns": [8, 8]},
            {"rows": [6] * 4, "columns": [8, 8]},
            {"rows": [6] * 4, "columns": [4] * 4},
            {"rows": [4, 10, 4, 6]},
            {"rows": [10, 14], "columns": [4, 4, 4, 4]},
            {"rows": [4, 6, 8, 6], "columns": [6, 4, 6]},
            {"rows": [10, 0, 14], "columns": [10, 6]},
            {"columns": [4, 6, 0, 6]},
        ],
    ),
    (CUBE, [{"rows": [2, 2], "columns": [2, 4], "planes": [2, 2]}, {"rows": [2, 0, 2]}, {"planes": [2, 2]}]),
]
EVERY = [
    pytest.param(nets[name], domain, id=f"{name} {[*domain.values()]}")
    for nets, domains in EVEN_AND_NOT
    for name, domain in product(nets, domains)
]


def run(layers: list[Layer], domain: Domain) -> Trace:
    mesh = Mesh({role: len(sizes) for role, sizes in domain.items()})
    return Trace.of(simulate(domain_parallel(domain), layers=layers, mesh=mesh, batches=2))


@pytest.mark.parametrize(("layers", "domain"), sample(EVERY))
def test_a_network_in_parts_is_that_of_one_process(layers: list[Layer], domain: Domain) -> None:
    agrees(run(layers, domain))


def test_edges_travel_between_processes() -> None:
    agrees(run(SHEET["a grid"], {"rows": [14, 10], "columns": [4, 12]}), "gloo")


@pytest.mark.parametrize("name", ["", "gathered"])
def test_other_steps_with_the_same_edges(name: str) -> None:
    """Edges travel behind the inner rows; or gradients of the output are gathered, and nothing goes home."""
    agrees(in_parts("halo_conv", name, {"sizes": [16, 17, 15, 16]}, 2), "gloo")


@pytest.mark.parametrize("sizes", [[4, 8, 12, 16], [3, 3, 3, 0]])
@pytest.mark.parametrize("mean", ["", "mean of means"])
def test_a_group_norm_and_a_weighted_mean(sizes: list[int], mean: str) -> None:
    sizes = [6] * len(sizes) if mean else sizes
    agrees(Trace.of(simulate(norm(sizes, mean), layers=net(sum(sizes)), ranks=len(sizes), batches=2)))


@pytest.mark.parametrize(("rows", "columns"), [([8] * 4, [16] * 4), ([4, 0, 28], [31, 32, 1])])
@pytest.mark.parametrize("transport", ["local", "gloo"])
def test_rows_become_columns(rows: list[int], columns: list[int], transport: str) -> None:
    parts = {"rows": rows, "columns": columns}
    agrees(in_parts("redistribute", "await_all", parts, 2, layers=with_rows("redistribute", 32)), transport)


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [3, 3, 3, 0], [1, 0, 2, 6, 3, 0, 1, 4]])
def test_what_one_rank_has_read_is_handed_out_and_collected(sizes: list[int]) -> None:
    """The first rank alone has data, target and loss: rows are scattered and gathered, and so are their gradients."""

    async def step(model: Model) -> None:
        rank, others = model.rank, range(1, model.RANKS)

        async def scatter(value: Any) -> Any:
            if rank:
                return await model.receive(0)
            every = parts(value, sizes)
            for other in others:
                await model.pass_to(other, every[other])
            return every[0]

        async def gather(value: Any) -> Any:
            if rank:
                return await model.pass_to(0, value)
            for other in others:
                value = value.combine(await model.receive(other))
            return value

        weight, state = model.load_weights(0)
        x = await scatter(None if rank else model.get_activation(range(model.BATCHES)))
        y = await gather(model.forward(0, x, weight))
        dw, g = model.backward(0, x, await scatter(None if rank else model.loss(y)), weight)
        whole = await gather(g)
        assert rank or whole.place.complete
        model.set_final_weight(0, model.update(0, await model.allreduce(dw, 0), weight, state)[0])

    layers = [Layer("convolution", 3, 4, sum(sizes), columns=3, kernel=1)]
    trace = Trace.of(simulate(step, layers=layers, ranks=len(sizes), batches=2))
    result, count = values_compared(trace)
    right(result)
    assert count > 4 * len(sizes)
