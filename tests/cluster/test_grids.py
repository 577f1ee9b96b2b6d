"""A mesh as plain lists: every way to share it, each once, and what is no grid."""

from math import factorial, prod

import pytest

from lib import Mesh
from lib.cluster.grids import Grid, grids, mesh_of, random_grids, small_grids
from lib.cluster.holdings import Holdings
from tests.support.said import Said


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


test_what_is_no_grid_or_holds_nothing_is_refused = Said(__file__, "grids").test(
    lambda: {**globals(), "Holdings": Holdings}
)
