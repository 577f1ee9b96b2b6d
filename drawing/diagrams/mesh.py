"""draw_mesh: the ranks of a mesh on its axes, with the groups along each, those of one rank, or what devices hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any, Final

from drawing.canvas.layout import MARGIN, Piece, card, few, flow, hcat, heading, label, pad, vcat
from drawing.canvas.palette import ALARM, EDGE, MINE, PAPER, SOFT, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, fit, fitting, text_width, wrapped
from drawing.timeline.schedule import note, trace_of
from lib.cluster.layouts import Holdings, Neighbours
from lib.cluster.mesh import Mesh
from lib.errors.wording import counted, listed
from lib.trace.trace import nothing_to

WIDTH: Final = 840
GAP: Final = 12
MOST: Final = 8
"""Rows and columns of cards: of a large mesh the first are shown, and the last. Half as many slices and blocks."""
LISTED: Final = 6  # most groups described in words
JOINED: Final = ",_"  # a comma between ranks that must not be split over two lines

Coordinates = tuple[int, ...]


def draw_mesh(
    mesh_or_run: Any, axis: str | None = None, *, groups_of: int | None = None,
    holds: Mapping[int, str] | None = None, wrong: Collection[int] = (), title: str = "",
) -> Picture:  # fmt: skip
    """Draw the ranks of a mesh where they stand on its axes; each colour is one group along `axis`.

    It takes a Mesh, a Trace or the Models of a run. Without an axis there is one picture for each of them, together.
    A run without a mesh has one axis, on which all of its ranks stand.

    With `groups_of`, a rank, there is one picture: that rank, and a colour for its group along each axis.

    With `holds`, a word or two for each device that holds something, there is one picture: each device with its host
    and its process, and each colour is what devices hold; {} colours processes. Those that are `wrong` are framed.

    >>> print(draw_mesh(Mesh({"data": 2, "model": 2})).words.split(". ")[1])
    Along data: 2 groups of 2 that share model: [0, 2], [1, 3]
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
    faces = [_groups(mesh, one) for one in ([*mesh.axes] if axis is None else [axis])]
    return _picture("", "ranks of one colour are one group", *faces)


@dataclass(frozen=True)
class Face:
    """One way to look at a mesh: the colour of the card of each rank, and what stands on it.

    Each line comes in several wordings, the longest first. Cards are `wide` pixels wide, where there is room, and
    `high`. `pointed` is their tooltip. Neighbours along `axis` are joined, and `hosts` are named below the cards.
    `below` is written under the mesh, and `words` describe everything to those who cannot see it.
    """

    mesh: Mesh
    wide: float
    high: float
    hosts: bool
    colour: Callable[[int], str]
    lines: Callable[[int], Sequence[Sequence[str]]]
    words: str
    pointed: Callable[[int], str] = lambda rank: ""
    heading: str = ""
    axis: str | None = None
    below: Sequence[str] = ()
    wrong: Collection[int] = ()


def _groups(mesh: Mesh, axis: str) -> Face:
    others = {name: size for name, size in mesh.axes.items() if name != axis}
    sizes, count = [*others.values()], prod(others.values())

    def colour(rank: int) -> str:
        number, place = 0, mesh.coordinates(rank)
        for name, size in others.items():
            number = number * size + place[name]
        return origin_colour(number, count)

    places = [dict(zip(others, _digits(number, sizes), strict=True)) for number in range(min(count, LISTED))]
    members = [listed(mesh.group(mesh.rank(**{axis: 0}, **place), axis), 8) for place in places]
    shared = f" that share {_together([*others])}" if others else ""
    told = f"{counted(count, 'group', ',')} of {len(mesh) // count}{shared}: {', '.join(members)}"
    told += " …" if count > LISTED else ""
    below = [told.replace(", ", JOINED).replace("]" + JOINED, "], ")]
    hosts, names, words = mesh.host_size is not None, f"groups along {axis}", f"Along {axis}: {told}."
    return Face(mesh, 72, 34, hosts, colour, _name, words, heading=names, axis=axis, below=below)


