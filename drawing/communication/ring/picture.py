"""The ring after one of its steps: what each rank has, and what was passed on which arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, TRACK, ink_on, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Rect, Scene, Text, text_width, wrapped
from drawing.communication.arrows import Point, arrow
from drawing.communication.exchange import Exchange
from drawing.communication.ring.layout import MARGIN, Frame, halfway, laid_out, middle, way
from drawing.communication.ring.rounds import Hop, Rounds
from drawing.communication.ring.words import holdings, phase, step_words, title
from drawing.communication.tiles import Box, laid, weave
from lib.values.laws import gather
from lib.values.values import Value

__all__ = ["Ring"]

STEP: Final = 17


class Ring:
    """A collective with its steps. `labels` are the numbers of its pieces, in the order in which they are drawn."""

    def __init__(self, one: Exchange, steps: Rounds) -> None:
        self.one = one
        self.steps = steps
        self.size = len(one.seats)
        self.labels = _labels(one, len(steps.sizes))
        self.rows = {piece: row for row, piece in enumerate(self.labels)}
        self.title = title(one, steps)

    def words(self, step: int) -> str:
        """What a step did."""
        return step_words(self.one, self.steps, step)

    def holdings(self, step: int) -> str:
        """What each rank has after a step."""
        return holdings(self.one, self.steps, self.labels, step)

    def frame(self, top: float) -> Frame:
        """Where everything is, below a height."""
        return laid_out(self.size, len(self.labels), top)

    def picture(self, step: int) -> Picture:
        """The state after a step, with what was passed in it."""
        room = self.frame(0).width - 2 * MARGIN
        # All steps have room for as many words, so that pictures of several lie on each other.
        lines = max(len(wrapped(self.words(each), room, TEXT)) for each in range(len(self.steps.states)))
        frame = self.frame(20 + STEP * (lines + 1))
        scene = self.background(frame)
        y = scene.paragraph(MARGIN, 20, self.title, room, STEP, bold=True)
        scene.paragraph(MARGIN, y, self.words(step), room, STEP, SOFT)
        for number, ((x, y), line) in enumerate(zip(self.inside(frame), phase(self.steps, step), strict=False)):
            scene.add(Text(x, y, line, TEXT, SOFT if number else INK, "middle", bold=not number))
        for member, pieces in enumerate(self.steps.states[step]):
            for piece, members in pieces.items():
                self._piece(scene, frame, member, piece, members)
        for hop in self.steps.steps[step - 1] if step else ():
            self._passed(scene, frame, hop)
        return Picture(scene, f"<{self.title}. {self.words(step)} {self.holdings(step)}>")

    def background(self, frame: Frame) -> Scene:
        """What stays the same in all steps."""
        scene = Scene(frame.width, frame.bottom)
        for seat, box, (x, y) in zip(self.one.seats, frame.tiles, frame.names, strict=True):
            scene.add(Text(x, y, f"rank {seat.rank}", TEXT, INK, "middle", bold=True))
            scene.add(Rect(*box, TRACK, EDGE))
        for member in sorted({hop.source for hops in self.steps.steps for hop in hops}):
            arrow(scene, way(frame, member), SOFT, 2)
        return scene

    def inside(self, frame: Frame) -> list[Point]:
        """Where the words in the middle of the ring stand; there is no room between two ranks."""
        x, y = frame.inside
        return [(x, y - 9), (x, y + 8)] if self.size > 2 else []

    def band(self, frame: Frame, member: int, piece: int) -> Box:
        """Where a piece of a member lies."""
        box = frame.tiles[member]
        height = box.height / len(self.labels)
        return Box(box.x, box.y + self.rows[piece] * height, box.width, height)

    def _piece(self, scene: Scene, frame: Frame, member: int, piece: int, members: frozenset[int]) -> None:
        box = self.band(frame, member, piece)
        colours = self._colours(members)
        weave(scene, box, colours, frame.tiles[member])
        scene.add(Rect(*box, "none", PAPER))
        self._label(scene, middle(box), piece, colours)

    def _colours(self, members: frozenset[int]) -> list[str]:
        return [origin_colour(member, self.size) for member in sorted(members)]

    def _label(self, scene: Scene, at: Point, piece: int, colours: Sequence[str]) -> None:
        """The number of a piece, on paper of its own where colours are woven."""
        if len(self.labels) == 1:
            return
        (x, y), words = at, str(self.labels[piece])
        if len(colours) > 1:
            wide = text_width(words, TEXT) + 8
            scene.add(Rect(x - wide / 2, y - 6.5, wide, 13, PAPER, radius=5))
        ink = INK if len(colours) != 1 else ink_on(colours[0])
        scene.add(Text(x, y, words, TEXT, ink, "middle", bold=True))

    def _passed(self, scene: Scene, frame: Frame, hop: Hop) -> None:
        """What was passed: a chip on its arrow, and a frame around where it arrived."""
        scene.add(Rect(*self.band(frame, hop.target, hop.piece), "none", INK, 2))
        x, y = halfway(way(frame, hop.source))
        chip, colours = Box(x - 15, y - 10, 30, 20), self._colours(hop.members)
        weave(scene, chip, colours)
        scene.add(Rect(*chip, "none", INK))
        self._label(scene, (x, y), hop.piece, colours)


def _labels(one: Exchange, pieces: int) -> dict[int, int]:
    """The numbers of the pieces: those of the shards or batches that the members bring, where each brings one."""
    numbers: list[int | None] = [*range(pieces)]
    if one.row is not None and one.row.law is gather:
        numbers = [_only(seat.brought[0]) for seat in one.seats]
    known = [number for number in numbers if number is not None]
    if len({*known}) < pieces:
        known = [*range(pieces)]
    return dict(sorted(enumerate(known), key=lambda item: item[1]))


def _only(value: Value) -> int | None:
    """The one shard or batch that a value has."""
    held = laid(value.place).held
    return next(iter(held)) if len(held) == 1 else None
