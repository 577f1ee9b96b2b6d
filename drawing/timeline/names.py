"""What rows are called: "rank 3", "ranks 0-3", and in a mesh their coordinates, grouped along its first axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from drawing.canvas.axes import named_every
from drawing.canvas.palette import INK, SOFT
from drawing.canvas.scene import SMALL, TEXT, Poly, Scene, Text, fit, text_width
from drawing.timeline.folding import Fold
from lib.cluster.mesh import Mesh
from lib.errors.wording import numbered, ranges
from lib.trace.trace import Trace

__all__ = ["Name", "groups", "margin", "names", "write_names"]

TWO_LINES: Final = 27
"""Pixels that a row must be high for a name on two lines."""
WIDEST: Final = 150.0
"""Pixels that a name takes at most."""
GAP: Final = 10
"""Pixels between the names and the time axis."""


class Name(NamedTuple):
    """Which ranks a row is of, where these are in their mesh, and the group of rows along its first axis."""

    ranks: str
    place: str = ""
    group: str = ""

    def lines(self, height: float) -> list[str]:
        """The name on as many lines as a row of a height has room for, the place first."""
        if not self.place:
            return [self.ranks]
        return [self.place, self.ranks] if height >= TWO_LINES else [f"{self.place} · {self.ranks}"]


def names(trace: Trace, rows: Sequence[Fold]) -> list[Name]:
    """The names of rows."""
    mesh = trace.mesh
    words = [numbered("rank", row.ranks) for row in rows]
    if mesh is None or len(mesh) != trace.ranks:
        return [Name(text) for text in words]
    first, *others = mesh.axes
    places = [_coordinates(mesh, row.ranks) for row in rows]
    alike = [place[first] for place in places]
    # A bracket is for several rows of one coordinate, beside others of another.
    if others and all(len(found) == 1 for found in alike) and 1 < len({*map(tuple, alike)}) < len(rows):
        return [
            Name(text, _said(mesh, place, others), f"{first} {ranges(place[first])}")
            for text, place in zip(words, places, strict=True)
        ]
    return [Name(text, _said(mesh, place, [*mesh.axes])) for text, place in zip(words, places, strict=True)]


def _coordinates(mesh: Mesh, ranks: Sequence[int]) -> dict[str, list[int]]:
    """The coordinates that some ranks have on each axis."""
    places = [mesh.coordinates(rank) for rank in ranks]
    return {axis: sorted({place[axis] for place in places}) for axis in mesh.axes}


def _said(mesh: Mesh, place: dict[str, list[int]], axes: Sequence[str]) -> str:
    """ "data 1 · stage 2". Of an axis along which all ranks are in a row nothing is said."""
    told = [axis for axis in axes if len(place[axis]) < mesh.axes[axis] or mesh.axes[axis] == 1]
    return " · ".join(f"{axis} {ranges(place[axis])}" for axis in told)


def groups(found: Sequence[Name]) -> list[tuple[str, int, int]]:
    """The groups of rows: what each is called, its first row, and the one after its last."""
    spans: list[tuple[str, int, int]] = []
    for group, same in groupby(enumerate(found), key=lambda item: item[1].group):
        places = [place for place, _ in same]
        if group:
            spans.append((group, places[0], places[-1] + 1))
    return spans


def margin(found: Sequence[Name], height: float) -> float:
    """Pixels that names take left of the time axis."""
    own = max((_width(name, height) for name in found), default=0.0)
    beside = max((text_width(name.group, TEXT) for name in found if name.group), default=0.0)
    return own + GAP + 8 + (beside + 14 if beside else 0)


def _width(name: Name, height: float) -> float:
    sizes = (TEXT, SMALL)
    return min(WIDEST, max(text_width(line, size) for line, size in zip(name.lines(height), sizes, strict=False)))


def write_names(scene: Scene, found: Sequence[Name], tops: Sequence[float], height: float, left: float) -> None:
    """Writes names left of rows whose tops and height are given, with a bracket beside each group."""
    every = named_every(height)
    for place, (name, top) in enumerate(zip(found, tops, strict=True)):
        if place % every == 0:
            _write(scene, name, top + height / 2, height, left - GAP)
    own = max((_width(name, height) for name in found), default=0.0)
    for group, first, after in groups(found):
        x, top, bottom = left - GAP - own - 6, tops[first], tops[after - 1] + height
        scene.add(Poly(((x, top + 1), (x - 4, top + 1), (x - 4, bottom - 1), (x, bottom - 1)), stroke=SOFT))
        scene.add(Text(x - 9, (top + bottom) / 2, group, TEXT, INK, "end"))


def _write(scene: Scene, name: Name, middle: float, height: float, right: float) -> None:
    lines = name.lines(height)
    size = TEXT if height >= 14 else SMALL
    if len(lines) == 1:
        scene.add(Text(right, middle, fit(lines[0], WIDEST, size), size, INK, "end"))
        return
    scene.add(Text(right, middle - 7, fit(lines[0], WIDEST, size), size, INK, "end"))
    scene.add(Text(right, middle + 7, fit(lines[1], WIDEST, SMALL), SMALL, SOFT, "end"))
