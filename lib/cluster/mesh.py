"""A mesh: ranks arranged along named axes, so that a process group is a line of the mesh.

Mesh({"replica": 2, "shard": 4}) puts ranks 0-3 on replica 0 and 4-7 on replica 1; `group(5, "shard")` is (4, 5, 6, 7)
and `group(5, "replica")` is (1, 5). `ranks=` gives another order of the devices. A group is ordered by coordinate and
never sorted: member i of a group is the one at coordinate i, as torch's new_group(sort_ranks=False) has it.

A rank is a device. Its host and its process follow from its number, whatever the mesh: with `host_size` 4 devices 0-3
are on host 0, wherever they are on the axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, cast

from lib.errors.exceptions import Given
from lib.errors.wording import counted, listed, message_of, name_of, plain, these

MOST_RANKS = 10**7
ANOTHER = "make another mesh: simulate(..., mesh=Mesh(...))"
Processes = int | Sequence[Sequence[int]]


class Mesh(Given):
    """Named axes (the last varies fastest) over `ranks` in any order.

    In the order of their numbers, `host_size` devices share a host (the last host may have fewer). `processes` is how
    many of them a process owns, or lists the devices of each; without it each device has its own process.

    Raises ValueError if the axes do not multiply to the number of ranks, a rank is missing or repeated, or the
    processes do not own each device once, on one host.

    >>> mesh = Mesh({"data": 2, "model": 2}, host_size=2)
    >>> mesh.coordinates(3)
    {'data': 1, 'model': 1}
    """

    given = {  # noqa: RUF012
        "axes": ("the shape of the world", ANOTHER),
        "ranks": ("where each rank stands", ANOTHER),
        "host_size": ("how the machines are built", ANOTHER),
        "processes": ("which devices each process owns", ANOTHER),
    }
    __slots__ = ("__dict__", "_several", "axes", "host_size", "ranks")

    def __init__(
        self,
        axes: Mapping[str, int] | Iterable[tuple[str, int]],
        *,
        ranks: Sequence[int] | None = None,
        host_size: int | None = None,
        processes: Processes | None = None,
    ) -> None:
        sizes = _axes(axes)
        order = _order(sizes, ranks)
        host_size = host_size if isinstance(host_size, bool) else plain(host_size)
        if host_size is not None and (type(host_size) is not int or host_size < 1):
            raise ValueError(f"a host has at least one rank; got host_size={host_size!r}")
        self.ranks, self.host_size = order, host_size
        self._several = None if processes is None else _owned(processes, len(order), host_size)
        self.axes = MappingProxyType(sizes)

    def __reduce__(self) -> tuple[object, ...]:
        # A mappingproxy cannot be pickled; and a mesh made anew is checked.
        return mesh_from, (self.to_json(),)

    def __len__(self) -> int:
        return len(self.ranks)

    def _key(self) -> tuple[object, ...]:
        return tuple(self.axes.items()), self.ranks, self.host_size, self._several

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Mesh) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        order = "" if self.ranks == tuple(range(len(self))) else f", ranks={list(self.ranks)}"
        hosts = "" if self.host_size is None else f", host_size={self.host_size}"
        owned = self._owned_as_written()
        return f"Mesh({dict(self.axes)}{order}{hosts}{'' if owned is None else f', processes={owned}'})"

    def to_json(self) -> dict[str, Any]:
        """Return what `mesh_from` reads; without processes, for older versions, if each device has its own."""
        data: dict[str, Any] = {"axes": [[*axis] for axis in self.axes.items()], "ranks": [*self.ranks]}
        data["host_size"] = self.host_size
        owned = self._owned_as_written()
        return data if owned is None else data | {"processes": owned}

    def _owned_as_written(self) -> int | list[list[int]] | None:
        """Return the processes in their shortest form."""
        if self._several is None:
            return None
        size = len(self._several[0])
        even = all(owned == tuple(range(i * size, (i + 1) * size)) for i, owned in enumerate(self._several))
        return size if even else [list(owned) for owned in self._several]

    @cached_property
    def _place(self) -> dict[int, int]:
        return {rank: place for place, rank in enumerate(self.ranks)}

    def host(self, rank: int) -> int:
        """Return the number of the host that a rank is on. Without a `host_size` all are on one."""
        # By the device's number, not its place in the mesh: arranging ranks moves no machine.
        return 0 if self.host_size is None else rank // self.host_size

    @property
    def processes(self) -> tuple[tuple[int, ...], ...]:
        """The devices that each process owns, in the order of their numbers."""
        return tuple((rank,) for rank in range(len(self))) if self._several is None else self._several

    @cached_property
    def _process_of(self) -> dict[int, int]:
        return {rank: process for process, owned in enumerate(self.processes) for rank in owned}

    def process(self, rank: int) -> int:
        """Return the number of the process that owns a rank's device."""
        if rank not in self._place:
            raise ValueError(f"rank {rank} is not in {self}")
        return self._process_of[rank]

    def devices(self, process: int) -> tuple[int, ...]:
        """Return the devices that a process owns, in the order of their numbers."""
        processes, process = self.processes, plain(process)
        if process not in range(len(processes)):
            raise ValueError(f"{self} has processes 0 to {len(processes) - 1}; got {process!r}")
        return processes[process]

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return where a rank stands on each axis: {"replica": 1, "shard": 2}."""
        if rank not in self._place:
            raise ValueError(f"rank {rank} is not in {self}")
        place = self._place[rank]
        found: dict[str, int] = {}
        # Digits of the place in a mixed base: the last axis varies fastest.
        for axis, size in reversed(list(self.axes.items())):
            place, found[axis] = divmod(place, size)
        return {axis: found[axis] for axis in self.axes}

    def named(self, rank: int) -> str:
        """Return a rank with its place, for a sentence: "rank 6 (data 1, stage 2)"."""
        place = self.shared([rank])
        return f"rank {rank} ({place})" if place else f"rank {rank}"

    def shared(self, ranks: Sequence[int]) -> str:
        """Return the coordinates that ranks have in common, in words: "stage 2"; "" if one is not in the mesh."""
        if not all(rank in self._place for rank in ranks):
            return ""
        places = [self.coordinates(rank) for rank in ranks]
        alike = [axis for axis in self.axes if len({place[axis] for place in places}) == 1]
        return ", ".join(f"{axis} {places[0][axis]}" for axis in alike) if places else ""

    def rank(self, **coordinates: int) -> int:
        """Return the rank at the given coordinates, one for each axis."""
        if set(coordinates) != set(self.axes):
            raise ValueError(f"give one coordinate for each of {list(self.axes)}; got {list(coordinates)}")
        for axis, size in self.axes.items():
            if not 0 <= coordinates[axis] < size:
                raise ValueError(f"axis {axis!r} has coordinates 0 to {size - 1}; got {coordinates[axis]}")
        return self.ranks[self._number(coordinates, self.axes)]

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """Return the ranks that differ from `rank` along `axes` only, ordered by coordinate."""
        if not axes:
            raise ValueError(f"the mesh has the axes {list(self.axes)}; got {list(axes)}")
        self._along(axes)
        mine, places = self.coordinates(rank), product(*[range(self.axes[axis]) for axis in axes])
        return tuple([self.rank(**mine | dict(zip(axes, place, strict=True))) for place in places])

    def row(self, rank: int, *axes: str) -> int:
        """Return the number of the row of data that a rank works on if data is split along `axes`, the last of which
        varies fastest. Ranks that differ only along other axes work on the same row."""
        self._along(axes)
        return self._number(self.coordinates(rank), axes)

    def _number(self, coordinates: Mapping[str, int], axes: Iterable[str]) -> int:
        number = 0
        for axis in axes:
            number = number * self.axes[axis] + coordinates[axis]
        return number

    def rows(self, *axes: str) -> tuple[tuple[int, ...], ...]:
        """Return the ranks that work on each row of data, in the order of the mesh; without axes data is one row."""
        self._along(axes)
        found: list[list[int]] = [[] for _ in range(prod(self.axes[axis] for axis in axes))]
        # In the order of the mesh, not of numbers: member i of a group is the one at coordinate i.
        for rank in self.ranks:
            found[self.row(rank, *axes)].append(rank)
        return tuple(map(tuple, found))

    def _along(self, axes: Sequence[str]) -> None:
        if any(axis not in self.axes for axis in axes):
            raise ValueError(f"the mesh has the axes {list(self.axes)}; got {list(axes)}")
        if (twice := named_twice(axes)) is not None:
            raise ValueError(f"axis {twice!r} is named twice: name each axis once; got {list(axes)}")

    def instead(self, ranks: int) -> str:
        """Return what would be right, for a world whose number of ranks is not that of the mesh."""
        whole = {axis: divmod(ranks * size, len(self)) for axis, size in self.axes.items()}
        fits = [f"{axis!r} of {size}" for axis, (size, rest) in whole.items() if not rest]
        what = f"with {' or '.join(fits)} it would have {ranks}" if fits else f"its axes have to multiply to {ranks}"
        return f"{what}; without ranks= the world is as large as the mesh"


def mesh_from(data: Mapping[str, Any]) -> Mesh:
    """Return the mesh that `to_json` wrote, or that a record has in its long form. ValueError for an unknown field."""
    fields = {"axes", "ranks", "host_size", "processes"}
    if "axes" not in data or not fields.issuperset(data):
        raise ValueError(f"a mesh has axes and may have ranks, host_size and processes; got {', '.join(data)}")
    return Mesh(**data)


def named_twice(names: Iterable[str]) -> str | None:
    """Return the first repeated name, if any."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _axes(given: Any) -> dict[str, int]:
    wrong = f'a mesh has named axes, such as Mesh({{"data": 2, "stage": 4}}); got {given!r}'
    try:
        items: Iterable[Any] = cast("Mapping[Any, Any]", given).items() if isinstance(given, Mapping) else given
        pairs: list[tuple[Any, Any]] = [
            (name_of(name), size if isinstance(size, bool) else plain(size)) for name, size in items
        ]
    except (TypeError, ValueError):
        raise ValueError(wrong) from None
    if not pairs and not isinstance(given, Mapping):
        raise ValueError(wrong)
    if not all(isinstance(name, str) for name, _ in pairs):
        raise ValueError(f'the axes of a mesh have names, such as "data"; got {[name for name, _ in pairs]}')
    if (twice := named_twice(name for name, _ in pairs)) is not None:
        sizes = [size for name, size in pairs if name == twice]
        raise ValueError(f"axis {twice!r} is named twice, of sizes {sizes}: give each axis a name of its own")
    sizes = dict(pairs)
    if any(type(n) is float for n in sizes.values()):
        raise ValueError(f"the size of an axis is a whole number, which `//` gives and `/` does not; got {sizes}")
    if not sizes or any(type(n) is not int or n < 1 for n in sizes.values()):
        raise ValueError(f"a mesh needs at least one axis, each of size 1 or more; got {sizes}")
    if prod(sizes.values()) > MOST_RANKS:
        raise ValueError(f"a mesh has at most {MOST_RANKS} ranks; the axes {sizes} make {prod(sizes.values())}")
    return sizes


