"""Meshes: coordinates and ranks are inverse, groups are lines ordered by coordinate, mistakes are named."""

from itertools import pairwise
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from lib import Dist, Mesh, Model, simulate
from lib.cluster.mesh import mesh_from
from tests.support.said import Said

NAMES = ["pp", "dp", "cp", "tp"]


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    axes = {name: draw(st.integers(1, 3)) for name in names}
    count = prod(axes.values())
    ranks = draw(st.permutations(range(count)))
    size = draw(st.sampled_from([number for number in range(1, count + 1) if count % number == 0]))
    host_size = draw(st.none() | st.integers(1, 8).map(lambda number: number * size))
    devices = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    lists = [devices[begin:end] for begin, end in pairwise([0, *cuts, count])]
    processes = draw(st.sampled_from([None, size, lists] if host_size is None else [None, size]))
    return Mesh(axes, ranks=draw(st.sampled_from([None, ranks])), host_size=host_size, processes=processes)


@given(meshes())
def test_coordinates_and_rank_are_inverse(mesh: Mesh) -> None:
    seen: set[tuple[int, ...]] = set()
    for rank in range(len(mesh)):
        where = mesh.coordinates(rank)
        assert list(where) == list(mesh.axes)
        assert all(0 <= where[axis] < size for axis, size in mesh.axes.items())
        assert mesh.rank(**where) == rank
        seen.add(tuple(where.values()))
    assert len(seen) == len(mesh)


@given(meshes(), st.data())
def test_a_group_is_a_line_ordered_by_coordinate(mesh: Mesh, data: st.DataObject) -> None:
    axis = data.draw(st.sampled_from(list(mesh.axes)))
    for rank in range(len(mesh)):
        group = mesh.group(rank, axis)
        assert rank in group
        assert [mesh.coordinates(member)[axis] for member in group] == list(range(mesh.axes[axis]))
        for member in group:
            assert mesh.group(member, axis) == group
            assert mesh.coordinates(member) | {axis: 0} == mesh.coordinates(rank) | {axis: 0}


@given(meshes(), st.data())
def test_a_group_along_several_axes_is_their_product(mesh: Mesh, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(list(mesh.axes)), min_size=1, unique=True))
    rank = data.draw(st.integers(0, len(mesh) - 1))
    group = mesh.group(rank, *axes)
    assert len(set(group)) == len(group) == prod(mesh.axes[axis] for axis in axes)
    assert {member for one in mesh.group(rank, axes[0]) for member in mesh.group(one, *axes)} == set(group)
    places = [tuple(mesh.coordinates(member)[axis] for axis in axes) for member in group]
    assert places == sorted(places)


@given(meshes())
def test_all_axes_in_order_are_the_ranks_in_order(mesh: Mesh) -> None:
    assert mesh.group(0, *mesh.axes) == mesh.ranks


@given(meshes(), meshes())
def test_meshes_are_equal_where_they_are_the_same(one: Mesh, other: Mesh) -> None:
    again: Mesh = eval(repr(one))
    assert again == one
    assert hash(again) == hash(one)
    assert (one == other) == (repr(one) == repr(other))


@given(meshes())
def test_every_device_has_one_process_on_one_host(mesh: Mesh) -> None:
    assert sorted(rank for owned in mesh.processes for rank in owned) == list(range(len(mesh)))
    for process, owned in enumerate(mesh.processes):
        assert mesh.devices(process) == owned == tuple(sorted(owned))
        assert {mesh.process(rank) for rank in owned} == {process}
        assert len({mesh.host(rank) for rank in owned}) == 1


@given(meshes(), st.data())
def test_rows_are_the_ranks_of_each_coordinate(mesh: Mesh, data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.sampled_from(list(mesh.axes)), unique=True))
    rows = mesh.rows(*axes)
    assert sorted(rank for row in rows for rank in row) == list(range(len(mesh)))
    places = [{axis: mesh.coordinates(row[0])[axis] for axis in axes} for row in rows]
    assert [tuple(place.values()) for place in places] == sorted(tuple(place.values()) for place in places)
    for number, row in enumerate(rows):
        assert {mesh.row(rank, *axes) for rank in row} == {number}
        assert [rank for rank in mesh.ranks if rank in row] == list(row)
        for rank in row:
            assert {axis: mesh.coordinates(rank)[axis] for axis in axes} == places[number]


@given(meshes(), st.data())
def test_another_order_of_the_devices_renames_ranks_and_moves_no_machine(mesh: Mesh, data: st.DataObject) -> None:
    """Groups, coordinates and rows are those of the mesh in order, by other names. Hosts and processes stay."""
    names = mesh.ranks
    plain = Mesh(mesh.axes, host_size=mesh.host_size, processes=mesh.processes)
    axes = data.draw(st.lists(st.sampled_from(list(mesh.axes)), min_size=1, unique=True))
    for place, rank in enumerate(names):
        assert mesh.coordinates(rank) == plain.coordinates(place)
        assert mesh.group(rank, *axes) == tuple(names[member] for member in plain.group(place, *axes))
        assert mesh.row(rank, *axes) == plain.row(place, *axes)
        assert (mesh.host(rank), mesh.process(rank)) == (plain.host(rank), plain.process(rank))


def test_processes_own_devices_and_rows_of_data_lie_across_them() -> None:
    """The mesh of the mapping oracles: 16 devices out of order, four processes of four."""
    order = [0, 1, 4, 5, 8, 9, 12, 13, 10, 11, 14, 15, 2, 3, 6, 7]
    mesh = Mesh({"data": 4, "model": 4}, ranks=order, processes=4)
    assert mesh.rows("data") == ((0, 1, 4, 5), (8, 9, 12, 13), (10, 11, 14, 15), (2, 3, 6, 7))
    local = [sorted({mesh.row(rank, "data") for rank in mesh.devices(process)}) for process in range(4)]
    assert local == [[0, 3], [0, 3], [1, 2], [1, 2]]
    assert mesh.rows() == (tuple(order),)
    assert Mesh({"data": 4}, processes=1) == Mesh({"data": 4}, processes=[[0], [1], [2], [3]]) == Mesh({"data": 4})
    assert Mesh([("data", 2), ("stage", 3)]) == Mesh({"data": 2, "stage": 3})
    assert Mesh({"data": 4}, processes=[[2, 3], [0, 1]]) != Mesh({"data": 4}, processes=2)


test_misuse_is_an_error_that_says_what_is_wrong = Said(__file__, "meshes").test(
    lambda: {**globals(), "mesh_from": mesh_from, "Dist": Dist, "Model": Model}
)


def test_every_rank_knows_its_place_and_its_groups() -> None:
    mesh = Mesh({"stage": 2, "data": 3}, ranks=[5, 1, 3, 0, 4, 2], processes=2)
    models = simulate(lambda model: None, mesh=mesh)
    assert len(models) == 6
    for model in models:
        assert model.mesh == mesh
        assert model.coord == mesh.coordinates(model.rank)
        assert model.process == mesh.process(model.rank) == model.rank // 2
        for axis in mesh.axes:
            assert model.group(axis) == mesh.group(model.rank, axis)
            assert model.group(axis).index(model.rank) == model.coord[axis]
        assert model.group(["stage", "data"]) == mesh.group(model.rank, "stage", "data")
        assert model.group() == (0, 1, 2, 3, 4, 5)
    assert models[1].group((4, 1)) == (4, 1)
