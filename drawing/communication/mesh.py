"""draw_mesh: the ranks of a mesh on their axes, and the groups along each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, ink_on, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, text_width, wrapped
from drawing.timeline.schedule import note, trace_of
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted, listed
from lib.trace.trace import nothing_to

__all__ = ["draw_mesh"]

WIDTH: Final = 840
MARGIN: Final = 18
GAP: Final = 12
CARD: Final = 72.0
NARROW: Final = 30.0
HEIGHT: Final = 34
MOST_COLUMNS: Final = 8
MOST_ROWS: Final = 8
MOST_SLICES: Final = 4
"""Of a large mesh the first ranks are shown along each of its directions, and the last."""
MOST_ACROSS: Final = 16
LISTED: Final = 6
JOINED: Final = ",_"

Place = tuple[int, ...]


def draw_mesh(mesh_or_run: Any, axis: str | None = None) -> Picture:
    """The ranks of a mesh where they stand on its axes; each colour is one group along `axis`.

    It takes a Mesh, a Trace or the Models of a run. Without an axis there is one picture for each of them, together.
    A run without a mesh has one axis, on which all of its ranks stand.
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
    panels = [_Panel(mesh, one) for one in ([*mesh.axes] if axis is None else [axis])]
    return _arranged(mesh, panels)


def _arranged(mesh: Mesh, panels: Sequence[_Panel]) -> Picture:
    """The panels beside each other where there is room, else below each other."""
    scene = Scene(0, 0)
    x, y, lowest = float(MARGIN), 52.0, 52.0
    for panel in panels:
        if x > MARGIN and x + panel.width > WIDTH - MARGIN:
            x, y = float(MARGIN), lowest + 18
        lowest = max(lowest, panel.paint(scene, x, y))
        scene.width = max(scene.width, x + panel.width + MARGIN)
        x += panel.width + 36
    title = _title(mesh)
    scene.width = max(scene.width, 300, text_width(title, TEXT) + 2 * MARGIN + 60)
    scene.add(Text(MARGIN, 20, title, TEXT, INK, bold=True))
    scene.add(Text(MARGIN, 37, "ranks of one colour are one group", TEXT, SOFT))
    scene.height = lowest + 12
    return Picture(scene, f"<{title}. {' '.join(panel.words() for panel in panels)}>")


def _title(mesh: Mesh) -> str:
    sizes = " × ".join(f"{axis} {size}" for axis, size in mesh.axes.items())
    hosts = "" if mesh.host_size is None else f", {counted(-(-len(mesh) // mesh.host_size), 'host', ',')}"
    return f"Mesh of {counted(len(mesh), 'rank', ',')}: {sizes}{hosts}"


