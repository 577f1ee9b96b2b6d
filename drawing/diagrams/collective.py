"""draw_collective: one collective or message over all its ranks, before and after, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from drawing.canvas.layout import MARGIN, Box, Piece, arrow, curve, hcat, label, pad, vcat
from drawing.canvas.palette import ALARM, ALARM_PALE, EDGE, INK, PAPER, SOFT, TRACK, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, fit, fitting
from drawing.diagrams.exchange import Exchange, Seat, beside, chosen, cost, group_name, headline, idea, is_cut, summary
from drawing.diagrams.tiles import Origin, caption, laid, plain_tile, tile, tile_height, weave
from drawing.timeline.schedule import note, trace_of
from lib.trace.trace import Trace, nothing_to
from lib.values.laws import gather, reduce
from lib.values.values import Value

LEFT: Final = 62  # pixels for the words "before" and "after"
MOST: Final = 10
"""Most columns in one picture: of more ranks the first and the last, and as many groups side by side as fit."""
BAR, ARROW, BETWEEN = 38, 30, 26


def draw_collective(run: Any, which: str | None = None, layer: int | None = None) -> Picture:
    """Draw one collective of a run over all its ranks, before and after: the first, or the first of a name and a layer.

    `run` is a Trace, or the Models that simulate returned. `which` is "allreduce", "all-gather", "pass_to", or any
    other that the run has. On a mesh the groups that do the same stand side by side.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_collective")
    one = chosen(trace, which, layer, "draw_collective")
    if one is None:
        return note("the ranks of this run never communicate")
    return _Picture(trace, beside(trace, one, layer), one).picture()


