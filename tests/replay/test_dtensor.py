"""Beside PyTorch's DTensor: what its Shard can do, too, and where it cannot.

Its parts follow from torch.chunk's rule; parts of any sizes it takes and then says wrong things of them without a word.
A convolution needs its neighbours' rows, which it does not fetch.
"""
# pyright: basic

import os
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.worlds import MEET, world

torch = pytest.importorskip("torch", reason="DTensor is PyTorch's")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")

RANKS, UNEVEN = 4, [0, 4, 12, 24, 64]


def numbers(*sizes: int) -> Any:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def worked_out(rank: int, store: Path) -> dict[str, Any]:
    """What one rank finds out with DTensor, as differences to what one process gives."""
    from torch.distributed.device_mesh import init_device_mesh

    sharding: Any = torch.distributed.tensor
    timeout = timedelta(seconds=MEET)
    torch.distributed.init_process_group("gloo", f"file://{store}", timeout=timeout, world_size=RANKS, rank=rank)
    mesh, found = init_device_mesh("cpu", (RANKS,)), dict[str, Any]()
    grid = numbers(10, 9)
    columns = sharding.distribute_tensor(grid, mesh, [sharding.Shard(0)]).redistribute(placements=[sharding.Shard(1)])
    found["columns"] = [*columns.to_local().shape]
    found["redistribute"] = (columns.full_tensor() - grid).abs().max().item()
    for rows in (8, 10):
        x = numbers(rows, 3)
        mean = sharding.distribute_tensor(x, mesh, [sharding.Shard(0)]).mean(0)
        found[f"placement {rows}"] = mean.placements[0].is_partial("avg")
        found[f"mean {rows}"] = (mean.full_tensor() - x.mean(0)).abs().max().item()
    x = numbers(64, 3)
    mine = x[UNEVEN[rank] : UNEVEN[rank + 1]]
    uneven = sharding.DTensor.from_local(
        mine, mesh, [sharding.Shard(0)], run_check=False, shape=x.shape, stride=x.stride()
    )
    means = torch.stack([x[low:high].mean(0) for low, high in pairwise(UNEVEN)]).mean(0)
    mean = uneven.mean(0).full_tensor()
    found["mean of means"] = (mean - means).abs().max().item()
    found["mean"] = (mean - x.mean(0)).abs().max().item()
    picture, weight = numbers(2, 3, 8, 8), numbers(4, 3, 3, 3)
    whole = torch.nn.functional.conv2d(picture, weight, padding=1)
    for dim in (2, 3):
        part = sharding.distribute_tensor(picture, mesh, [sharding.Shard(dim)])
        y: Any = torch.nn.functional.conv2d(
            part, sharding.distribute_tensor(weight, mesh, [sharding.Replicate()]), padding=1
        )
        y = y.to_local()
        alone = torch.nn.functional.conv2d(part.to_local(), weight, padding=1)
        found[f"alone {dim}"] = (y - alone).abs().max().item()
        found[f"convolution {dim}"] = (y - whole.narrow(dim, 2 * rank, 2)).abs().max().item()
    torch.distributed.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank has found out."""
    for module in ("torch._dynamo", "torch.distributed.tensor"):  # once, and not by each rank when it begins
        import_module(module)
    return world(RANKS, worked_out, tmp_path_factory.mktemp("gloo") / "store")


def test_rows_become_columns_by_the_rule_of_chunk(found: list[dict[str, Any]]) -> None:
    """As by our all-to-all with parts of 3 3 3 1 rows, and 3 3 3 0 columns: tests/replay/test_grids.py."""
    assert [one["columns"] for one in found] == [[10, 3], [10, 3], [10, 3], [10, 0]]
    assert max(one["redistribute"] for one in found) == 0


def test_a_mean_of_equal_parts_is_averaged_and_of_others_everything_is_gathered(found: list[dict[str, Any]]) -> None:
    assert all(one["placement 8"] and not one["placement 10"] for one in found)
    assert max(one[f"mean {rows}"] for one in found for rows in (8, 10)) < 1e-12


def test_of_parts_of_other_sizes_it_gives_the_mean_of_means(found: list[dict[str, Any]]) -> None:
    assert max(one["mean of means"] for one in found) < 1e-12
    assert min(one["mean"] for one in found) > 0.01


@pytest.mark.parametrize("dim", [2, 3])
def test_a_convolution_is_that_of_each_part_alone(found: list[dict[str, Any]], dim: int) -> None:
    """With zeros at the edges where neighbours have rows (torch 2.13.0). Ours: tests/replay/test_grids.py."""
    assert max(one[f"alone {dim}"] for one in found) < 1e-12
    assert min(one[f"convolution {dim}"] for one in found) > 0.1
