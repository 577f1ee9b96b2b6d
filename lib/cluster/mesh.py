"""A mesh: ranks arranged along named axes, so that a process group is a line of the mesh.

Mesh({"replica": 2, "shard": 4}) puts ranks 0-3 on replica 0 and 4-7 on replica 1; `group(5, "shard")` is (4, 5, 6, 7)
and `group(5, "replica")` is (1, 5). `ranks=` gives another order of the devices. A group is ordered by coordinate and
never sorted: member i of a group is the one at coordinate i, as torch's new_group(sort_ranks=False) has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import prod
from types import MappingProxyType

from lib.errors.arguments import Given, name_of, plain

__all__ = ["Mesh"]

MOST_RANKS = 10**7
ANOTHER = "make another mesh: simulate(..., mesh=Mesh(...))"


class Mesh(Given):
    """Named axes (the last varies fastest) over `ranks` in any order. `host_size` of them, in that order, share a host.

    Raises ValueError where the axes do not multiply to the number of ranks, or a rank is missing or repeated.
    """

    given = {  # noqa: RUF012
        "axes": ("the shape of the world", ANOTHER),
        "ranks": ("where each rank stands", ANOTHER),
        "host_size": ("how the machines are built", ANOTHER),
    }
    __slots__ = ("__dict__", "axes", "host_size", "ranks")
    axes: Mapping[str, int]
    ranks: tuple[int, ...]
    host_size: int | None

    def __init__(
        self, axes: Mapping[str, int], *, ranks: Sequence[int] | None = None, host_size: int | None = None
    ) -> None:
        if not isinstance(axes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f'a mesh has named axes, such as Mesh({{"data": 2, "stage": 4}}); got {axes!r}')
        if not all(isinstance(name, str) for name in axes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f'the axes of a mesh have names, such as "data"; got {list(axes)}')
        plainly = {name_of(name): size if isinstance(size, bool) else plain(size) for name, size in axes.items()}
        if not plainly or any(type(n) is not int or n < 1 for n in plainly.values()):
            raise ValueError(f"a mesh needs at least one axis, each of size 1 or more; got {plainly}")
        size = prod(plainly.values())
        if size > MOST_RANKS:
            raise ValueError(f"a mesh has at most {MOST_RANKS} ranks; the axes {plainly} make {size}")
        if ranks is not None and (not isinstance(ranks, Iterable) or isinstance(ranks, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"ranks= lists the rank at each place of the mesh; got {ranks!r}")
        order = tuple(range(size)) if ranks is None else tuple(map(plain, islice(ranks, size + 1)))
        if any(type(rank) is not int for rank in order) or sorted(order) != list(range(size)):
            raise ValueError(f"axes {plainly} need each rank from 0 to {size - 1} once; got {list(order)}")
        host_size = plain(host_size)
        if host_size is not None and (type(host_size) is not int or host_size < 1):
            raise ValueError(f"a host has at least one rank; got host_size={host_size!r}")
        self._give(axes=MappingProxyType(plainly), ranks=order, host_size=host_size)

    def __reduce__(self) -> tuple[object, ...]:
        return _mesh, (dict(self.axes), self.ranks, self.host_size)

    def __len__(self) -> int:
        return len(self.ranks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mesh):
            return NotImplemented
        return (list(self.axes.items()), self.ranks, self.host_size) == (
            list(other.axes.items()),
            other.ranks,
            other.host_size,
        )

    def __hash__(self) -> int:
        return hash((tuple(self.axes.items()), self.ranks, self.host_size))

    def __repr__(self) -> str:
        order = "" if self.ranks == tuple(range(len(self))) else f", ranks={list(self.ranks)}"
        hosts = "" if self.host_size is None else f", host_size={self.host_size}"
        return f"Mesh({dict(self.axes)}{order}{hosts})"

    @cached_property
    def _place(self) -> dict[int, int]:
        return {rank: place for place, rank in enumerate(self.ranks)}

    def host(self, rank: int) -> int:
        """The number of the host that a rank is on. Without a `host_size` all are on one."""
        return 0 if self.host_size is None else self._place[rank] // self.host_size

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a rank stands on each axis: {"replica": 1, "shard": 2}."""
        if rank not in self._place:
            raise ValueError(f"rank {rank} is not in {self}")
        place = self._place[rank]
        found: dict[str, int] = {}
        for axis, size in reversed(list(self.axes.items())):
            place, found[axis] = divmod(place, size)
        return {axis: found[axis] for axis in self.axes}

    def named(self, rank: int) -> str:
        """A rank with its place, as a sentence has it: "rank 6 (data 1, stage 2)"."""
        place = self.shared([rank])
        return f"rank {rank} ({place})" if place else f"rank {rank}"

    def shared(self, ranks: Sequence[int]) -> str:
        """The coordinates that ranks have in common, in words: "stage 2". Nothing where one is not in the mesh."""
        if not all(rank in self._place for rank in ranks):
            return ""
        places = [self.coordinates(rank) for rank in ranks]
        alike = [axis for axis in self.axes if len({place[axis] for place in places}) == 1]
        return ", ".join(f"{axis} {places[0][axis]}" for axis in alike) if places else ""

    def rank(self, **coordinates: int) -> int:
        """The rank at the given coordinates, one for each axis."""
        if set(coordinates) != set(self.axes):
            raise ValueError(f"give one coordinate for each of {list(self.axes)}; got {list(coordinates)}")
        place = 0
        for axis, size in self.axes.items():
            if not 0 <= coordinates[axis] < size:
                raise ValueError(f"axis {axis!r} has coordinates 0 to {size - 1}; got {coordinates[axis]}")
            place = place * size + coordinates[axis]
        return self.ranks[place]

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """The ranks that differ from `rank` along `axes` only, ordered by coordinate."""
        unknown = [axis for axis in axes if axis not in self.axes]
        if unknown or not axes:
            raise ValueError(f"the mesh has the axes {list(self.axes)}; got {list(axes)}")
        mine = self.coordinates(rank)
        found: list[dict[str, int]] = [mine]
        for axis in axes:
            found = [{**c, axis: i} for c in found for i in range(self.axes[axis])]
        return tuple(self.rank(**c) for c in found)


def _mesh(axes: dict[str, int], ranks: tuple[int, ...], host_size: int | None) -> Mesh:
    """The mesh that was pickled."""
    return Mesh(axes, ranks=ranks, host_size=host_size)