class _Picture:
    """The picture of one exchange, with those beside it that do the same in other groups: a column for each rank."""

    def __init__(self, trace: Trace, groups: list[Exchange], one: Exchange) -> None:
        self.trace, self.one, self.size = trace, one, len(one.seats)
        self.places: list[int | None] = [*range(self.size)]
        if self.size > MOST:
            self.places = [*range(MOST - 4), None, self.size - 2, self.size - 1]
        # As many groups as fit, including the one asked for.
        count = max(1, MOST // len(self.places))
        first = max(0, min(groups.index(one), len(groups) - count))
        self.shown, self.left_out = groups[first : first + count], max(0, len(groups) - count)
        room = 840 - 2 * MARGIN - LEFT - BETWEEN * (len(self.shown) - 1)
        self.column = min(132.0, room / (len(self.places) * len(self.shown)))
        self.wide, self.tile = self.column * len(self.places), min(88.0, self.column - 14)

    def picture(self) -> Picture:
        one = self.one
        rows = [Piece(0, 5), self._beside("", self._group_name)] if len(self.shown) > 1 else []
        rows += [self._beside("", self._names), *self._side("before", 0)]
        if not one.happened:
            wide = self.wide - 8
            never = label("never happened", wide - 8, fill=ALARM, bold=True, anchor="middle", height=BAR)
            frame = Rect(0, 0, wide, BAR, ALARM_PALE, ALARM, dash="4 3")
            never = pad(Piece(wide, BAR, [frame, *never.at(4, 0)]), 4, 8, 4)
            rows.append(self._beside("", lambda each: never))
        else:
            direct = one.row is None or one.row.law not in (gather, reduce)
            rows += [self._beside("", self._direct if direct else self._bar), Piece(0, 4), *self._side("after", 1)]
        body = vcat(rows)
        width = max(500.0, float(round(body.width + 2 * MARGIN)))
        scene, room = Scene(width, 0), width - 2 * MARGIN
        y = scene.paragraph(MARGIN, 20, headline(self.shown), room, 17, bold=True)
        y = scene.paragraph(MARGIN, y, idea(one), room, 16, SOFT if one.happened else ALARM) - 6
        scene.add(*body.at((width - body.width) / 2, y))
        scene.height = scene.paragraph(MARGIN, y + body.height + 14, cost(one, self.left_out), room, 16) + 2
        return Picture(scene, summary(self.trace, one))

    def _beside(self, word: str, paint: Callable[[Exchange], Piece], align: float = 0.5) -> Piece:
        """Paint something of each group, beside each other, with a word before it."""
        groups = hcat((paint(each) for each in self.shown), BETWEEN, align)
        return hcat([label(word, LEFT, 13, SOFT, bold=True), groups], align=align)

    def _side(self, word: str, side: int) -> list[Piece]:
        stacks = self._beside(word, lambda each: self._row(each, partial(self._stack, each, side), dots="…"))
        words = self._beside("", lambda each: self._row(each, partial(self._below, each, side), 0), 0)
        return [stacks, Piece(0, 6), words]

    def _row(self, each: Exchange, paint: Callable[[int, Seat], Piece], align: float = 0.5, dots: str = "") -> Piece:
        """A piece for each column of a group, perhaps with dots where ranks are left out."""
        gap = label(dots, self.column, 16, SOFT, anchor="middle")
        return hcat((gap if place is None else paint(place, each.seats[place]) for place in self.places), 0, align)

    def _group_name(self, each: Exchange) -> Piece:
        name = label(group_name(self.trace, each), self.wide - 8, bold=True, anchor="middle", height=16)
        return vcat([name, Piece(self.wide, 12, [Poly(((4, 2), (self.wide - 4, 2)), stroke=EDGE)])], align=0.5)

    def _names(self, each: Exchange) -> Piece:
        def name(place: int, seat: Seat) -> Piece:
            is_root = each.row is not None and each.row.root is not None and each.root == place
            words = fitting(self.column, f"rank {seat.rank}" + (" (root)" if is_root else ""), str(seat.rank))
            fill = ALARM if seat.called is None or not seat.fits else INK
            return label(words, self.column, fill=fill, bold=True, anchor="middle", height=22)

        return self._row(each, name)

    def _below(self, each: Exchange, side: int, place: int, seat: Seat) -> Piece:
        values = seat.got if side else seat.brought
        lines = caption(values[0], self.column - 4) if len(values) == 1 else [f"{len(values)} values"] if values else []
        if side == 0 and seat.called is None:
            lines = ["never came"]
        elif side == 0 and not all(other.fits for other in each.seats):
            name, _, about = (seat.called or "").partition(" of ")
            lines = [f"called {name}", *([f"of {about}"] if about else [])]
        elif side == 0 and each.happened and each.row is not None and each.row.in_place:
            lines = lines if place in self._members(each, place) else ["overwritten"]
        fill = ALARM if seat.called is None or not seat.fits else SOFT
        return vcat(label(line, self.column, fill=fill, anchor="middle") for line in lines or [""])

    def _stack(self, each: Exchange, side: int, place: int, seat: Seat) -> Piece:
        values = seat.got if side else seat.brought
        if not values:
            return self._nothing(each, seat, side)
        origin = Origin([other.brought for other in each.seats], self._members(each, place))
        tiles: list[Piece] = []
        for number, value in enumerate(values):
            if len(values) == 1:
                members: Callable[[int], tuple[int, ...]] = partial(origin.of, value) if side else lambda part: (place,)
                tiles.append(tile(self.tile, value, members, self.size, origin.beside(value)))
            else:
                member = place if not side else next(iter(_sources(origin, value, number)), place)
                high = max(19.0, tile_height(value) * (0.7 if len(values) <= 3 else 0.5))
                tiles.append(plain_tile(self.tile, high, value, [origin_colour(member, self.size)], values))
        return vcat([Piece(self.column, 0), vcat(tiles, 4)], align=0.5)

    def _nothing(self, each: Exchange, seat: Seat, side: int) -> Piece:
        """A rank that has nothing here: because it never came, or because nothing is for it."""
        came = side or seat.called is not None
        if each.row is None and came:
            return Piece(self.column, 38)  # a sender may keep the values it sent; only moving values are drawn
        fill, stroke = ("none", EDGE) if came else (ALARM_PALE, ALARM)
        high = 38 if came else max(map(tile_height, each.values))
        left, wide = (self.column - self.tile) / 2, self.tile
        frame = Rect(left + 0.5, 0.5, wide - 1, high - 1, fill, stroke, dash="4 3", radius=3)
        words = label("nothing" if came else "?", self.column, fill=SOFT, anchor="middle", height=high)
        return Piece(self.column, high, [frame, *words.marks])

    def _members(self, each: Exchange, place: int) -> Sequence[int]:
        """The members whose values may be in what one of them gets."""
        if each.row is None:
            return [0]
        origins = None if each.row.origins is None else each.row.origins(place, self.size, each.root)
        return range(self.size) if origins is None else [*origins]

    def _middle(self, place: int) -> float:
        return (self.places.index(place) + 0.5) * self.column

    def _bar(self, each: Exchange) -> Piece:
        """Return the bar that joins all parts, with arrows into it and out of it."""
        high = BAR + 2 * ARROW
        scene = Scene(self.wide, high)
        for place in (place for place in self.places if place is not None):
            x, seat = self._middle(place), each.seats[place]
            if seat.brought:
                arrow(scene, [(x, 0), (x, ARROW - 1)], origin_colour(place, self.size), 3)
            if seat.got:
                arrow(scene, [(x, ARROW + BAR), (x, high - 1)], SOFT, 3)
        scene.add(Rect(4, ARROW, self.wide - 8, BAR, TRACK, EDGE, radius=8))
        said = self._equation(each, self.wide - 24)
        scene.add(*said.at((self.wide - said.width) / 2, ARROW + (BAR - said.height) / 2))
        return Piece(self.wide, high, scene.marks)

    def _equation(self, each: Exchange, room: float) -> Piece:
        """Chips in the colours of the members, added up or put together, with as many words as there is room for."""
        adds = each.row is not None and each.row.law is reduce
        members: list[int | None] = [*range(self.size)] if self.size <= 8 else [0, 1, None, self.size - 1]
        colours = [origin_colour(member, self.size) for member in members if member is not None]
        chips: list[Piece] = []
        for member in members:
            fill = PAPER if member is None else origin_colour(member, self.size)
            chip = Piece(20, 20, [Rect(0, 0, 20, 20, fill, PAPER)])
            chips.append(label("…", 20, 13, anchor="middle") if member is None else chip)
            chips += [label("+", 16, 14, anchor="middle")] if adds else []
        if adds:
            mixed = Scene(20, 20)
            weave(mixed, Box(0, 0, 20, 20), colours)
            chips[-1:] = [label("=", 24, 14, anchor="middle"), Piece(20, 20, mixed.marks)]
        words = ("added up" if adds else "put together") + (", cut into shards" if is_cut(each) else "")
        equation = hcat(chips)
        ways = hcat([equation, label(words)], 12), equation
        return next((way for way in ways if way.width <= room), label(fit(words, room, TEXT)))

    def _direct(self, each: Exchange) -> Piece:
        scene = Scene(self.wide, 70)
        for target in (place for place in self.places if place is not None):
            origin = Origin([other.brought for other in each.seats], self._members(each, target))
            values = enumerate(each.seats[target].got)
            sources = dict.fromkeys(source for number, value in values for source in _sources(origin, value, number))
            for source in sources:
                if source in self.places:
                    start = self._middle(source) + self._spread(target)
                    end = self._middle(target) + (self._spread(source) if len(sources) > 1 else 0)
                    arrow(scene, curve((start, 0), (end, 69)), origin_colour(source, self.size), 2)
        return Piece(self.wide, 70, scene.marks)

    def _spread(self, other: int) -> float:
        """Return where an arrow to or from another member touches a tile, so that several lie side by side."""
        return 0.0 if self.size < 3 else (other / (self.size - 1) - 0.5) * self.tile * 0.7


def _sources(origin: Origin, value: Value, number: int) -> list[int]:
    """The members that a value comes from; if several brought the same, the one with its number in a list."""
    held = laid(value.place, origin.beside(value)).held
    members = dict.fromkeys(member for shard in sorted(held)[:64] for member in origin.of(value, shard))
    return [number] if number in members and len(origin.members) > 1 else [*members]
