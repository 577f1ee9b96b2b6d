"""draw_collective: one collective or message over all its ranks, before and after, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drawing.canvas.layout import arrow, curve
from drawing.canvas.palette import ALARM, ALARM_PALE, EDGE, INK, PAPER, SOFT, TRACK, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fit, text_width
from drawing.diagrams.exchange import Exchange, Seat, beside, chosen, cost, group_name, headline, idea, is_cut, summary
from drawing.diagrams.tiles import Box, Origin, caption, laid, plain_tile, tile, tile_height, weave
from drawing.timeline.schedule import note, trace_of
from lib.trace.trace import Trace, nothing_to
from lib.values.laws import gather, reduce
from lib.values.values import Value

__all__ = ["draw_collective"]

MARGIN: Final = 18
LEFT: Final = 62
"""Pixels for the words "before" and "after"."""
WIDTH: Final = 840
NARROWEST: Final = 500.0
MOST: Final = 10
"""Columns in one picture: of more ranks the first and the last, and of groups side by side as many as fit."""
COLUMN: Final = 132
BAR: Final = 38
ARROW: Final = 30
CROSSING: Final = 70
"""Height of the arrows that go straight from rank to rank."""
BETWEEN: Final = 26


def draw_collective(run: Any, which: str | None = None, layer: int | None = None) -> Picture:
    """One collective of a run, before and after, over all its ranks: the first, or the first of a name and a layer.

    `run` is a Trace, or the Models that simulate returned. `which` is "allreduce", "all-gather", "pass_to", or what
    else the run has. On a mesh the groups that do the same stand side by side.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_collective")
    one = chosen(trace, which, layer, "draw_collective")
    if one is None:
        return note("the ranks of this run never communicate")
    return _Picture(trace, beside(trace, one, layer), one).picture()


@dataclass
class Column:
    """One rank of the picture: `place` is its place in the group; -1 stands for those that are left out."""

    place: int
    x: float = 0.0


