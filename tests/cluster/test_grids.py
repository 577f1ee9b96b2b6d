"""A mesh as plain lists: every way to share it, each once, and what is no grid."""

from __future__ import annotations

from math import factorial, prod

import pytest

from lib import Mesh
from lib.cluster.grids import Grid, grids, mesh_of, random_grids, small_grids
from lib.cluster.holdings import Holdings


def owners(grid: Grid, per_process: int) -> frozenset[frozenset[tuple[int, int, int]]]:
    """The places of each process, without its number."""
    found: dict[int, set[tuple[int, int, int]]] = {}
    for r, replica in enumerate(grid):
        for d, row in enumerate(replica):
            for m, device in enumerate(row):
                found.setdefault(device // per_process, set()).add((r, d, m))
    return frozenset(map(frozenset, found.values()))


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 4, 2), 2), ((2, 2, 2), 2), ((2, 3, 1), 3), ((1, 1, 4), 4), ((5, 1, 1), 1)]
)
def test_every_way_to_share_a_mesh_is_there_once(shape: tuple[int, int, int], size: int) -> None:
    found = list(grids(*shape, size))
    count = prod(shape)
    assert len(found) == factorial(count) // (factorial(size) ** (count // size) * factorial(count // size))
    assert len({owners(grid, size) for grid in found}) == len(found)
    for grid in found:
        assert [len(grid), len(grid[0]), len(grid[0][0])] == [*shape]
        assert len(mesh_of(grid, size)) == count


def test_eight_devices_in_pairs_make_105() -> None:
    assert len(list(grids(1, 4, 2, 2))) == 105


def test_small_ones_come_first_and_of_four_devices_every_order() -> None:
    found = list(small_grids(5))
    counts = [sum(len(row) for replica in grid for row in replica) for grid, _ in found]
    assert counts == sorted(counts)
    assert len({(repr(grid), size) for grid, size in found}) == len(found)
    assert sum(grid == [[[3, 1], [0, 2]]] for grid, _ in found) == 3  # processes of 1, 2 and 4 devices


def test_random_ones_are_the_same_every_time() -> None:
    found = list(random_grids(30, [2, 3, 4]))
    assert found == list(random_grids(30, [2, 3, 4]))
    assert {len(mesh_of(grid, size)) for grid, size in found} <= set(range(1, 25))


def test_a_grid_is_a_mesh() -> None:
    grid = [[[0, 2], [3, 4], [1, 5]]]
    assert mesh_of(grid, 2) == Mesh({"replica": 1, "data": 3, "model": 2}, ranks=[0, 2, 3, 4, 1, 5], processes=2)


@pytest.mark.parametrize(
    ("grid", "size", "why"),
    [
        ([[[0, 1], [2]]], 1, r"all of one length; got replicas of \[2\] rows of \[1, 2\] devices"),
        ([[[0]], [[1], [2]]], 1, r"got replicas of \[1, 2\] rows of \[1\] devices"),
        ([[[0, 1], [1, 2]]], 2, "need each rank from 0 to 3 once"),
        ([[[0, 1], [2, 3]]], 3, "4 devices do not make processes of 3"),
        ([[[0, 1], [2, 3]]], -1, "a process owns at least one device"),
        ([], 1, r"got replicas of \[\] rows of \[\] devices"),
    ],
)
def test_what_is_no_grid_is_refused(grid: Grid, size: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        mesh_of(grid, size)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"8 devices make no processes of 3: a process owns one of \[1, 2, 4, 8\]"):
        list(grids(1, 4, 2, 3))
    with pytest.raises(ValueError, match="an axis has a size of 1 or more; got 1, -4, 2"):
        list(grids(1, -4, 2, 2))


def test_only_a_device_of_the_mesh_holds_something() -> None:
    with pytest.raises(ValueError, match=r"device 4 is not in Mesh\(\{'data': 4\}\)"):
        Holdings(Mesh({"data": 4}), {4: "x"})
    with pytest.raises(ValueError, match="device 9 is not in"):
        Holdings(Mesh({"data": 4}), wrong=[9])
