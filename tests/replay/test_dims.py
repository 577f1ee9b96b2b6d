"""The address and the groups of a rank on five axes: the same from PyTorch, and groups of them that really talk."""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from math import prod
from pathlib import Path
from typing import Any

import pytest

from lib.submissions.function_check import solution_of

pytest.importorskip("torch", reason="process groups need torch: pip install torch")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")

DIMS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
SECONDS = 60.0


def ask_torch(rank: int, sizes: dict[str, int], folder: Path) -> None:
    """What a rank of a real world is told: by DeviceMesh, and by sums over the groups of the puzzle's answer."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from lib.replay.processes.play import join
    from lib.replay.processes.rendezvous import Rendezvous, loopback

    try:
        world = prod(sizes.values())
        torch.set_num_threads(1)
        join(Rendezvous(f"file://{folder / 'store'}", SECONDS, loopback()), rank, world)
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        said: dict[str, Any] = {
            "place": mesh.get_coordinate(),
            "groups": [dist.get_process_group_ranks(mesh.get_group(axis)) for axis in sizes],
            "sums": [],
        }
        answers = [solution_of("parallel_dims")(world, sizes, other) for other in range(world)]
        for axis in sizes:
            number = torch.tensor([float(1 << rank)])
            for members in sorted({tuple(answer["groups"][axis]) for answer in answers}):
                if len(members) == 1:
                    continue
                group = dist.new_group(list(members))  # every rank takes part in making every group
                if rank in members:
                    dist.all_reduce(number, group=group)
            said["sums"].append(int(number.item()))
        (folder / f"{rank}.json").write_text(json.dumps(said), "utf-8")
        dist.barrier()
    except BaseException as error:
        (folder / f"{rank}.error").write_text(repr(error), "utf-8")
        os._exit(1)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 1, 2), (1, 3, 1, 2, 1)], ids=str)
def test_torch_says_the_same_and_the_groups_talk(sizes: tuple[int, ...], tmp_path: Path) -> None:
    named = dict(zip(DIMS, sizes, strict=True))
    fork, world = multiprocessing.get_context("fork"), prod(sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside torch's threads
        ranks = [fork.Process(target=ask_torch, args=(rank, named, tmp_path), daemon=True) for rank in range(world)]
        try:
            for process in ranks:
                process.start()
            for process in ranks:
                process.join(SECONDS)
        finally:
            for process in ranks:
                process.kill()
    assert [path.read_text() for path in tmp_path.glob("*.error")] == []
    for rank in range(world):
        said = json.loads((tmp_path / f"{rank}.json").read_text("utf-8"))
        answer = solution_of("parallel_dims")(world, named, rank)
        assert said["place"] == [answer["place"][axis] for axis in DIMS]
        assert said["groups"] == [answer["groups"][axis] for axis in DIMS]
        assert said["sums"] == [sum(1 << member for member in answer["groups"][axis]) for axis in DIMS]
