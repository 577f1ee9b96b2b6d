"""Domain parallel by itself: any network of a grid, on any mesh, with parts of any sizes."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from lib import Layer, Mesh, PuzzleError, Trace, check, simulate
from lib.replay import replay
from lib.schedules.mesh_parallel import domain_parallel
from lib.values.layers import Shape
from tests.support.profiles import THOROUGH
from tests.values.numbers import play


def unet(rows: int, columns: int, features: int = 4) -> list[Layer]:
    """A small U-Net: down by a pooling, up by a transposed convolution, beside them a skip connection."""
    wide: dict[str, Any] = {"rows": rows, "columns": columns}
    low: dict[str, Any] = {"rows": rows // 2, "columns": columns // 2}
    return [
        Layer("convolution", 3, features, **wide, kernel=3, padding=1),
        Layer("moments", features, 4, **wide),
        Layer("group_norm", features, features, **wide, of=(1, 2)),
        Layer("pooling", features, features, **wide, kernel=2, stride=2),
        Layer("convolution", features, features, **low, kernel=3, padding=2, dilation=2),
        Layer("transposed_convolution", features, features, **low, kernel=4, stride=2, padding=1),
        Layer("add", features, features, **wide, of=(6, 3)),
        Layer("convolution", features, 5, **wide, kernel=3, padding=1),
        Layer("cross_entropy", 5, 1, **wide),
    ]


def vit(rows: int, columns: int, features: int = 4) -> list[Layer]:
    """Patches of 2 x 2, attention to windows with a residual connection, and a mean over all of them."""
    patches: dict[str, Any] = {"rows": rows // 2, "columns": columns // 2}
    return [
        Layer("convolution", 3, features, rows, columns=columns, kernel=2, stride=2),
        Layer("norm", features, features, **patches),
        Layer("linear", features, features, **patches),
        Layer("linear", features, 2 * features, **patches, of=(2,)),
        Layer("neighborhood_attention", features, features, **patches, heads=2, kv_heads=2, kernel=3, of=(3, 4)),
        Layer("add", features, features, **patches, of=(5, 1)),
        Layer("mean", features, features, **patches),
        Layer("linear", features, 3, 1, columns=1),
    ]


def cube(rows: int, columns: int) -> list[Layer]:
    """Convolutions in three dims, one of which makes the grid smaller."""
    sizes: dict[str, Any] = {"columns": columns // 2, "planes": 6}
    return [
        Layer("convolution", 2, 3, rows // 2, **sizes, kernel=3, padding=1),
        Layer("convolution", 3, 2, rows // 2, **sizes, kernel=2, stride=2),
    ]


MESHES: list[Any] = [
    ({"rows": 2, "columns": 2}, {}),
    ({"rows": 4}, {}),
    ({"columns": 3}, {"columns": [4, 8, 4]}),
    ({"data": 2, "rows": 2, "columns": 2}, {"rows": [10, 6]}),
    pytest.param({"rows": 4, "columns": 4}, {}, marks=pytest.mark.thorough),
    ({"data": 2}, {}),
]


@pytest.mark.parametrize("net", [unet, vit])
@pytest.mark.parametrize(("axes", "parts"), MESHES)
def test_a_network_is_right_on_any_mesh(net: Any, axes: dict[str, int], parts: dict[str, Sequence[int]]) -> None:
    models = simulate(domain_parallel(parts), layers=net(16, 16), mesh=Mesh(axes), batches=2)
    assert check(models).correct
    assert play(models[0].trace) > 20


@pytest.mark.parametrize("net", [unet, vit])
def test_with_real_tensors_it_is_the_step_of_one_process(net: Any) -> None:
    """Over data and domain; in parts of other sizes: tests/replay/test_grids.py."""
    pytest.importorskip("torch", reason="a replay needs torch: pip install torch")
    axes, parts = MESHES[3]
    models = simulate(domain_parallel(parts), layers=net(16, 16), mesh=Mesh(axes), batches=2)
    result = replay(Trace.of(models), transport="local", dtype="float64")
    assert result.ok, result.text()


@pytest.mark.parametrize("axes", [{"rows": 2, "columns": 2, "planes": 2}, {"planes": 3}])
def test_a_cube_is_cut_along_each_of_its_dims(axes: dict[str, int]) -> None:
    assert play(simulate(domain_parallel(), layers=cube(8, 8), mesh=Mesh(axes), batches=2)[0].trace) > 20


def net_of_chance(draw: Random, space: dict[str, Any]) -> list[Layer]:
    """A few layers of a grid, one after the other, those that make sense of a size."""
    layers = [Layer("norm", 2, 2, **space)]
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(
            [*["convolution", "transposed_convolution", "pooling"] * 3, "neighborhood_attention", "moments"]
        )
        how: dict[str, Any] = {"kernel": draw.randint(1, 5), "stride": draw.randint(1, 3)}
        if kind == "convolution":
            how |= {"dilation": draw.randint(1, 3), "padding": draw.randint(0, 3)}
        elif kind == "transposed_convolution":
            how["padding"] = draw.randint(0, 2)
        elif kind == "neighborhood_attention":
            how = {"kernel": draw.choice([1, 3, 5]), "heads": 1}
        new = [Layer(kind, 2, 2, **space, **how)]
        if kind == "moments":
            new = [Layer(kind, 2, 2, **space), Layer("group_norm", 2, 2, **space, of=(len(layers), len(layers) + 1))]
        try:
            gives = Shape(len(layers) + len(new), 1, [*layers, *new]).kinds[-1].gives
        except ValueError:
            continue
        if max(sizes := [gives[role].size for role in space]) <= 20:
            layers, space = layers + new, dict(zip(space, sizes, strict=True))
    return layers


def parts_of_chance(draw: Random, size: int, places: int) -> list[int]:
    """Parts of any size, some of them of none."""
    return [high - low for low, high in pairwise([0, *sorted(draw.choices(range(size + 1), k=places - 1)), size])]


def test_a_step_is_right_or_refused_before_any_rank_waits() -> None:
    right, refused = 0, list[str]()
    for seed in (seeds := range(900 if THOROUGH else 48)):
        draw = Random(f"halo {seed}")
        roles = draw.choice([["rows"], ["rows", "columns"]])
        space = {role: draw.randint(2, 14 // len(roles)) for role in roles}
        cut = roles if draw.random() < 0.8 else roles[-1:]
        parts = {role: parts_of_chance(draw, space[role], draw.randint(2, 6 - 2 * len(roles) + 1)) for role in cut}
        mesh, layers = Mesh({role: len(sizes) for role, sizes in parts.items()}), net_of_chance(draw, space)
        try:
            models = simulate(domain_parallel(parts), layers=layers, mesh=mesh, batches=2)
        except PuzzleError as error:
            refused.append(str(error))
            continue
        assert check(models).correct, seed
        assert play(models[0].trace), seed
        right += 1
    words = ("which those beside it do not have", "outputs along", "one rank has all of its input")
    assert [one for one in refused if not any(said in one for said in words)] == []
    assert right > len(seeds) // 4
