"""What the cards of a mesh can say: the groups along an axis, the groups of one rank, or what each device holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final, Protocol

from drawing.canvas.palette import MINE, PAPER, origin_colour
from drawing.canvas.scene import TEXT, wrapped
from lib.cluster.holdings import Holdings, Neighbours
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted, listed

__all__ = ["Face", "Groups", "Held", "Near"]

LISTED: Final = 6
"""Groups, and devices that hold something, that are told in words."""
MOST_TOLD: Final = 64
JOINED: Final = ",_"

Ways = Sequence[str]
"""A line of a card, in full and shorter."""


class Face(Protocol):
    """One way to look at a mesh. Cards are `card` pixels wide, where there is room, and `high`; neighbours along `axis`
    are joined, and `hosts` are shown below them."""

    heading: str
    card: float
    high: float
    axis: str | None
    hosts: bool

    def colour(self, rank: int) -> str:
        """The colour of its card."""
        ...

    def lines(self, rank: int) -> Sequence[Ways]:
        """What stands on its card."""
        ...

    def words(self, rank: int) -> str:
        """What the pointer shows."""
        ...

    def framed(self, rank: int) -> bool:
        """Whether something is wrong at it."""
        ...

    def below(self, width: float) -> Sequence[str]:
        """Lines of text below the mesh."""
        ...

    def summary(self, width: float) -> str:
        """All of it, for who cannot see it."""
        ...


class Groups:
    """The groups along one axis: a colour each."""

    def __init__(self, mesh: Mesh, axis: str) -> None:
        self.mesh = mesh
        self.axis: str | None = axis
        self.heading = f"groups along {axis}"
        self.card = 72.0
        self.high = 34.0
        self.hosts = mesh.host_size is not None
        self.others = {name: size for name, size in mesh.axes.items() if name != axis}
        self.groups = prod(self.others.values())

    def colour(self, rank: int) -> str:
        """That of its group."""
        number, place = 0, self.mesh.coordinates(rank)
        for axis, size in self.others.items():
            number = number * size + place[axis]
        return origin_colour(number, self.groups)

    def lines(self, rank: int) -> Sequence[Ways]:
        """Its name."""
        return [(f"rank {rank}", str(rank))]

    def words(self, rank: int) -> str:
        """Nothing that is not on the card."""
        return ""

    def framed(self, rank: int) -> bool:
        """Nothing is wrong with a group."""
        return False

    def below(self, width: float) -> Sequence[str]:
        """The groups in words, of many the first."""
        shared = f" that share {_together([*self.others])}" if self.others else ""
        words = f"{counted(self.groups, 'group', ',')} of {len(self.mesh) // self.groups}{shared}:".split()
        groups = ", ".join(listed(group, 8).replace(", ", JOINED) for group in self._members())
        more = " …" if self.groups > LISTED else ""
        # A group stays on one line, where that is long enough.
        return [line.replace(JOINED, ", ") for line in wrapped(" ".join([*words, groups + more]), width, TEXT)]

    def _members(self) -> Iterator[tuple[int, ...]]:
        """The groups, of many the first."""
        assert self.axis is not None, "groups lie along an axis"
        for number in range(min(self.groups, LISTED)):
            place = {self.axis: 0}
            for axis, size in reversed(self.others.items()):
                number, place[axis] = divmod(number, size)
            yield self.mesh.group(self.mesh.rank(**place), self.axis)

    def summary(self, width: float) -> str:
        """The groups in words."""
        return f"Along {self.axis}: {' '.join(self.below(width))}."


class Near:
    """One rank, and its groups, a colour for each. Whoever is in several has the colour of the first."""

    def __init__(self, shown: Neighbours) -> None:
        self.shown = shown
        self.heading = ""
        self.axis: str | None = None
        self.card = 88.0
        self.high = 34.0
        self.hosts = shown.mesh.host_size is not None
        self.groups = shown.named()

    def _names(self, rank: int) -> list[str]:
        """The groups in which it is beside the rank."""
        return [] if rank == self.shown.rank else [name for name, group in self.groups.items() if rank in group]

    def colour(self, rank: int) -> str:
        """That of its first group."""
        if rank == self.shown.rank:
            return MINE
        names = self._names(rank)
        return origin_colour([*self.groups].index(names[0]), len(self.groups)) if names else PAPER

    def lines(self, rank: int) -> Sequence[Ways]:
        """Its name, and its groups."""
        names = self._names(rank)
        return [(f"rank {rank}", str(rank)), *([(" + ".join(names), *names[:1])] if names else [])]

    def words(self, rank: int) -> str:
        """Where it stands, and its groups."""
        place = ", ".join(f"{axis} {number}" for axis, number in self.shown.mesh.coordinates(rank).items())
        names = self._names(rank)
        return f"rank {rank} ({place})" + (f": in the group along {_together(names)}" if names else "")

    def framed(self, rank: int) -> bool:
        """Whether something is wrong at it."""
        return rank in self.shown.wrong

    def below(self, width: float) -> Sequence[str]:
        """Each group on a line."""
        return [f"{name}: {listed(group, 16)}" for name, group in self.groups.items()]

    def summary(self, width: float) -> str:
        """The groups in words."""
        wrong = f" Not right: {', '.join(f'rank {rank}' for rank in self.shown.wrong)}." if self.shown.wrong else ""
        return f"The groups of rank {self.shown.rank}: {'; '.join(self.below(width))}.{wrong}"


class Held:
    """What each device holds, with its host and its process: a colour for each different thing, or for each process."""

    def __init__(self, shown: Holdings) -> None:
        self.shown = shown
        self.mesh = shown.mesh
        self.heading = ""
        self.axis: str | None = None
        self.hosts = False
        self.card = 118.0
        self.several = shown.processes or len(self.mesh.processes) < len(self.mesh)
        self.high = 4.0 + 15 * max(2, len(self.lines(self.mesh.ranks[0])))
        held = dict.fromkeys(shown.holds.get(rank, "") for rank in self.mesh.ranks)
        self.kinds = {words: number for number, words in enumerate(filter(None, held))}
        self.legend = "devices of one colour hold the same"
        if not self.kinds:
            self.legend = "devices of one colour belong to one process"

    def colour(self, rank: int) -> str:
        """That of what it holds: none for nothing."""
        if not self.kinds:
            return origin_colour(self.mesh.process(rank), len(self.mesh.processes))
        kind = self.kinds.get(self.shown.holds.get(rank, ""))
        return PAPER if kind is None else origin_colour(kind, len(self.kinds))

    def lines(self, rank: int) -> Sequence[Ways]:
        """Its name, its host and its process where there are several, and what it holds."""
        where = self._where(rank)
        return [*where, (self.shown.holds.get(rank, ""),)] if self.shown.holds else where

    def words(self, rank: int) -> str:
        """All of it."""
        device, *others = [full for full, _ in self._where(rank)]
        where = f" of {', '.join(others)}" if others else ""
        place = ", ".join(f"{axis} {number}" for axis, number in self.mesh.coordinates(rank).items())
        held = f": {self.shown.holds[rank]}" if self.shown.holds.get(rank) else ""
        return f"{device}{where} ({place}){held}"

    def _where(self, rank: int) -> list[tuple[str, str]]:
        """Its name, its host where the mesh has any, and its process where there are several; in full and shorter."""
        found = [(f"device {rank}", str(rank))]
        if self.mesh.host_size is not None:
            found.append((f"host {self.mesh.host(rank)}", f"h{self.mesh.host(rank)}"))
        if self.several:
            found.append((f"process {self.mesh.process(rank)}", f"p{self.mesh.process(rank)}"))
        return found

    def framed(self, rank: int) -> bool:
        """Whether something is wrong at it."""
        return rank in self.shown.wrong

    def below(self, width: float) -> Sequence[str]:
        """Everything is on the cards."""
        return ()

    def summary(self, width: float) -> str:
        """Every device in words, of many the first."""
        told = [self.words(rank) for rank in self.mesh.ranks[:MOST_TOLD]]
        more = ["…"] if len(self.mesh) > MOST_TOLD else []
        wrong = [f"Not right: {', '.join(f'device {rank}' for rank in self.shown.wrong)}"] if self.shown.wrong else []
        return ". ".join(["; ".join([*told, *more]), *wrong]) + "."


def _together(names: Sequence[str]) -> str:
    """Names in a sentence: "data", "data and stage", "pod, data and stage"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
