"""draw_mesh: the ranks of a mesh on their axes, and the groups along each, or those of a rank, or what devices hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final, Protocol

from drawing.canvas.layout import few
from drawing.canvas.palette import ALARM, EDGE, INK, MINE, PAPER, SOFT, ink_on, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, fit, text_width, wrapped
from drawing.timeline.schedule import note, trace_of
from lib.cluster.holdings import Holdings, Neighbours
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted, listed
from lib.trace.trace import nothing_to

__all__ = ["draw_mesh", "picture_of_holdings", "picture_of_neighbours"]

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


WIDTH: Final = 840
MARGIN: Final = 18
GAP: Final = 12
NARROW: Final = 30.0
MOST_COLUMNS: Final = 8
MOST_ROWS: Final = 8
MOST_SLICES: Final = 4
"""Of a large mesh the first ranks are shown along each of its directions, and the last."""
FLAT: Final = 3
"""So many axes have a direction each: down, across, and slices beside each other. Of more, axes of size 1 have none,
and those before the last three are blocks below each other."""
MOST_ACROSS: Final = 16
LINE: Final = 15
WRONG: Final = "not right"

Place = tuple[int, ...]


def draw_mesh(
    mesh_or_run: Any,
    axis: str | None = None,
    *,
    groups_of: int | None = None,
    holds: Mapping[int, str] | None = None,
    wrong: Collection[int] = (),
    title: str = "",
) -> Picture:
    """The ranks of a mesh where they stand on its axes; each colour is one group along `axis`.

    It takes a Mesh, a Trace or the Models of a run. Without an axis there is one picture for each of them, together.
    A run without a mesh has one axis, on which all of its ranks stand.

    With `groups_of`, a rank, there is one picture: that rank, and a colour for its group along each axis.

    With `holds`, a word or two for each device that holds something, there is one picture: each device with its host
    and its process, and each colour is what devices hold; {} colours processes. Those that are `wrong` are framed.
    """
    if isinstance(mesh_or_run, Mesh):
        mesh = mesh_or_run
    else:
        if (why := nothing_to("draw", mesh_or_run)) is not None:
            return note(why)
        trace = trace_of(mesh_or_run, "draw_mesh")
        mesh = trace.mesh or Mesh({"rank": trace.ranks})
    if axis is not None and axis not in mesh.axes:
        raise ValueError(f"draw_mesh: the mesh has the axes {list(mesh.axes)}; got {axis!r}")
    if groups_of is not None:
        return picture_of_neighbours(Neighbours(mesh, groups_of, wrong=wrong, title=title))
    if holds is not None:
        return picture_of_holdings(Holdings(mesh, holds, wrong, title))
    panels = [_Panel(mesh, Groups(mesh, one)) for one in ([*mesh.axes] if axis is None else [axis])]
    return _arranged(_title(mesh), "ranks of one colour are one group", panels)


def picture_of_holdings(shown: Holdings) -> Picture:
    """What each device of a mesh holds."""
    face = Held(shown)
    return _arranged(shown.title or _title(shown.mesh), face.legend, [_Panel(shown.mesh, face)], bool(shown.wrong))


def picture_of_neighbours(shown: Neighbours) -> Picture:
    """The groups of one rank of a mesh."""
    legend = f"rank {shown.rank} and the groups that it is in, a colour for each"
    return _arranged(shown.title or _title(shown.mesh), legend, [_Panel(shown.mesh, Near(shown))], bool(shown.wrong))


def _arranged(title: str, legend: str, panels: Sequence[_Panel], framed: bool = False) -> Picture:
    """The panels beside each other where there is room, else below each other."""
    scene = Scene(0, 0)
    x, y, lowest = float(MARGIN), 52.0, 52.0
    for panel in panels:
        if x > MARGIN and x + panel.width > WIDTH - MARGIN:
            x, y = float(MARGIN), lowest + 18
        lowest = max(lowest, panel.paint(scene, x, y))
        scene.width = max(scene.width, x + panel.width + MARGIN)
        x += panel.width + 36
    told = text_width(legend, TEXT) + (44 + text_width(WRONG, TEXT) if framed else 0)
    scene.width = min(WIDTH, max(scene.width, 300, text_width(title, TEXT) + 2 * MARGIN + 60, told + 2 * MARGIN))
    scene.add(Text(MARGIN, 20, fit(title, scene.width - 2 * MARGIN, TEXT * 1.05), TEXT, INK, bold=True))
    scene.add(Text(MARGIN, 37, legend, TEXT, SOFT))
    if framed:
        x = MARGIN + text_width(legend, TEXT) + 22
        scene.add(Rect(x, 30, 16, 14, "none", ALARM, 2.5, radius=4), Text(x + 22, 37, WRONG, TEXT, ALARM))
    scene.height = lowest + 12
    return Picture(scene, f"<{title}. {' '.join(panel.words() for panel in panels)}>")


def _title(mesh: Mesh) -> str:
    sizes = " × ".join(f"{axis} {size}" for axis, size in mesh.axes.items())
    hosts = "" if mesh.host_size is None else f", {counted(-(-len(mesh) // mesh.host_size), 'host', ',')}"
    processes = f", {counted(len(mesh.processes), 'process', ',')}" if len(mesh.processes) < len(mesh) else ""
    return f"Mesh of {counted(len(mesh), 'rank', ',')}: {sizes}{hosts}{processes}"


class _Panel:
    """The mesh with one face: a card for each rank, and what the face says about it."""

    def __init__(self, mesh: Mesh, face: Face) -> None:
        self.mesh = mesh
        self.face = face
        axes = dict(mesh.axes)
        if len(axes) > FLAT:
            axes = {name: size for name, size in axes.items() if size > 1} or dict([axes.popitem()])
        self.names, sizes = [*axes], [*axes.values()]
        self.outer, slices = sizes[:-FLAT], sizes[-FLAT:-2]
        self.rows = few(sizes[-2], MOST_ROWS) if len(sizes) > 1 else [0]
        self.blocks = _places(self.outer, MOST_SLICES)
        self.slices = _places(slices, MOST_SLICES)
        self.columns = few(sizes[-1], min(MOST_COLUMNS, MOST_ACROSS // len(self.slices)))
        self.left = 0.0
        if len(sizes) > 1:
            self.left = max(text_width(f"{self.names[-2]} {row}", TEXT) for row in self.rows if row is not None) + 10
        across = len(self.columns) * len(self.slices)
        room = WIDTH - 2 * MARGIN - self.left - 24 * (len(self.slices) - 1)
        self.card = max(NARROW, min(face.card, room / across - GAP))
        self.width = self.left + across * (self.card + GAP) - GAP + 24 * (len(self.slices) - 1)
        self.width = max(self.width, 260.0)
        self.high = face.high
        self.step = self.high + GAP + (16 if face.hosts else 0)

    def paint(self, scene: Scene, left: float, top: float) -> float:
        """Paints it; where it ends."""
        if self.face.heading:
            scene.add(Text(left, top + 8, self.face.heading, TEXT, INK, bold=True))
        end = top + (22 if self.face.heading else 6)
        for block in self.blocks:
            end = self._block(scene, block, left, end)
        for line in self.face.below(self.width):
            scene.add(Text(left, end + 8, line, TEXT, SOFT))
            end += 16
        return end

    def _block(self, scene: Scene, block: Place | None, left: float, top: float) -> float:
        """All slices at one place on the axes before them; where they end."""
        if block is None:
            scene.add(Text(left, top + 10, "…", 16, SOFT))
            return top + 24
        if block:
            words = " · ".join(f"{axis} {number}" for axis, number in zip(self.names, block, strict=False))
            scene.add(Text(left, top + 10, words, TEXT, INK, bold=True))
            top += 20
        y = top + (24 if self.slices[0] else 0) + 18
        self._names(scene, left, y)
        for number, slice_ in enumerate(self.slices):
            x = left + self.left + number * (len(self.columns) * (self.card + GAP) - GAP + 24)
            if slice_ is None:
                scene.add(Text(x + self.card / 2, y + self.step / 2, "…", 16, SOFT, "middle"))
                continue
            self._slice(scene, (*block, *slice_), x, y)
        return y + len(self.rows) * self.step - GAP + 8

    def _names(self, scene: Scene, left: float, y: float) -> None:
        """The coordinates on the axis that goes down."""
        for number, row in enumerate(self.rows if len(self.names) > 1 else []):
            words = "…" if row is None else f"{self.names[-2]} {row}"
            scene.add(Text(left, y + number * self.step + self.high / 2, words, TEXT, SOFT))

    def _slice(self, scene: Scene, slice_: Place, x: float, y: float) -> None:
        """The grid of the last two axes, at one place on the others."""
        size, blocks = self.card + GAP, len(self.outer)
        if slice_[blocks:]:
            words = f"{self.names[blocks]} {slice_[-1]}"
            middle = x + (len(self.columns) * size - GAP) / 2
            scene.add(Text(middle, y - 32, words, TEXT, INK, "middle", bold=True))
        for number, column in enumerate(self.columns):
            words = "…" if column is None else f"{self.names[-1]} {column}"
            if text_width(words, TEXT) > size - 8:
                words = str(column)
            scene.add(Text(x + number * size + self.card / 2, y - 12, words, TEXT, SOFT, "middle"))
        self._links(scene, slice_, x, y)
        for down, row in enumerate(self.rows):
            for across, column in enumerate(self.columns):
                here = x + across * size, y + down * self.step
                if row is None or column is None:
                    scene.add(Text(here[0] + self.card / 2, here[1] + self.high / 2, "…", 13, SOFT, "middle"))
                else:
                    self._card(scene, *here, self._rank(slice_, row, column))
            if self.face.hosts and row is not None:
                self._host_bars(scene, slice_, row, x, y + down * self.step + self.high)

    def _links(self, scene: Scene, slice_: Place, x: float, y: float) -> None:
        """Bands between neighbours of one group."""
        size, wide, axis = self.card + GAP, 10, self.face.axis
        for (down, row), (across, column) in product(enumerate(self.rows), enumerate(self.columns)):
            if row is None or column is None:
                continue
            left, top = x + across * size, y + down * self.step
            colour = self.face.colour(self._rank(slice_, row, column))
            if axis == self.names[-1] and across + 1 < len(self.columns):
                scene.add(Rect(left + self.card - 4, top + (self.high - wide) / 2, GAP + 8, wide, colour))
            if axis == self.names[-2:][0] != self.names[-1] and down + 1 < len(self.rows):
                length = self.step - self.high + 8
                scene.add(Rect(left + (self.card - wide) / 2, top + self.high - 4, wide, length, colour))

    def _rank(self, slice_: Place, row: int, column: int) -> int:
        place = (*slice_, row, column) if len(self.names) > 1 else (column,)
        return self.mesh.rank(**{**dict.fromkeys(self.mesh.axes, 0), **dict(zip(self.names, place, strict=True))})

    def _card(self, scene: Scene, x: float, y: float, rank: int) -> None:
        colour = self.face.colour(rank)
        if self.face.framed(rank):
            scene.add(Rect(x - 4, y - 4, self.card + 8, self.high + 8, "none", ALARM, 2.5, radius=9))
        edge = EDGE if colour == PAPER else "none"
        scene.add(Rect(x, y, self.card, self.high, colour, edge, radius=6, title=self.face.words(rank)))
        lines = self.face.lines(rank)
        top = y + self.high / 2 - LINE * (len(lines) - 1) / 2
        for number, ways in enumerate(lines):
            words = next((way for way in ways if text_width(way, TEXT) < self.card - 6), ways[-1])
            words = words if len(ways) > 1 else fit(words, self.card - 4, TEXT)
            ink = INK if colour == PAPER else ink_on(colour)
            scene.add(Text(x + self.card / 2, top + LINE * number, words, TEXT, ink, "middle", bold=number == 0))

    def _host_bars(self, scene: Scene, slice_: Place, row: int, x: float, y: float) -> None:
        """A line below the ranks that share a host, with its number."""
        hosts = [None if n is None else self.mesh.host(self._rank(slice_, row, n)) for n in self.columns]
        for begin, end, host in _stretches(hosts):
            left = x + begin * (self.card + GAP)
            width = (end - begin) * (self.card + GAP) - GAP
            scene.add(Rect(left, y + 4, width, 3, EDGE))
            words = f"host {host}" if text_width(f"host {host}", TEXT) < width + GAP else str(host)
            size = text_width(words, TEXT) + 6
            scene.add(Rect(left + (width - size) / 2, y + 9, size, 13, PAPER))  # a band may pass here
            scene.add(Text(left + width / 2, y + 15, words, TEXT, SOFT, "middle"))

    def words(self) -> str:
        """What it shows, for who cannot see it."""
        return self.face.summary(self.width)


def _places(sizes: Sequence[int], most: int) -> list[Place | None]:
    """The places on axes of these sizes, of many the first and the last."""
    return [None if number is None else _digits(number, sizes) for number in few(prod(sizes), most)]


def _digits(number: int, sizes: Sequence[int]) -> Place:
    """A number as coordinates on axes of these sizes, the last of which varies fastest."""
    found: list[int] = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        found.append(digit)
    return tuple(reversed(found))


def _stretches(items: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
    """Where equal items follow each other: the first, the one after the last, and the item."""
    begin = 0
    for place in range(1, len(items) + 1):
        if place == len(items) or items[place] != items[begin]:
            item = items[begin]
            if item is not None:
                yield begin, place, item
            begin = place
