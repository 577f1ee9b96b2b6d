"""draw_experts: tokens on their way to experts and back, as bands whose widths count the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from drawing.canvas.layout import MARGIN
from drawing.canvas.palette import EDGE, INK, PAPER, SOFT, TINTS, TRACK, ink_on, mix, origin_colour
from drawing.canvas.picture import Picture
from drawing.canvas.scene import TEXT, Poly, Rect, Scene, Text, fit, hatch
from drawing.timeline.schedule import note, trace_of
from lib.cluster.costs import in_units
from lib.errors.wording import counted, plural
from lib.trace.trace import Trace, nothing_to
from lib.values.dims import RunSet
from lib.values.kinds.experts import Route

WIDTH: Final = 840
TOP, HIGH, GAPS = 84.0, 260.0, 48.0
"""The top of the bars, and pixels for all tokens that go to experts, and for the gaps of a column together."""
RANK, EXPERT = 92.0, 150.0  # widths of the bars of ranks and of experts, and the left edges of the three columns
LEFTS: Final = (MARGIN, (WIDTH - EXPERT) / 2, WIDTH - MARGIN - RANK)
MOST: Final = 32  # ranks, and experts, that are shown


class Box(NamedTuple):
    """Some tokens: rows of batches, and the experts that they are for."""

    batches: RunSet
    rows: RunSet
    experts: RunSet

    def both(self, other: Box) -> Box:
        """Return the tokens that are in this one and the other."""
        return Box(*[mine & its for mine, its in zip(self, other, strict=True)])


@dataclass
class Bar:
    """The tokens of a rank, or of an expert on a rank: how many, where on the paper, and how much of each side of it
    is taken by bands."""

    words: str
    count: int
    colour: str = TRACK
    time: int = 0
    dropped: int = 0
    y: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])


def draw_experts(run: Any, layer: int | None = None) -> Picture:
    """Draw tokens on their way to experts and home, in forward: those of the first dispatching layer, or of `layer`.

    `run` is a Trace, or the Models that simulate returned. Dropped tokens stay where they are, hatched.
    """
    if (why := nothing_to("draw", run)) is not None:
        return note(why)
    trace = trace_of(run, "draw_experts")
    kinds = trace.shape.kinds
    found = [number for number, kind in enumerate(kinds) if kind.output.route is not None and not kind.routed]
    if layer is not None and layer not in found:
        which = f"layers that do are {', '.join(map(str, found))}" if found else "no layer of it does"
        raise ValueError(f"draw_experts: layer {layer} of this run does not dispatch tokens to experts; {which}")
    if not found:
        return note("no layer of this run dispatches tokens to experts")
    return _Picture(trace, found[0] if layer is None else layer).picture()


class _Picture:
    """Three columns of bars: ranks, experts, and ranks again."""

    def __init__(self, trace: Trace, layer: int) -> None:
        kinds, self.trace, self.layer = trace.shape.kinds, trace, layer
        route = kinds[layer].output.route
        assert route is not None, "it dispatches"
        self.route, described = route, kinds[layer].layer
        self.number = described.experts
        self.scene = Scene(WIDTH, TOP + HIGH + GAPS + 48)
        self.wanted = Route(described.route, self.number, described.rows, trace.shape.items, None, [described.rows])
        self.experts = RunSet.span(0, self.number)
        last = next(number for number in range(layer + 1, trace.layers) if kinds[number].output.route is None)
        self.sent, self.home = self._boxes(layer), self._boxes(last)
        self.taken = self._boxes(layer + 1)
        if max(trace.ranks, self.number) > MOST:
            raise ValueError(f"draw_experts shows up to {MOST} ranks and experts; a smaller run looks the same")

    def _boxes(self, layer: int) -> list[list[tuple[Box, int]]]:
        """Return each rank's inputs to forward of a layer, in order, and how long that takes."""
        found: list[list[tuple[Box, int]]] = []
        for program in self.trace.programs:
            found.append([])
            for event in program.events:
                if (event.op, event.layer) != ("forward", layer):
                    continue
                for value in program.values_of(event.inputs[:1]):
                    parts = {role: RunSet.of(part.pieces) for role, part in value.place.named.items()}
                    box = Box(parts["batch"], parts["rows"], parts.get("experts", self.experts))
                    found[-1].append((box, event.length))
        return found

    def _count(self, boxes: Sequence[tuple[Box, int]], route: Route) -> int:
        return sum(route.count(*box) for box, _ in boxes)

    def picture(self) -> Picture:
        before, after = (
            {rank: Bar(f"rank {rank}", self._count(boxes, self.route)) for rank, boxes in enumerate(some) if boxes}
            for some in (self.sent, self.home)
        )
        for rank, bar in before.items():
            bar.dropped = self._count(self.sent[rank], self.wanted) - bar.count
        middle = {(rank, expert): bar for rank, expert, bar in self._experts()}
        if not middle:
            return note(f"no expert of layer {self.layer + 1} has taken any token in this run")
        columns = ([*before.values()], [*middle.values()], [*after.values()])
        most = max(sum(bar.count + bar.dropped for bar in column) for column in columns)
        self.scale = HIGH / max(most, 1)
        for column in columns:
            whole = sum(bar.count + bar.dropped for bar in column) * self.scale + GAPS
            y, gap = TOP + (HIGH + GAPS - whole) / 2, GAPS / max(len(column) - 1, 1)
            for bar in column:
                bar.y = y
                y += (bar.count + bar.dropped) * self.scale + gap
        self._bands(before, middle, side=0)
        self._bands(after, middle, side=1)
        for x, column, wide in zip(LEFTS, columns, (RANK, EXPERT, RANK), strict=True):
            for bar in column:
                self._paint(bar, x, wide)
        return Picture(self.scene, self._words(columns))

    def _experts(self) -> Iterator[tuple[int, int, Bar]]:
        for rank, boxes in enumerate(self.taken):
            whole = self._count(boxes, self.route)
            time = sum(length for _, length in boxes)
            for expert in self.experts:
                one = RunSet.span(expert, expert + 1)
                mine = [(box._replace(experts=box.experts & one), length) for box, length in boxes]
                if any(box.experts for box, _ in mine):
                    count = self._count(mine, self.route)
                    colour = origin_colour(expert, self.number)
                    yield rank, expert, Bar(f"expert {expert}", count, colour, time * count // max(whole, 1))

    def _bands(self, ranks: Mapping[int, Bar], middle: dict[tuple[int, int], Bar], side: int) -> None:
        ends = (LEFTS[0] + RANK, LEFTS[1]) if side == 0 else (LEFTS[2], LEFTS[1] + EXPERT)
        for rank, mine in enumerate(self.home if side else self.sent):
            for (there, expert), bar in sorted(middle.items(), key=lambda item: (item[0][1], item[0][0])):
                one = RunSet.span(expert, expert + 1)
                count = sum(
                    self.route.count(*box.both(taken).both(box._replace(experts=one)))
                    for box, _ in mine
                    for taken, _ in self.taken[there]
                )
                if not count:
                    continue
                high = count * self.scale
                begin, end = ranks[rank].y + ranks[rank].used[side], bar.y + bar.used[side]
                ranks[rank].used[side] += high
                bar.used[side] += high
                moves = f"rank {rank} {'gets back' if side else 'sends'} {counted(count, 'token', ',')}"
                stays = f"{counted(count, 'token', ',')} of rank {rank} {plural('stay', 2 if count == 1 else 1)} there"
                where = f"expert {expert} on rank {there}"
                words = f"{stays}, for {where}" if rank == there else f"{moves} {'from' if side else 'to'} {where}"
                pale = mix(bar.colour, PAPER, 0.8 if rank == there else 0.45)
                self.scene.add(Poly(_band((ends[0], begin), (ends[1], end), high), pale, title=words))

    def _paint(self, bar: Bar, x: float, wide: float) -> None:
        scene, high, gone = self.scene, bar.count * self.scale, bar.dropped * self.scale
        scene.add(Rect(x, bar.y, wide, high, bar.colour, EDGE if bar.colour == TRACK else "none"))
        lines = [bar.words, counted(bar.count, "choice", ",")]
        if bar.colour != TRACK:
            lines = [f"{bar.words}: {bar.count:,}", in_units(bar.time)]
        ink = ink_on(bar.colour)
        room = [line for number, line in enumerate(lines) if high >= 14 + 18 * number]
        for number, line in enumerate(room):
            y = bar.y + high / 2 + (number - (len(room) - 1) / 2) * 15
            scene.add(Text(x + wide / 2, y, fit(line, wide - 4, TEXT), TEXT, ink, "middle", bold=number == 0))
        if bar.dropped:
            words = f"{counted(bar.dropped, 'choice', ',')} of {bar.words} are dropped: no room"
            fill, line = TINTS["never"]
            scene.add(Rect(x, bar.y + high, wide, gone, fill, line, title=words))
            scene.add(*hatch(x, bar.y + high, wide, gone, line))

    def _words(self, columns: Sequence[Sequence[Bar]]) -> str:
        """Write the texts above and below the bars, and return all of it for those who cannot see it."""
        before, middle, _ = columns
        loads = Counter[str]()
        for bar in middle:
            loads[bar.words] += bar.count
        whole, dropped = sum(loads.values()), sum(bar.dropped for bar in before)
        title = f"Tokens on their way to {self.number} experts and home"
        self.scene.add(Text(MARGIN, 22, title, TEXT + 2, INK, bold=True))
        legend = "a band is as wide as its tokens are many; the palest stay on their rank"
        self.scene.add(Text(MARGIN, 42, legend + ("; hatched is what is dropped" if dropped else ""), TEXT, SOFT))
        for x, wide, words in zip(LEFTS, (RANK, EXPERT, RANK), ("sent", "at experts", "home"), strict=True):
            self.scene.add(Text(x + wide / 2, TOP - 16, words, TEXT, SOFT, "middle"))
        expert, load = max(loads.items(), key=lambda item: item[1])
        share = "an even share of what is left" if dropped else "an even share"
        told = f"{expert.capitalize()} has {load:,}, and {share} would be {whole / self.number:,.0f}."
        if load * self.number == whole:
            told = f"Each expert has {load:,}."
        if dropped:
            told += f" {counted(dropped, 'choice', ',')} of {whole + dropped:,} are dropped."
        self.scene.add(Text(MARGIN, TOP + HIGH + GAPS + 24, told, TEXT, INK))
        return f"<{title}. {told} {'; '.join(f'{name}: {count:,}' for name, count in loads.items())}>"


def _band(start: tuple[float, float], end: tuple[float, float], high: float) -> list[tuple[float, float]]:
    """A band that leaves and arrives level, `high` at both ends."""
    (x0, y0), (x1, y1) = start, end
    upper = [(x0 + (x1 - x0) * t, y0 + (y1 - y0) * t * t * (3 - 2 * t)) for t in (bend / 18 for bend in range(19))]
    return [*upper, *[(x, y + high) for x, y in reversed(upper)]]
