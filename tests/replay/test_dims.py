"""The address and the groups of a rank on five axes: the same from PyTorch, and groups of them that really talk."""

import os
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any

import pytest

from lib.suite.submissions.function_check import solution_of
from tests.support.worlds import MEET, world

pytest.importorskip("torch", reason="process groups need torch: pip install torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

DIMS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def ask_torch(rank: int, sizes: dict[str, int], answers: list[dict[str, Any]], store: Path) -> dict[str, Any]:
    """What a rank of a real world is told: by DeviceMesh, and by sums over the groups of the puzzle's answer."""
    timeout = timedelta(seconds=MEET)
    dist.init_process_group("gloo", f"file://{store}", timeout=timeout, world_size=len(answers), rank=rank)
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    sums: list[int] = []
    for axis in sizes:
        number = torch.tensor([float(1 << rank)])
        for members in sorted({tuple(answer["groups"][axis]) for answer in answers}):
            if len(members) == 1:
                continue
            group = dist.new_group(list(members))  # every rank takes part in making every group
            if rank in members:
                dist.all_reduce(number, group=group)
        sums.append(int(number.item()))
    dist.barrier()
    groups = [dist.get_process_group_ranks(mesh.get_group(axis)) for axis in sizes]
    return {"place": list(mesh.get_coordinate() or ()), "groups": groups, "sums": sums}


@pytest.mark.parametrize("sizes", [pytest.param((2, 2, 2, 1, 2), marks=pytest.mark.thorough), (1, 3, 1, 2, 1)], ids=str)
def test_torch_says_the_same_and_the_groups_talk(sizes: tuple[int, ...], tmp_path: Path) -> None:
    named, processes = dict(zip(DIMS, sizes, strict=True)), prod(sizes)
    answers = [solution_of("parallel_dims")(processes, named, rank) for rank in range(processes)]
    for answer, said in zip(answers, world(processes, ask_torch, named, answers, tmp_path / "store"), strict=True):
        assert said["place"] == [answer["place"][axis] for axis in DIMS]
        assert said["groups"] == [answer["groups"][axis] for axis in DIMS]
        assert said["sums"] == [sum(1 << member for member in answer["groups"][axis]) for axis in DIMS]