def _name(rank: int) -> list[tuple[str, str]]:
    return [(f"rank {rank}", str(rank))]


def picture_of_neighbours(shown: Neighbours) -> Picture:
    """Draw one rank of a mesh, and its groups, a colour for each. A rank in several has the colour of the first."""
    mesh, groups = shown.mesh, shown.named()

    def names(rank: int) -> list[str]:
        """The groups that it shares with the rank."""
        return [] if rank == shown.rank else [name for name, group in groups.items() if rank in group]

    def colour(rank: int) -> str:
        if rank == shown.rank or not names(rank):
            return MINE if rank == shown.rank else PAPER
        return origin_colour([*groups].index(names(rank)[0]), len(groups))

    def lines(rank: int) -> list[tuple[str, ...]]:
        return [*_name(rank), *([(" + ".join(names(rank)), *names(rank)[:1])] if names(rank) else [])]

    def pointed(rank: int) -> str:
        beside = f": in the group along {_together(names(rank))}" if names(rank) else ""
        return f"{mesh.named(rank)}{beside}"

    below = [f"{name}: {listed(group, 16)}" for name, group in groups.items()]
    wrong = f" Not right: {', '.join(f'rank {rank}' for rank in shown.wrong)}." if shown.wrong else ""
    words = f"The groups of rank {shown.rank}: {'; '.join(below)}.{wrong}"
    below, hosts = [line.replace(", ", JOINED) for line in below], mesh.host_size is not None
    face = Face(mesh, 88, 34, hosts, colour, lines, words, pointed, below=below, wrong=shown.wrong)
    return _picture(shown.title, f"rank {shown.rank} and the groups that it is in, a colour for each", face)


def picture_of_holdings(shown: Holdings) -> Picture:
    """Draw what each device holds, with its host and process: a colour for each different thing, or each process."""
    mesh = shown.mesh
    several = shown.processes or len(mesh.processes) < len(mesh)
    held = dict.fromkeys(shown.holds.get(rank, "") for rank in mesh.ranks)
    kinds = {words: number for number, words in enumerate(filter(None, held))}

    def colour(rank: int) -> str:
        if not kinds:
            return origin_colour(mesh.process(rank), len(mesh.processes))
        kind = kinds.get(shown.holds.get(rank, ""))
        return PAPER if kind is None else origin_colour(kind, len(kinds))

    def where(rank: int) -> list[tuple[str, str]]:
        host = [] if mesh.host_size is None else [(f"host {mesh.host(rank)}", f"h{mesh.host(rank)}")]
        process = [(f"process {mesh.process(rank)}", f"p{mesh.process(rank)}")] if several else []
        return [(f"device {rank}", str(rank)), *host, *process]

    def lines(rank: int) -> list[tuple[str, ...]]:
        return [*where(rank), *([(shown.holds.get(rank, ""),)] if shown.holds else [])]

    def pointed(rank: int) -> str:
        device, *others = [full for full, _ in where(rank)]
        of = f" of {', '.join(others)}" if others else ""
        holds = f": {shown.holds[rank]}" if shown.holds.get(rank) else ""
        return f"{device}{of} ({mesh.shared([rank])}){holds}"

    told = [*map(pointed, mesh.ranks[:64]), *(["…"] if len(mesh) > 64 else [])]
    wrong = [f"Not right: {', '.join(f'device {rank}' for rank in shown.wrong)}"] if shown.wrong else []
    words = ". ".join(["; ".join(told), *wrong]) + "."
    high = 4.0 + 15 * max(2, len(lines(mesh.ranks[0])))
    face = Face(mesh, 118, high, False, colour, lines, words, pointed, wrong=shown.wrong)
    same = "hold the same" if kinds else "belong to one process"
    return _picture(shown.title, f"devices of one colour {same}", face)


