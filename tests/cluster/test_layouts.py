"""What lies where: the slots of a batch, and a mesh as plain lists, in every way to share it, each once."""

from math import factorial, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Mesh
from lib.cluster.layouts import Grid, Holdings, PhysicalBatch, grids, mesh_of, random_grids, small_grids
from tests.support.said import Said


def test_examples_lie_in_the_feeds_that_count_in_their_order() -> None:
    batch = PhysicalBatch.filled(4, 4, 2, [3, 1], 8)
    assert [*batch.feeds] == [[None] * 4, [2, 3, None, None], [None] * 4, [0, 1, None, None]]
    assert (batch.size, batch.padding) == (16, 12)
    assert [batch.device(1, slot) for slot in range(4)] == [2, 2, 3, 3]
    assert repr(batch) == "<16 slots from 4 feeds on 8 devices: 4 with an example, 12 padding>"


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.data())
def test_every_example_is_there_once(feeds: int, devices: int, each: int, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, feeds - 1), unique=True, min_size=1))
    slots = each * devices
    batch = PhysicalBatch.filled(feeds, slots, each, order, devices)
    examples = [int(slot) for row in batch.feeds for slot in row if slot is not None]
    assert sorted(examples) == list(range(each * len(order)))
    assert batch.padding == batch.size - len(examples)
    owners = [batch.device(feed, slot) for feed in range(feeds) for slot in range(slots)]
    assert owners == sorted(owner for owner in owners if owner is not None)
    assert {owners.count(device) for device in range(devices)} == {batch.size // devices}


test_what_cannot_be_laid_out_is_said = Said(__file__, "batches").test(lambda: globals())


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
