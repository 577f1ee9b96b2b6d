"""draw_ring: a collective going round the ring of its ranks: a picture of each step, and a page with all of them.

The page is `ring.html` with its style, its script, the picture of what stays the same, and the steps as data: buttons,
a slider and the arrow keys go from step to step, and pieces fly to the next rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from drawing.canvas.layout import MARGIN, Box, Point, arrow
from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, TRACK, ink_on, origin_colour
from drawing.canvas.picture import Page, Picture, asset, document, variables
from drawing.canvas.scene import TEXT, Rect, Scene, Text, escape, wrapped
from drawing.diagrams.exchange import Exchange, chosen, exchanges
from drawing.diagrams.tiles import laid, weave, write_number
from drawing.timeline.schedule import note, trace_of
from lib.errors.wording import amount, counted, these
from lib.trace.trace import nothing_to
from lib.values.collectives import CHAIN, RING, TWICE_ROUND
from lib.values.dims import DIMS
from lib.values.laws import gather, reduce, total_elements
from lib.values.values import Elements

WIDTH: Final = 840
STEP: Final = 17
MOST: Final = 16  # ranks of the largest ring drawn: in a larger one every step looks the same

Has = tuple[dict[int, frozenset[int]], ...]
"""For each member its pieces, each with the members whose contributions are in it."""


class Hop(NamedTuple):
    """In one step a member passes a piece to another, with the contributions of some members in it.

    `adds`: the receiver adds it to its own, and the sender no longer has it; else it is a copy.
    """

    source: int
    target: int
    piece: int
    members: frozenset[int]
    adds: bool


class Rounds(NamedTuple):
    """The steps of a collective, and its members' pieces before the first and after each: one more than steps.

    `sizes` are those of the pieces in elements. `turn` is the number of the first step that copies finished sums.
    """

    steps: tuple[tuple[Hop, ...], ...]
    states: tuple[Has, ...]
    sizes: tuple[Elements, ...]
    turn: int

    def sent(self, member: int, step: int | None = None) -> Elements:
        """Return the elements that a member has sent after `step` steps, or after all."""
        hops = [hop for hops in self.steps[:step] for hop in hops if hop.source == member]
        return sum((self.sizes[hop.piece] for hop in hops), 0)


def rounds(one: Exchange) -> Rounds | None:
    """Return the steps of a collective, by the law and the way of its row; None where that way is not a ring."""
    row, members = one.row, len(one.seats)
    if row is None or row.many or not one.happened:
        return None
    brought = [seat.brought[0] for seat in one.seats]
    whole = row.size(brought, one.root, total_elements)
    # Once round the ring, all members at once: first member i adds up piece i of all, then the others get a copy of it.
    turns = range(members - 1)
    copying = [[(i, (i + 1) % members, (i - step) % members, False) for i in range(members)] for step in turns]
    everyone: Has = tuple({piece: frozenset([member]) for piece in range(members)} for member in range(members))
    if row.law is gather and row.travel is RING:
        own: Has = tuple({member: frozenset([member])} for member in range(members))
        sizes = tuple(total_elements([value]) for value in brought)
        return _played(own, copying, sizes)
    if row.law is reduce and row.travel in (RING, TWICE_ROUND):
        adding = [[(i, (i + 1) % members, (i - 1 - step) % members, True) for i in range(members)] for step in turns]
        steps = [*adding, *(copying if row.travel is TWICE_ROUND else [])]
        share = Fraction(whole) / members
        return _played(everyone, steps, (share.numerator if share.denominator == 1 else share,) * members)
    if row.travel is CHAIN and row.root:
        adds = row.law is reduce
        first = one.root + 1 if adds else one.root
        own = tuple({0: frozenset([member])} if adds or member == one.root else {} for member in range(members))
        chain = [[((first + k) % members, (first + k + 1) % members, 0, adds)] for k in turns]
        return _played(own, chain, (whole,))
    return None


def _played(start: Has, steps: Sequence[Sequence[tuple[int, int, int, bool]]], sizes: tuple[Elements, ...]) -> Rounds:
    """Play steps, all hops of which happen at once: from which member, to which, which piece, and whether
    it is added."""
    states, done = [start], list[tuple[Hop, ...]]()
    for step in steps:
        before = states[-1]
        after = tuple(dict(pieces) for pieces in before)
        hops = [Hop(source, target, piece, before[source][piece], adds) for source, target, piece, adds in step]
        for hop in hops:
            if hop.adds:
                del after[hop.source][hop.piece]
        for hop in hops:
            own = before[hop.target].get(hop.piece, frozenset()) if hop.adds else frozenset[int]()
            after[hop.target][hop.piece] = hop.members | own
        done.append(tuple(hops))
        states.append(after)
    turn = next((number for number, hops in enumerate(done) if not hops[0].adds), len(done))
    return Rounds(tuple(done), tuple(states), sizes, turn)


class Frame(NamedTuple):
    """The places in the picture: the tile of each member and its name, and the middle of the ring."""

    tiles: tuple[Box, ...]
    names: tuple[Point, ...]
    inside: Point
    width: float
    bottom: float

    def way(self, member: int) -> list[Point]:
        """Return the straight way from a rank to the next, a little short of both; two ranks have one each way."""
        count = len(self.tiles)
        here, there = self.tiles[member], self.tiles[(member + 1) % count]
        shift = 0.0 if count > 2 else (-18.0 if member == 0 else 18.0)
        (x0, y0), (x1, y1) = here.middle, there.middle
        start, end = (x0, y0 + shift), (x1, y1 + shift)
        return [_edge(here, start, end), _edge(there, end, start)]

    def halfway(self, member: int) -> Point:
        """Return the middle of that way."""
        (x0, y0), (x1, y1) = self.way(member)
        return (x0 + x1) / 2, (y0 + y1) / 2


def _edge(box: Box, inside: Point, outside: Point, space: float = 5) -> Point:
    """Return the point where a line leaves a box, with some space."""
    ways, (dx, dy) = [1.0], (outside[0] - inside[0], outside[1] - inside[1])
    for low, size, at, far in ((box.x, box.width, inside[0], dx), (box.y, box.height, inside[1], dy)):
        if far:
            ways.append(((low + size + space if far > 0 else low - space) - at) / far)
    share = min(way for way in ways if way >= 0)
    return inside[0] + share * dx, inside[1] + share * dy


def _laid_out(members: int, pieces: int, top: float) -> Frame:
    """The ranks as a race track, on which each piece goes to the right, and back below. Two are neighbours."""
    above = members if members < 3 else -(-members // 2)
    tile = gap = 110.0
    between, natural = 84, 2 * MARGIN + (2 * above - 1) * tile
    if natural > WIDTH:
        tile = gap = tile * (WIDTH - 2 * MARGIN) / (natural - 2 * MARGIN)
    height = max(84, 17 * pieces)
    width = max(560, round(2 * MARGIN + above * tile + (above - 1) * gap))
    rows = [range(above), range(members - 1, above - 1, -1)]
    tiles, names = dict[int, Box](), dict[int, Point]()
    for number, row in enumerate(rows):
        y = top + 22 + number * (height + between)
        for place, member in enumerate(row):
            x = width / 2 + (place - (len(row) - 1) / 2) * (tile + gap)
            tiles[member] = Box(x - tile / 2, y, tile, height)
            names[member] = (x, y - 12 if number == 0 else y + height + 13)
    bottom = top + 22 + height + (between + height + 30 if rows[1] else 16)
    order = range(members)
    inside = (width / 2, top + 22 + height + (between / 2 if rows[1] else 0))
    return Frame(tuple(tiles[m] for m in order), tuple(names[m] for m in order), inside, width, bottom)


class Ring:
    """A collective with its steps. `labels` are the numbers of its pieces, in the order in which they are drawn."""

    def __init__(self, one: Exchange, steps: Rounds) -> None:
        self.one, self.steps, self.size = one, steps, len(one.seats)
        # The numbers of the pieces are those of the shards or batches that members bring, where each brings one.
        numbers = [*range(len(steps.sizes))]
        if one.row is not None and one.row.law is gather:
            held = [laid(seat.brought[0].place).held for seat in one.seats]
            numbers = [next(iter(pieces)) for pieces in held if len(pieces) == 1]
        if len({*numbers}) < len(steps.sizes):
            numbers = [*range(len(steps.sizes))]
        self.labels = dict(sorted(enumerate(numbers), key=lambda item: item[1]))
        self.rows = {piece: row for row, piece in enumerate(self.labels)}
        self.adds = one.row is not None and one.row.law is reduce
        way = "round a ring of" if len(steps.sizes) > 1 else "along a chain of"
        self.title = f"{one.title.capitalize()} {way} {counted(self.size, 'rank')}: {one.subject}"

    def picture(self, step: int) -> Picture:
        """Return the state after a step, with what was passed in it."""
        room = self.frame(0).width - 2 * MARGIN
        # All steps have room for the same number of words, so that their pictures line up.
        lines = max(len(wrapped(self.words(each), room, TEXT)) for each in range(len(self.steps.states)))
        frame = self.frame(20 + STEP * (lines + 1))
        scene = self.background(frame)
        y = scene.paragraph(MARGIN, 20, self.title, room, STEP, bold=True)
        scene.paragraph(MARGIN, y, self.words(step), room, STEP, SOFT)
        for number, ((x, y), line) in enumerate(zip(self.inside(frame), self.phase(step), strict=False)):
            scene.add(Text(x, y, line, TEXT, SOFT if number else INK, "middle", bold=not number))
        for member, pieces in enumerate(self.steps.states[step]):
            for piece, members in pieces.items():
                self._piece(scene, self._band(frame, member, piece), piece, members, PAPER, frame.tiles[member])
        for hop in self.steps.steps[step - 1] if step else ():  # a chip on its arrow, a frame where it arrived
            scene.add(Rect(*self._band(frame, hop.target, hop.piece), "none", INK, 2))
            x, y = frame.halfway(hop.source)
            self._piece(scene, Box(x - 15, y - 10, 30, 20), hop.piece, hop.members, INK)
        return Picture(scene, f"<{self.title}. {self.words(step)} {self.holdings(step)}>")

    def frame(self, top: float) -> Frame:
        """Return the places of everything, below a height."""
        return _laid_out(self.size, len(self.labels), top)

    def background(self, frame: Frame) -> Scene:
        """Paint the parts that are the same in all steps."""
        scene = Scene(frame.width, frame.bottom)
        for seat, box, (x, y) in zip(self.one.seats, frame.tiles, frame.names, strict=True):
            scene.add(Text(x, y, f"rank {seat.rank}", TEXT, INK, "middle", bold=True), Rect(*box, TRACK, EDGE))
        for member in sorted({hop.source for hops in self.steps.steps for hop in hops}):
            arrow(scene, frame.way(member), SOFT, 2)
        return scene

    def inside(self, frame: Frame) -> list[Point]:
        """Return the places of the words in the middle of the ring; there is no room between two ranks."""
        x, y = frame.inside
        return [(x, y - 9), (x, y + 8)] if self.size > 2 else []

    def _band(self, frame: Frame, member: int, piece: int) -> Box:
        box = frame.tiles[member]
        height = box.height / len(self.labels)
        return Box(box.x, box.y + self.rows[piece] * height, box.width, height)

    def _piece(
        self, scene: Scene, box: Box, piece: int, members: frozenset[int], edge: str, frame: Box | None = None
    ) -> None:
        """A piece in the colours of the members whose parts are in it, with its number, where there are several."""
        colours = [origin_colour(member, self.size) for member in sorted(members)]
        weave(scene, box, colours, frame)
        scene.add(Rect(*box, "none", edge))
        if len(self.labels) > 1:
            write_number(scene, box, str(self.labels[piece]), colours)

    def phase(self, step: int) -> list[str]:
        """Return the words in the middle of the ring: the number of the step, and what happens in it."""
        if not step:
            return ["before", f"{counted(len(self.steps.steps), 'round')} to go"]
        adds = self.steps.steps[step - 1][0].adds
        return [f"round {step} of {len(self.steps.steps)}", "adding up" if adds else "passing on"]

    def words(self, step: int) -> str:
        """Say what a step did, and what has been sent so far."""
        steps, count, pieces, turn = self.steps, len(self.steps.steps), len(self.steps.sizes), self.steps.turn
        if not step:
            return f"Before the first of {counted(count, 'round')}: {self._start()}."
        hop = steps.steps[step - 1][0]
        source, target = self.one.seats[hop.source].rank, self.one.seats[hop.target].rank
        which = "the piece that it got last"
        if step == turn + 1:
            which = "its finished piece" if turn else "its own piece"
        did = f"each rank passes {which} to the next rank, which keeps a copy."
        if pieces == 1:
            then = "which adds its own" if hop.adds else "which keeps a copy"
            did = f"rank {source} passes it to rank {target}, {then}."
        elif hop.adds:
            did = "each rank passes one piece to the next rank, which adds its own to it."
        reached, half = "", "Now each rank has one piece of the finished sum: that was a reduce-scatter."
        if step == turn < count:
            reached = f"{half} An all-gather follows."
        elif step == count and pieces > 1:
            reached = "Now each rank has one shard of the sum." if turn == count else "Now every rank has all of it."
        sent, total = ([steps.sent(member, end) for member in range(self.size)] for end in (step, None))
        alike = len({*sent}) == len({*total}) == 1
        who, done, whole = ("each rank", sent[0], total[0]) if alike else ("all ranks together", sum(sent), sum(total))
        figures = f"{amount(round(done, 1))} of {amount(round(whole, 1))} elements"
        return " ".join(filter(None, (f"Round {step} of {count}: {did}", reached, f"Sent so far by {who}: {figures}.")))

    def _start(self) -> str:
        value, pieces = self.one.seats[0].brought[0], len(self.steps.sizes)
        if self.one.row is not None and self.one.row.law is gather:
            own = next((DIMS[role].plural for role, _, _ in value.place.rest if not DIMS[role].partial), None)
            return f"each rank has its own {own or ('shard' if value.place.sharded else 'batches')}, which is one piece"
        if not self.adds:
            return f"rank {self.one.seats[self.one.root].rank} alone has it"
        return f"each rank has its own {value.kind}" + (f", cut into {pieces} pieces" if pieces > 1 else "")

    def holdings(self, step: int) -> str:
        """Say what each rank has after a step."""
        told: list[str] = []
        for seat, pieces in zip(self.one.seats, self.steps.states[step], strict=True):
            words: list[str] = []
            for piece, number in self.labels.items():
                if piece in pieces:
                    ranks = [self.one.seats[member].rank for member in pieces[piece]]
                    of = "the whole sum" if len(ranks) == self.size else f"of {these('rank', ranks)}"
                    name = f"piece {number}" if len(self.labels) > 1 else "it"
                    words.append(f"{name} ({of})" if self.adds else name)
            told.append(f"Rank {seat.rank} has {', '.join(words) or 'nothing'}.")
        return " ".join(told)


def ring_page(ring: Ring) -> Page:
    """Return the page of a ring. In the data of its script pieces lie in rows."""
    frame = ring.frame(12)
    steps = [
        {
            "words": ring.words(step),
            "holdings": ring.holdings(step),
            "middle": ring.phase(step),
            "has": [[_bits(pieces.get(piece, frozenset())) for piece in ring.labels] for pieces in state],
            "hops": [[hop.source, hop.target, ring.rows[hop.piece], _bits(hop.members)] for hop in hops],
        }
        for step, (state, hops) in enumerate(zip(ring.steps.states, ((), *ring.steps.steps), strict=True))
    ]
    data = {
        "labels": [str(label) for label in ring.labels.values()],
        "tiles": frame.tiles,
        "ways": [frame.halfway(member) for member in range(ring.size)],
        "middle": [(x, y + 4) for x, y in ring.inside(frame)],
        "steps": steps,
    }
    looks = [(member, colour := origin_colour(member, ring.size), ink_on(colour)) for member in range(ring.size)]
    day = "".join(f".o{member}{{fill:{colour}}}.i{member}{{fill:{ink}}}" for member, colour, ink in looks)
    night = "".join(f".o{member}{{fill:{colour.night}}}.i{member}{{fill:{ink.night}}}" for member, colour, ink in looks)
    colours = f"{day}\n@media (prefers-color-scheme:dark){{{night}}}\n"
    picture = ring.background(frame).svg(label=f"The ring: {ring.title}")
    style = variables() + colours + asset(__package__, "ring.css")
    parts = {"title": escape(ring.title), "picture": picture, "words": escape(ring.words(0))}
    html = document(asset(__package__, "ring.html"), style, asset(__package__, "ring.js"), data, **parts)
    last = len(ring.steps.steps)
    said = f"<{ring.title}, to step through. {ring.words(0)} {ring.words(last)} {ring.holdings(last)}>"
    return Page(lambda: html, said, ring.title, lambda: frame.bottom + 165, lambda: ring.picture(1))


def _bits(members: frozenset[int]) -> int:
    """Return the members whose parts are in a piece, as bits for the script."""
    return sum(1 << member for member in members)


def draw_ring(run: Any, which: str | None = None, layer: int | None = None, step: int | None = None) -> Picture | Page:
    """Draw how a collective goes round the ring of its ranks: a page to step through, or the picture after one `step`.

    `run` is a Trace, or the Models that simulate returned; `which` and `layer` choose a collective, as for
    draw_collective. Step 0 is before the first one.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_ring")
    if which is None:
        goes = (one for one in exchanges(trace) if layer in (None, one.layer) and rounds(one) is not None)
        one = next(goes, None)
    else:
        one = chosen(trace, which, layer, "draw_ring")
    if one is None:
        return note("no collective of this run goes round a ring")
    if (found := rounds(one)) is None:
        why = "goes from rank to rank directly, and round no ring" if one.happened else "never happened"
        raise ValueError(f"draw_ring: this {one.title} {why}. draw_collective(run, {one.op!r}) shows it")
    if len(one.seats) > MOST:
        raise ValueError(
            f"draw_ring: a ring of {len(one.seats)} ranks is too large to draw; up to {MOST} are. "
            "A smaller one goes round in the same way: simulate(..., ranks=4)"
        )
    ring = Ring(one, found)
    if step is None:
        return ring_page(ring)
    if not 0 <= step <= len(found.steps):
        raise ValueError(
            f"draw_ring: this {one.title} takes {counted(len(found.steps), 'round')}, so step= is a number from 0 "
            f"(before the first) to {len(found.steps)} (after the last); got {step}"
        )
    return ring.picture(step)
