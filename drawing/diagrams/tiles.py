"""A value as a tile: shards go down, batches of activations across, and a sum stays as large as one of its summands.

The colour of a part shows its member. Where several brought it, as in a summed gradient, their colours are woven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from drawing.canvas.layout import Box, Piece
from drawing.canvas.palette import EDGE, GRID, INK, PAPER, SOFT, TRACK, ink_on, origin_colour
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fitting, text_width
from lib.errors.wording import numbered, ranges
from lib.values.dims import DIMS, REST, Pieces
from lib.values.placement import Place
from lib.values.values import Value

MOST: Final = 48  # most parts of a tile: in a weight of a thousand shards each part stands for several
STRIPE: Final = 9.0
SQUARE: Final = 76
FLAT: Final = 38  # heights of a weight and of an activation: a batch of activations is half as large as a weight


class Part(NamedTuple):
    """A part of a tile: its number, its place down or across as shares of the whole, and its members."""

    number: int
    begin: float
    size: float
    members: tuple[int, ...]


class Origin(NamedTuple):
    """The values that each member brought, and the `members` whose values may be in a result."""

    brought: Sequence[Sequence[Value]]
    members: Sequence[int]

    def of(self, value: Value, number: int) -> tuple[int, ...]:
        """Return the members that brought a part of a value: a shard, some columns, or a batch of an activation."""
        beside = self.beside(value)
        return tuple(i for i in self.members if any(_is_in(own, value, number, beside) for own in self.brought[i]))

    def beside(self, value: Value) -> Place | None:
        """Return how one of its parts was cut: columns that are gathered are seen side by side."""
        alike = (own.place for i in self.members for own in self.brought[i][:1] if own.kind == value.kind)
        return next(alike, None)


class Laid(NamedTuple):
    """The parts of a value in its tile, of how many: shards and rows go down, columns, features and batches across."""

    held: Pieces
    total: int
    down: bool
    role: str = ""


def laid(place: Place, beside: Place | None = None) -> Laid:
    """Lay a value out in its tile; a whole one as it was joined from the parts `beside` each other."""
    for role in (role for role in place.schema.roles[: place.schema.ndim] if role in REST):
        mine, its = place.part(role), None if beside is None else beside.part(role)
        cut = its if mine is not None and mine.whole and its is not None else mine
        if mine is not None and cut is not None and cut.grid and not cut.whole:
            if place.sharded and not place.first.whole:
                continue
            held = frozenset(range(cut.grid)) if mine.whole else mine.pieces
            return Laid(held, cut.grid, not place.sharded and role != "features", role)
    if place.sharded:
        return Laid(place.shards, place.total, True)
    return Laid(place.batches, place.total_batches, False)


def _is_in(own: Value, value: Value, number: int, beside: Place | None) -> bool:
    mine, its = own.place, value.place
    if own.kind != value.kind or own.layer != value.layer:
        return False
    lies = laid(its, beside)
    if lies.role:
        part = mine.part(lies.role)
        return part is None or part.whole or number in part.pieces
    if not its.sharded:
        return number in mine.batches
    low, high = number * mine.total, (number + 1) * mine.total  # in units of both grids
    if not any(shard * its.total < high and low < (shard + 1) * its.total for shard in mine.shards):
        return False
    return not its.batches or not mine.batches.isdisjoint(its.batches)


def parts(value: Value, members: Callable[[int], tuple[int, ...]], beside: Place | None = None) -> Iterator[Part]:
    """Yield the parts of a value that are there; some of them, where there are too many to be seen."""
    held, total, *_ = laid(value.place, beside)
    shown = min(max(1, total), MOST)
    first: dict[int, int] = {}
    for number in sorted(held):
        if 0 <= number < total:
            first.setdefault(number * shown // total, number)
    for cell, number in first.items():
        yield Part(number, cell / shown, 1 / shown, members(number))


def tile_height(value: Value) -> float:
    """Return the height of a tile; shards few enough to be numbered have room for their numbers."""
    place = value.place
    return max(SQUARE, 14 * place.total if place.total <= 8 else 0) if place.sharded else FLAT


def tile(
    wide: float, value: Value, members: Callable[[int], tuple[int, ...]], of: int, beside: Place | None = None
) -> Piece:
    """Draw a value: its missing parts stay empty. `of` is the size of the group, whose `members` brought a
    part."""
    high = tile_height(value)
    scene, whole = Scene(wide, high, [Rect(0, 0, wide, high, TRACK, GRID)]), Box(0, 0, wide, high)
    place, lies = value.place, laid(value.place, beside)
    shown = [*parts(value, members, beside)]
    if lies.role and DIMS[lies.role].counted:  # of a row alone there is nothing to see
        shown = _runs(shown)
    cells: list[tuple[Part, Box, list[str]]] = []
    for part in shown:
        cell = Box(part.begin * wide, 0, part.size * wide, high)
        cell = Box(0, part.begin * high, wide, part.size * high) if lies.down else cell
        cells.append((part, cell, [origin_colour(member, of) for member in part.members]))
        weave(scene, cell, cells[-1][2], whole)
    for part, cell, colours in cells if lies.total <= MOST else []:
        scene.add(Rect(*cell, "none", PAPER, 1))
        if lies.total > 1 or not place.sharded:
            last = part.number + round(part.size * lies.total) - 1
            write_number(scene, cell, str(part.number) if last == part.number else f"{part.number}-{last}", colours)
    scene.add(Rect(*whole, "none", SOFT if shown else EDGE, 1))
    return Piece(wide, high, scene.marks)


def _runs(found: Iterable[Part]) -> list[Part]:
    """Parts that lie side by side, and come from the same members, as one."""
    joined: list[Part] = []
    for part in found:
        before = joined[-1] if joined else None
        if before and before.members == part.members and abs(before.begin + before.size - part.begin) < part.size / 2:
            joined[-1] = before._replace(size=before.size + part.size)
        else:
            joined.append(part)
    return joined


def write_number(scene: Scene, here: Box, text: str, colours: Sequence[str]) -> None:
    """Write the number of a part, where there is room for it; on paper of its own where colours are woven."""
    wide = text_width(text, TEXT)
    if here.height < 12 or here.width < wide + 2:
        return
    x, y = here.middle
    if len(colours) > 1:
        scene.add(Rect(x - wide / 2 - 4, y - 6, wide + 8, 12, PAPER, radius=5))
    scene.add(Text(x, y, text, TEXT, INK if len(colours) != 1 else ink_on(colours[0]), "middle", bold=True))


def weave(scene: Scene, box: Box, colours: Sequence[str], frame: Box | None = None) -> None:
    """Fill a box with one colour, or with stripes of several. Stripes go on from box to box within a frame."""
    if len(colours) == 1:
        scene.add(Rect(*box, colours[0]))
    if len(colours) < 2:
        return
    x, y = (frame or box).x, (frame or box).y
    low, high = box.x - x + box.y - y, box.x - x + box.width + box.y - y + box.height
    for stripe in range(int(low // STRIPE), int(-(-high // STRIPE))):
        shape = _stripe(box, x + y + stripe * STRIPE, x + y + (stripe + 1) * STRIPE)
        if len(shape) > 2:
            scene.add(Poly(shape, colours[stripe % len(colours)]))


def _stripe(box: Box, low: float, high: float) -> list[tuple[float, float]]:
    """The part of a box where x + y lies between two numbers, as a polygon."""
    right, bottom = box.x + box.width, box.y + box.height
    shape = [(box.x, box.y), (right, box.y), (right, bottom), (box.x, bottom)]
    for limit, sign in ((low, 1), (high, -1)):
        cut: list[tuple[float, float]] = []
        for here, there in zip(shape, [*shape[1:], *shape[:1]], strict=True):
            inside, after = sign * (sum(here) - limit), sign * (sum(there) - limit)
            if inside >= 0:
                cut.append(here)
            if inside * after < 0:
                share = inside / (inside - after)
                cut.append((here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1])))
        shape = cut
    return shape


def plain_tile(wide: float, high: float, value: Value, colours: Sequence[str], others: Sequence[Value]) -> Piece:
    """Draw a value as one of several: its whole box in its colour, with its description, or what differs in it."""
    scene, box = Scene(wide, high), Box(0, 0, wide, high)
    weave(scene, box, colours)
    scene.add(Rect(*box, "none", SOFT))
    parts = {cut[0]: value.place.part(cut[0]) for cut in value.place.rest}
    cuts = [cut for cut in value.place.rest if any(one.place.part(cut[0]) is not parts[cut[0]] for one in others)]
    differs = [words.removeprefix("grid ") for cut in cuts for words in _cut(*cut)[-3:]]
    words = fitting(wide - 6, " · ".join(caption(value)), *differs, caption(value)[0], "")
    write_number(scene, box, words, colours)
    return Piece(wide, high, scene.marks)


def caption(value: Value, room: float = 1000) -> list[str]:
    """Return the lines below a tile: "shard 0 of 4", "sum of batches 0-3"; shorter where there is little
    room."""
    place, lines = value.place, list[str]()
    cut = [fitting(room, *_cut(*one)) for one in place.rest]
    if place.sharded:
        if cut:
            lines += cut
        elif place.total > 1 and len(place.shards) == place.total:
            lines.append("both shards" if place.total == 2 else f"all {place.total} shards")
        elif place.total > 1:
            shards = numbered("shard", place.shards)
            lines.append(fitting(room, f"{shards} of {place.total}", shards))
        elif not place.total_batches:
            lines.append("whole")
    if place.total_batches:
        batches = numbered("batch", place.batches) if place.batches else "no batches"
        summed = place.sharded and len(place.batches) > 1
        lines.append(fitting(room, f"sum of {batches}" if summed else batches, batches, ranges(place.batches)))
        lines += cut if not place.sharded else []
    return lines


def _cut(role: str, pieces: Pieces, grid: int) -> list[str]:
    """The words for a part of a dim, or of a sum, from the longest to the shortest."""
    kind = DIMS[role]
    if not pieces and not kind.partial:
        return [f"no {kind.plural}"]
    numbers = f"{kind.plural} {ranges(pieces) or 'none'}"
    shorter = [f"{numbers} of {grid}", numbers, f"{len(pieces)} of {grid} {kind.plural}", ranges(pieces) or "none"]
    return [f"{shorter[0]} of a sum", *shorter] if kind.partial else shorter
