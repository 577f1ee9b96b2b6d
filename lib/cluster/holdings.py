"""What each device of a mesh holds, and the groups that one rank is in, as plain data that a picture can show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lib.cluster.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Holdings:
    """The data on the devices of a mesh. A device that is not in `holds` holds nothing; the same words are the same
    thing. `wrong` are the devices at which something is wrong, and `title` says what is shown. `processes`: they are
    named even where each has one device."""

    mesh: Mesh
    holds: Mapping[int, str] = field(default_factory=dict[int, str])
    wrong: Collection[int] = ()
    title: str = ""
    processes: bool = False

    def __post_init__(self) -> None:
        for device in [*self.holds, *self.wrong]:
            if device not in self.mesh.ranks:
                raise ValueError(f"device {device!r} is not in {self.mesh}")


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The groups that a rank of a mesh is in, by name; without any, those along each axis. `wrong` are the ranks at
    which something is wrong, and `title` says what is shown."""

    mesh: Mesh
    rank: int
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    wrong: Collection[int] = ()
    title: str = ""

    def __post_init__(self) -> None:
        for rank in [self.rank, *self.wrong, *(rank for group in self.groups.values() for rank in group)]:
            if rank not in self.mesh.ranks:
                raise ValueError(f"rank {rank!r} is not in {self.mesh}")

    def named(self) -> dict[str, tuple[int, ...]]:
        """Return the groups that have other members than the rank itself."""
        groups = self.groups or {axis: self.mesh.group(self.rank, axis) for axis in self.mesh.axes}
        return {name: tuple(group) for name, group in groups.items() if {*group} - {self.rank}}