class _Picture:
    """The picture of one exchange, with those beside it that do the same in other groups."""

    def __init__(self, trace: Trace, groups: list[Exchange], one: Exchange) -> None:
        self.trace = trace
        self.one = one
        self.shown = self._fitting(groups)
        self.columns = [_columns(len(each.seats)) for each in self.shown]
        count = sum(map(len, self.columns))
        room = WIDTH - 2 * MARGIN - LEFT - BETWEEN * (len(self.shown) - 1)
        self.column = min(float(COLUMN), room / count)
        self.tile = min(88.0, self.column - 14)
        x = float(MARGIN + LEFT)
        for columns in self.columns:
            for column in columns:
                column.x = x + self.column / 2
                x += self.column
            x += BETWEEN
        natural = x - BETWEEN + MARGIN
        self.width = max(NARROWEST, float(round(natural)))
        for column in (column for columns in self.columns for column in columns):
            column.x += (self.width - natural) / 2
        self.scene = Scene(self.width, 0)

    def _fitting(self, groups: list[Exchange]) -> list[Exchange]:
        """As many groups as fit side by side, the one that was asked for among them."""
        size = len(_columns(len(self.one.seats)))
        count = max(1, MOST // size)
        first = max(0, min(groups.index(self.one), len(groups) - count))
        self.left_out = max(0, len(groups) - count)
        return groups[first : first + count]

    def picture(self) -> Picture:
        """Paints it from top to bottom."""
        scene, one, room = self.scene, self.one, self.width - 2 * MARGIN
        y = scene.paragraph(MARGIN, 20, headline(self.shown), room, 17, bold=True)
        y = scene.paragraph(MARGIN, y, idea(one), room, 16, SOFT if one.happened else ALARM) + 4
        if len(self.shown) > 1:
            self._group_names(y + 4)
            y += 28
        y = self._side(0, y + 18)
        direct = one.row is None or one.row.law not in (gather, reduce)
        below = y + (BAR + 2 * ARROW if not direct else CROSSING) if one.happened else y + BAR + 8
        for each, columns in zip(self.shown, self.columns, strict=True):
            paint = self._never if not one.happened else self._direct if direct else self._bar
            paint(each, columns, y, below)
        y = self._side(1, below + 4) if one.happened else below
        y = scene.paragraph(MARGIN, y + 14, cost(one, self.left_out), room, 16)
        scene.height = y + 2
        return Picture(scene, summary(self.trace, one))

    def _side(self, side: int, y: float) -> float:
        """What all have before or after, below a height; where it ends."""
        seats = [seat for each in self.shown for seat in each.seats]
        height = max(_stack_height(self._values(seat, side)) for seat in seats)
        lines = max(len(self._below(each, seat, side)) for each in self.shown for seat in each.seats)
        for each, columns in zip(self.shown, self.columns, strict=True):
            for column in columns:
                self._seat(each, column, side, Box(column.x - self.tile / 2, y, self.tile, height))
        word = "after" if side else "before"
        self.scene.add(Text(MARGIN, y + height / 2, word, 13, SOFT, bold=True))
        return y + height + 6 + 15 * lines + 4

    def _group_names(self, y: float) -> None:
        for each, columns in zip(self.shown, self.columns, strict=True):
            left, right = columns[0].x - self.column / 2 + 4, columns[-1].x + self.column / 2 - 4
            words = fit(group_name(self.trace, each), right - left, TEXT)
            self.scene.add(Text((left + right) / 2, y + 2, words, TEXT, INK, "middle", bold=True))
            self.scene.add(Poly(((left, y + 12), (right, y + 12)), stroke=EDGE))

    def _values(self, seat: Seat, side: int) -> Sequence[Value]:
        return seat.got if side else seat.brought

    def _below(self, each: Exchange, seat: Seat, side: int) -> list[str]:
        """The lines below a tile."""
        if side == 0 and seat.called is None:
            return ["never came"]
        if side == 0 and not all(other.fits for other in each.seats):
            name, _, about = (seat.called or "").partition(" of ")
            return [f"called {name}", f"of {about}"] if about else [f"called {name}"]
        values = self._values(seat, side)
        if side == 0 and each.happened and each.row is not None and each.row.in_place:
            place = each.seats.index(seat)
            if place not in self._members(each, place):
                return ["overwritten"]
        if len(values) == 1:
            return caption(values[0], self.column - 4)
        return [f"{len(values)} values"] if values else []

    def _seat(self, each: Exchange, column: Column, side: int, box: Box) -> None:
        """One rank before or after: its name, its tiles, and words below."""
        scene, x, y = self.scene, column.x, box.y
        if column.place < 0:
            scene.add(Text(x, y + box.height / 2, "…", 16, SOFT, "middle"))
            return
        seat = each.seats[column.place]
        alarm = seat.called is None or not seat.fits
        if not side:
            root = each.row is not None and each.row.root is not None and each.root == column.place
            name = f"rank {seat.rank}" + (" (root)" if root else "")
            name = name if text_width(name, TEXT) < self.column else str(seat.rank)
            scene.add(Text(x, y - 11, name, TEXT, ALARM if alarm else INK, "middle", bold=True))
        self._stack(each, column, side, box)
        for number, line in enumerate(self._below(each, seat, side)):
            place = y + box.height + 13 + 15 * number
            scene.add(Text(x, place, fit(line, self.column - 2, TEXT), TEXT, ALARM if alarm else SOFT, "middle"))

    def _stack(self, each: Exchange, column: Column, side: int, box: Box) -> None:
        """What one rank has: a tile, several on top of each other, or none."""
        seat, size = each.seats[column.place], len(each.seats)
        values = self._values(seat, side)
        if not values:
            self._nothing(each, seat, side, box)
            return
        top = box.y + (box.height - _stack_height(values)) / 2
        origin = Origin([other.brought for other in each.seats], self._members(each, column.place))
        for number, value in enumerate(values):
            here = Box(box.x, top, box.width, _height(value, len(values)))
            if len(values) > 1:
                member = column.place if not side else next(_sources(origin, value, number), column.place)
                plain_tile(self.scene, here, value, [origin_colour(member, size)], values)
            else:
                colours = _colours(origin, value, column.place if not side else -1)
                tile(self.scene, here, value, colours, size, origin.beside(value))
            top += here.height + 4

    def _nothing(self, each: Exchange, seat: Seat, side: int, box: Box) -> None:
        """A rank that has nothing here: because it never came, or because nothing is for it."""
        came = side or seat.called is not None
        if each.row is None and came:
            return  # who sends may keep what it sent; only what moves is drawn
        frame = Rect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, "none" if came else ALARM_PALE)
        self.scene.add(frame._replace(stroke=EDGE if came else ALARM, dash="4 3", radius=3))
        words = "nothing" if came else "?"
        self.scene.add(Text(box.x + box.width / 2, box.y + box.height / 2, words, TEXT, SOFT, "middle"))

    def _members(self, each: Exchange, place: int) -> Sequence[int]:
        """The members whose values may be in what one of them gets."""
        members = len(each.seats)
        if each.row is None:
            return [0]
        found = None if each.row.origins is None else each.row.origins(place, members, each.root)
        return range(members) if found is None else [*found]

    # -- in between -------------------------------------------------------------------------------------------------

    def _bar(self, each: Exchange, columns: Sequence[Column], top: float, bottom: float) -> None:
        """What becomes of what all bring: a bar with arrows into it and out of it."""
        scene, size = self.scene, len(each.seats)
        left, right = columns[0].x - self.column / 2 + 4, columns[-1].x + self.column / 2 - 4
        y = top + ARROW
        for column in columns:
            if column.place < 0:
                continue
            seat = each.seats[column.place]
            if seat.brought:
                arrow(scene, [(column.x, top), (column.x, y - 1)], origin_colour(column.place, size), 3)
            if seat.got:
                arrow(scene, [(column.x, y + BAR), (column.x, bottom - 1)], SOFT, 3)
        scene.add(Rect(left, y, right - left, BAR, TRACK, EDGE, radius=8))
        self._equation((left + right) / 2, y + BAR / 2, right - left - 16, each)

    def _equation(self, x: float, y: float, room: float, each: Exchange) -> None:
        """Chips in the colours of the members: added up, or put together."""
        size = len(each.seats)
        adds = each.row is not None and each.row.law is reduce
        members: list[int | None] = [*range(size)] if size <= 8 else [0, 1, None, size - 1]
        chip, gap = 20.0, 16.0 if adds else 0.0
        need = len(members) * (chip + gap) - gap + (gap + 8 + 26 if adds else 0)
        words = ("added up" if adds else "put together") + (", cut into shards" if is_cut(each) else "")
        beside_it = text_width(words, TEXT) + 14
        if need > room:
            self.scene.add(Text(x, y, fit(words, room, TEXT), TEXT, INK, "middle"))
            return
        left = x - (need + (beside_it if need + beside_it <= room else 0)) / 2
        for number, member in enumerate(members):
            if number and adds:
                self.scene.add(Text(left - gap / 2, y, "+", 14, INK, "middle"))
            if member is None:
                self.scene.add(Text(left + chip / 2, y, "…", 13, INK, "middle"))
            else:
                self.scene.add(Rect(left, y - chip / 2, chip, chip, origin_colour(member, size), PAPER))
            left += chip + gap
        if adds:
            self.scene.add(Text(left - 2, y, "=", 14, INK, "middle"))
            box = Box(left + 10, y - chip / 2, chip, chip)
            weave(self.scene, box, [origin_colour(member or 0, size) for member in members if member is not None])
            left = box.x + chip
        if need + beside_it <= room:
            self.scene.add(Text(left + 12, y, words, TEXT, INK))

    def _direct(self, each: Exchange, columns: Sequence[Column], top: float, bottom: float) -> None:
        """Arrows from whoever brought it to whoever gets it."""
        size, places = len(each.seats), {column.place: column for column in columns if column.place >= 0}
        for target, column in places.items():
            seat = each.seats[target]
            origin = Origin([other.brought for other in each.seats], self._members(each, target))
            sources = dict.fromkeys(
                source for number, value in enumerate(seat.got) for source in _sources(origin, value, number)
            )
            for source in sources:
                if source in places:
                    x0 = places[source].x + _spread(target, size, self.tile)
                    x1 = column.x + (_spread(source, size, self.tile) if len(sources) > 1 else 0)
                    arrow(self.scene, curve((x0, top), (x1, bottom - 1)), origin_colour(source, size), 2)

    def _never(self, each: Exchange, columns: Sequence[Column], top: float, bottom: float) -> None:
        """In place of it: that it never happened."""
        left, right = columns[0].x - self.column / 2 + 4, columns[-1].x + self.column / 2 - 4
        y = bottom - BAR
        self.scene.add(Rect(left, y, right - left, BAR, ALARM_PALE, ALARM, dash="4 3"))
        words = fit("never happened", right - left - 8, TEXT)
        self.scene.add(Text((left + right) / 2, y + BAR / 2, words, TEXT, ALARM, "middle", bold=True))