class _Panel:
    """The mesh with its groups along one axis."""

    def __init__(self, mesh: Mesh, axis: str) -> None:
        self.mesh = mesh
        self.axis = axis
        self.names = [*mesh.axes]
        sizes = [*mesh.axes.values()]
        self.rows = _few(sizes[-2], MOST_ROWS) if len(sizes) > 1 else [0]
        self.slices = [None if n is None else _digits(n, sizes[:-2]) for n in _few(prod(sizes[:-2]), MOST_SLICES)]
        self.columns = _few(sizes[-1], min(MOST_COLUMNS, MOST_ACROSS // len(self.slices)))
        self.groups = len(mesh) // mesh.axes[axis]
        self.left = 0.0
        if len(sizes) > 1:
            self.left = max(text_width(f"{self.names[-2]} {row}", TEXT) for row in self.rows if row is not None) + 10
        across = len(self.columns) * len(self.slices)
        room = WIDTH - 2 * MARGIN - self.left - 24 * (len(self.slices) - 1)
        self.card = max(NARROW, min(CARD, room / across - GAP))
        self.width = self.left + across * (self.card + GAP) - GAP + 24 * (len(self.slices) - 1)
        self.width = max(self.width, 260.0)
        self.hosts = mesh.host_size is not None
        self.step = HEIGHT + GAP + (16 if self.hosts else 0)

    def _group(self, rank: int) -> int:
        """The number of the group that a rank is in, in the order of the devices."""
        found = 0
        for axis, number in self.mesh.coordinates(rank).items():
            if axis != self.axis:
                found = found * self.mesh.axes[axis] + number
        return found

    def _heading(self) -> str:
        return f"groups along {self.axis}"

    def paint(self, scene: Scene, left: float, top: float) -> float:
        """Paints it; where it ends."""
        scene.add(Text(left, top + 8, self._heading(), TEXT, INK, bold=True))
        y = top + 22 + (24 if self.slices[0] else 0) + 18
        self._names(scene, left, y)
        for number, slice_ in enumerate(self.slices):
            x = left + self.left + number * (len(self.columns) * (self.card + GAP) - GAP + 24)
            if slice_ is None:
                scene.add(Text(x + self.card / 2, y + self.step / 2, "…", 16, SOFT, "middle"))
                continue
            self._slice(scene, slice_, x, y)
        end = y + len(self.rows) * self.step - GAP + 8
        for line in self._lines():
            scene.add(Text(left, end + 8, line, TEXT, SOFT))
            end += 16
        return end

    def _names(self, scene: Scene, left: float, y: float) -> None:
        """The coordinates on the axis that goes down."""
        for number, row in enumerate(self.rows if len(self.names) > 1 else []):
            words = "…" if row is None else f"{self.names[-2]} {row}"
            scene.add(Text(left, y + number * self.step + HEIGHT / 2, words, TEXT, SOFT))

    def _slice(self, scene: Scene, slice_: Place, x: float, y: float) -> None:
        """The grid of the last two axes, at one place on the others."""
        size = self.card + GAP
        if slice_:
            words = " · ".join(f"{axis} {number}" for axis, number in zip(self.names, slice_, strict=False))
            middle = x + (len(self.columns) * size - GAP) / 2
            scene.add(Text(middle, y - 32, words, TEXT, INK, "middle", bold=True))
        for number, column in enumerate(self.columns):
            words = "…" if column is None else f"{self.names[-1]} {column}"
            if text_width(words, TEXT) > size:
                words = str(column)
            scene.add(Text(x + number * size + self.card / 2, y - 12, words, TEXT, SOFT, "middle"))
        self._links(scene, slice_, x, y)
        for down, row in enumerate(self.rows):
            for across, column in enumerate(self.columns):
                here = x + across * size, y + down * self.step
                if row is None or column is None:
                    scene.add(Text(here[0] + self.card / 2, here[1] + HEIGHT / 2, "…", 13, SOFT, "middle"))
                else:
                    self._card(scene, *here, self._rank(slice_, row, column))
            if self.hosts and row is not None:
                self._host_bars(scene, slice_, row, x, y + down * self.step + HEIGHT)

    def _links(self, scene: Scene, slice_: Place, x: float, y: float) -> None:
        """Bands between neighbours of one group."""
        size, wide = self.card + GAP, 10
        for (down, row), (across, column) in product(enumerate(self.rows), enumerate(self.columns)):
            if row is None or column is None:
                continue
            left, top = x + across * size, y + down * self.step
            colour = self._colour(self._rank(slice_, row, column))
            if self.axis == self.names[-1] and across + 1 < len(self.columns):
                scene.add(Rect(left + self.card - 4, top + (HEIGHT - wide) / 2, GAP + 8, wide, colour))
            if self.axis == self.names[-2:][0] != self.names[-1] and down + 1 < len(self.rows):
                scene.add(Rect(left + (self.card - wide) / 2, top + HEIGHT - 4, wide, self.step - HEIGHT + 8, colour))

    def _colour(self, rank: int) -> str:
        return origin_colour(self._group(rank), self.groups)

    def _rank(self, slice_: Place, row: int, column: int) -> int:
        place = (*slice_, row, column) if len(self.names) > 1 else (column,)
        return self.mesh.rank(**dict(zip(self.names, place, strict=True)))

    def _card(self, scene: Scene, x: float, y: float, rank: int) -> None:
        colour = self._colour(rank)
        scene.add(Rect(x, y, self.card, HEIGHT, colour, radius=6))
        words = f"rank {rank}" if text_width(f"rank {rank}", TEXT) < self.card - 6 else str(rank)
        scene.add(Text(x + self.card / 2, y + HEIGHT / 2, words, TEXT, ink_on(colour), "middle", bold=True))

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

    def _lines(self) -> list[str]:
        """The groups in words, of many the first."""
        others = [name for name in self.names if name != self.axis]
        shared = f" that share {together(others)}" if others else ""
        words = f"{counted(self.groups, 'group', ',')} of {self.mesh.axes[self.axis]}{shared}:".split()
        groups = ", ".join(listed(group, 8).replace(", ", JOINED) for group in self._members())
        more = " …" if self.groups > LISTED else ""
        # A group stays on one line, where that is long enough.
        return [line.replace(JOINED, ", ") for line in wrapped(" ".join([*words, groups + more]), self.width, TEXT)]

    def _members(self) -> list[Place]:
        """The groups, of many the first."""
        others = {name: size for name, size in self.mesh.axes.items() if name != self.axis}
        found: list[Place] = []
        for number in range(min(self.groups, LISTED)):
            place = dict(zip(others, _digits(number, [*others.values()]), strict=True))
            found.append(self.mesh.group(self.mesh.rank(**place, **{self.axis: 0}), self.axis))
        return found

    def words(self) -> str:
        """What it shows, for who cannot see it."""
        return f"Along {self.axis}: {' '.join(self._lines())}."


def together(names: Sequence[str]) -> str:
    """Names in a sentence: "data", "data and stage", "pod, data and stage"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _digits(number: int, sizes: Sequence[int]) -> Place:
    """A number as coordinates on axes of these sizes, the last of which varies fastest."""
    found: list[int] = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        found.append(digit)
    return tuple(reversed(found))


def _few(count: int, most: int) -> list[int | None]:
    """The numbers below a count, of many the first and the last with None between."""
    return [*range(count)] if count <= most else [*range(most - 2), None, count - 1]


def _stretches(items: Sequence[int | None]) -> Iterator[tuple[int, int, int]]:
    """Where equal items follow each other: the first, the one after the last, and the item."""
    begin = 0
    for place in range(1, len(items) + 1):
        if place == len(items) or items[place] != items[begin]:
            item = items[begin]
            if item is not None:
                yield begin, place, item
            begin = place