def _together(names: Sequence[str]) -> str:
    """Names in a sentence: "data", "data and stage", "pod, data and stage"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _picture(title: str, legend: str, *faces: Face) -> Picture:
    """The faces beside each other where there is room, else below each other."""
    mesh = faces[0].mesh
    sizes = " × ".join(f"{axis} {size}" for axis, size in mesh.axes.items())
    hosts = "" if mesh.host_size is None else f", {counted(-(-len(mesh) // mesh.host_size), 'host', ',')}"
    processes = f", {counted(len(mesh.processes), 'process', ',')}" if len(mesh.processes) < len(mesh) else ""
    title = title or f"Mesh of {counted(len(mesh), 'device' if processes else 'rank', ',')}: {sizes}{hosts}{processes}"
    panels = flow((_Panel(face).piece() for face in faces), WIDTH - 2 * MARGIN, 36, 18)
    told = text_width(legend, TEXT) + 22
    wrong = label("not right", fill=ALARM) if faces[0].wrong else Piece(0, 0)
    least = max(264, text_width(title, TEXT) + 60, told + (22 + wrong.width if wrong.marks else 0), panels.width)
    whole = vcat([heading(title, legend, min(WIDTH - 2 * MARGIN, least)), panels], 4)
    scene = Scene(whole.width + 2 * MARGIN, whole.height + 24, whole.at(MARGIN, 12))
    if wrong.marks:
        scene.add(Rect(MARGIN + told, 32, 16, 14, "none", ALARM, 2.5, radius=4), *wrong.at(MARGIN + told + 22, 31.5))
    return Picture(scene, f"<{title}. {' '.join(face.words for face in faces)}>")


class _Panel:
    """The mesh with one face: a card for each rank.

    Three axes have a direction each: down, across, and slices beside each other. With more, axes of size 1 have none,
    and those before the last three are blocks below each other.
    """

    def __init__(self, face: Face) -> None:
        self.face = face
        axes = dict(face.mesh.axes)
        if len(axes) > 3:
            axes = {name: size for name, size in axes.items() if size > 1} or dict([axes.popitem()])
        self.names, sizes = [*axes], [*axes.values()]
        self.rows = few(sizes[-2], MOST) if len(sizes) > 1 else [0]
        self.blocks, self.slices = (
            [None if number is None else _digits(number, some) for number in few(prod(some), MOST // 2)]
            for some in (sizes[:-3], sizes[-3:-2])
        )
        self.columns = few(sizes[-1], min(MOST, 2 * MOST // len(self.slices)))
        self.left = 0.0
        if len(sizes) > 1:
            self.left = max(text_width(f"{self.names[-2]} {row}", TEXT) for row in self.rows if row is not None) + 10
        across = len(self.columns) * len(self.slices)
        room = WIDTH - 2 * MARGIN - self.left - 24 * (len(self.slices) - 1)
        self.card = max(30.0, min(face.wide, room / across - GAP))

    def piece(self) -> Piece:
        face = self.face
        parts = [label(face.heading, bold=True, height=22)] if face.heading else []
        parts += [self._block(block) for block in self.blocks]
        width = max(260.0, *(part.width for part in parts))
        lines = [line for text in face.below for line in wrapped(text, width, TEXT)]
        parts += [label(line.replace(JOINED, ", "), fill=SOFT, height=16) for line in lines]
        return vcat([Piece(width, 0), *parts])

    def _block(self, block: Coordinates | None) -> Piece:
        if block is None:
            return label("…", size=16, fill=SOFT, height=24)
        words = " · ".join(f"{axis} {number}" for axis, number in zip(self.names, block, strict=False))
        high = self.face.high + (16 if self.face.hosts else 0)
        rows = [Piece(self.left, 0)]
        for row in self.rows if len(self.names) > 1 else []:
            words_ = "…" if row is None else f"{self.names[-2]} {row}"
            rows.append(pad(label(words_, fill=SOFT, height=self.face.high), bottom=high - self.face.high))
        names = pad(vcat(rows, GAP), top=18 - GAP + (24 if self.slices[0] else 0))
        slices = hcat([self._slice(block, one) for one in self.slices], 24, 0)
        grid = hcat([names, pad(slices, left=self.left - names.width)], align=0)
        return pad(vcat([*([label(words, bold=True, height=20)] if block else []), grid]), bottom=8)

    def _slice(self, block: Coordinates, slice_: Coordinates | None) -> Piece:
        """The grid of the last two axes, at one place on the others."""
        if slice_ is None:
            return label("…", self.card, 16, SOFT, anchor="middle", height=2 * self.face.high)
        names = [f"{self.names[-1]} {column}" for column in self.columns]
        if any(text_width(name, TEXT) > self.card + GAP - 8 for name in names):
            names = [str(column) for column in self.columns]
        names = ["…" if column is None else name for name, column in zip(names, self.columns, strict=True)]
        top = hcat([label(name, self.card, fill=SOFT, anchor="middle", height=12) for name in names], GAP)
        rows = vcat([self._row((*block, *slice_), row) for row in self.rows], GAP)
        words = [f"{self.names[len(block)]} {number}" for number in slice_]
        names_ = [label(line, rows.width, bold=True, anchor="middle", height=24) for line in words]
        return vcat([*names_, pad(top, bottom=6), rows])

    def _row(self, before: Coordinates, row: int | None) -> Piece:
        """The cards of a row, and below them the hosts that they are on."""
        high = self.face.high
        if row is None:
            dots = label("…", self.card, 13, SOFT, anchor="middle", height=high + (16 if self.face.hosts else 0))
            return hcat([dots] * len(self.columns), GAP)
        place = (*before, row) if len(self.names) > 1 else ()
        first, mesh = dict.fromkeys(self.face.mesh.axes, 0), self.face.mesh
        ranks = [
            None if column is None else mesh.rank(**{**first, **dict(zip(self.names, (*place, column), strict=True))})
            for column in self.columns
        ]
        cards = [label("…", self.card, 13, SOFT, anchor="middle") if rank is None else self._card(rank, row, number)
                 for number, rank in enumerate(ranks)]  # fmt: skip
        return vcat([hcat(cards, GAP), *([self._hosts(ranks)] if self.face.hosts else [])])

    def _card(self, rank: int, row: int, column: int) -> Piece:
        """A card with a band to the next rank of its group, on the right or below."""
        face, wide, high = self.face, self.card, self.face.high
        colour = face.colour(rank)
        lines = [fitting(wide - 6, *ways) if len(ways) > 1 else fit(ways[0], wide - 4, TEXT)
                 for ways in face.lines(rank)]  # fmt: skip
        piece, marks = card(wide, high, colour, lines, title=face.pointed(rank)), list[Rect]()
        if face.axis == self.names[-1] and column + 1 < len(self.columns):
            marks.append(Rect(wide - 4, (high - 10) / 2, GAP + 8, 10, colour))
        elif face.axis in self.names[-2:-1] and row != self.rows[-1]:
            marks.append(Rect((wide - 10) / 2, high - 4, 10, GAP + 8 + (16 if face.hosts else 0), colour))
        if rank in face.wrong:
            marks.append(Rect(-4, -4, wide + 8, high + 8, "none", ALARM, 2.5, radius=9))
        return Piece(wide, high, [*piece.marks, *marks])

    def _hosts(self, ranks: Sequence[int | None]) -> Piece:
        bars: list[Piece] = []
        mesh = self.face.mesh
        for host, same in groupby(ranks, key=lambda rank: None if rank is None else mesh.host(rank)):
            width = len([*same]) * (self.card + GAP) - GAP
            words = fitting(width + GAP, f"host {host}", str(host))
            size = text_width(words, TEXT) + 6
            line, plate = Rect(0, 4, width, 3, EDGE), Rect((width - size) / 2, 9, size, 13, PAPER)  # a band may pass
            marks = [line, plate, Text(width / 2, 15, words, TEXT, SOFT, "middle")]
            bars.append(Piece(width, 16, [] if host is None else marks))
        return hcat(bars, GAP)


def _digits(number: int, sizes: Sequence[int]) -> Coordinates:
    """A number as coordinates on axes of these sizes, the last of which varies fastest."""
    digits: list[int] = []
    for size in reversed(sizes):
        number, digit = divmod(number, size)
        digits.append(digit)
    return tuple(reversed(digits))