def _spread(other: int, members: int, width: float) -> float:
    """Where an arrow to or from another member touches a tile, so that several lie side by side."""
    return 0.0 if members < 3 else (other / (members - 1) - 0.5) * width * 0.7


def _sources(origin: Origin, value: Value, number: int) -> Iterator[int]:
    """The members that a value comes from. Of several that brought the same, the one of its number in a list."""
    place = value.place
    held = laid(place, origin.beside(value)).held
    found = dict.fromkeys(member for shard in sorted(held)[:64] for member in origin.of(value, shard))
    if number in found and len(origin.members) > 1:
        yield number
    else:
        yield from found


def _colours(origin: Origin, value: Value, own: int) -> Callable[[int], tuple[int, ...]]:
    """Who brought a part of a value: `own` where it is known."""
    if own >= 0:
        return lambda part: (own,)
    return lambda part: origin.of(value, part)


def _columns(size: int) -> list[Column]:
    """The columns of a group; of a large one the first and the last."""
    if size <= MOST:
        return [Column(place) for place in range(size)]
    return [Column(place) for place in (*range(MOST - 4), -1, size - 2, size - 1)]


def _height(value: Value, count: int) -> float:
    """How high a value is among so many in one stack."""
    height = tile_height(value)
    return height if count == 1 else max(19.0, height * (0.7 if count <= 3 else 0.5))


def _stack_height(values: Sequence[Value]) -> float:
    return sum(_height(value, len(values)) + 4 for value in values) - 4 if values else 38.0