def _order(axes: dict[str, int], ranks: Any) -> tuple[int, ...]:
    size = prod(axes.values())
    if ranks is None:
        return tuple(range(size))
    if not isinstance(ranks, Iterable) or isinstance(ranks, str):
        raise ValueError(f"ranks= lists the rank at each place of the mesh; got {ranks!r}")
    order = tuple(map(plain, islice(cast("Iterable[Any]", ranks), size + 1)))
    if any(type(rank) is not int for rank in order) or sorted(order) != list(range(size)):
        raise ValueError(f"axes {axes} need each rank from 0 to {size - 1} once; got {list(order)}")
    return order


def _owned(given: Any, ranks: int, host_size: int | None) -> tuple[tuple[int, ...], ...] | None:
    """Return the devices of each process; None if each device has its own."""
    size = given if isinstance(given, bool) else plain(given)
    if type(size) is int:
        if size < 1:
            raise ValueError(f"a process owns at least one device; got processes={size}")
        if ranks % size:
            fits = [number for number in range(1, ranks + 1) if ranks % number == 0]
            raise ValueError(
                f"{counted(ranks, 'device')} do not make processes of {size}: take one of {listed(fits)}, "
                "or list the devices of each process, as in processes=[[0, 1], [2, 3, 4]]"
            )
        owned = [tuple(range(first, first + size)) for first in range(0, ranks, size)]
    else:
        owned = _listed(given, ranks)
    for process, devices in enumerate(owned):
        hosts = sorted({0 if host_size is None else device // host_size for device in devices})
        if len(hosts) > 1:
            raise ValueError(
                f"process {process} owns {these('device', devices)}, which are on {these('host', hosts)} "
                f"(host_size={host_size}): a process is on one host"
            )
    return None if owned == [(rank,) for rank in range(ranks)] else tuple(owned)


def _listed(given: Any, ranks: int) -> list[tuple[int, ...]]:
    try:
        lists: list[Any] = [*islice(given, ranks + 1)]
        if any(isinstance(one, str) for one in (given, *lists)):
            raise TypeError
        owned = [tuple(sorted([index(one) for one in islice(devices, ranks + 1)])) for devices in lists]
    except TypeError:
        raise ValueError(
            "processes= is how many devices a process owns, or a list with the devices of each, such as "
            f"[[0, 1], [2, 3]]; got {given!r}"
        ) from None
    seen: dict[int, int] = {}
    for process, devices in enumerate(owned):
        if not devices:
            raise ValueError(f"process {process} owns no device: give it one, or leave the process out")
        for device in devices:
            if not 0 <= device < ranks:
                raise ValueError(f"process {process} owns device {device}: the mesh has devices 0 to {ranks - 1}")
            if device in seen:
                who = "twice" if seen[device] == process else f"by process {seen[device]} too"
                raise ValueError(f"device {device} is owned by process {process}, and {who}: name each device once")
            seen[device] = process
    if missing := sorted(set(range(ranks)) - set(seen)):
        has = "has" if len(missing) == 1 else "have"
        raise ValueError(f"{these('device', missing)} {has} no process: each belongs to one")
    return owned


def plain_mesh(mesh: Any) -> Mesh:
    """Return a mesh of our own class with the same fields, whatever its class does. ValueError if it is not a mesh."""
    if not isinstance(mesh, Mesh):
        raise ValueError(f'mesh= takes a mesh, such as Mesh({{"data": 2}}); got {mesh!r}')
    # A student's class might answer `host` at will, and so decide what a link costs.
    if type(mesh) is Mesh:
        return mesh
    try:
        return mesh_from(Mesh.to_json(mesh))
    except Exception as error:  # its class may do anything
        raise ValueError(
            f'mesh= takes a mesh, such as Mesh({{"data": 2}}); got one of the class {type(mesh).__name__}, of which '
            f"none can be made: {message_of(error)}"
        ) from None
