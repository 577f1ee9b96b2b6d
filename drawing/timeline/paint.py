"""The timeline: boxes on paper. One row for each rank, or group of equal ranks, with communication lanes below the
compute lane, and a legend."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from drawing.canvas import palette
from drawing.canvas.layout import Axis, Entry, swatch
from drawing.canvas.palette import ALARM, ARROW, INK, PAPER, SOFT, TRACK, Pair, band, ink_on, layer_colour, mix
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, hatch, look_of, text_width
from drawing.timeline.boxes import Box, Fold, Message, Timeline, gathers, labels, padded, title, waited_for, waiting
from drawing.timeline.rows import Name, Shown, groups, write_names
from lib.analysis.difference import ending
from lib.analysis.figures import makespan
from lib.errors.wording import counted, numbered
from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.operations import COMPUTE

CROWDED: Final = 1500  # from this many boxes on, boxes are plain and their titles brief
PACKED: Final = 20_000  # from this many boxes on, those that would share half a pixel are left out
LEFT: Final = 74  # pixels beside the time axis, or more for long names
SHOWN: Final = 128  # most rows of a picture; beyond that, only the first ones are shown
PALER: Final = 0.4  # the share of paper in the hatching of padding
ARROWS: Final = 96  # most messages with a line from sender to receiver; more would be a thicket

LABEL_SIZES: Final = ((22, TEXT), (10, SMALL))
"""Least height of a box in pixels, and the size of its label; a NARROW box has none."""
NARROW: Final = 5
TWO_LINES: Final = 26
"""Least height of a box in pixels for a layer below its label, the one below its middle and the other above."""
MARK: Final = 15  # pixels of the mark of a failure; READABLE is the least height of a row for the words beside it
READABLE: Final = 11


class Rows(NamedTuple):
    """The places of rows: the drawn ranks, one a row; the top of each rank's row, which equal ranks share; the height
    of a row, and that of its communication lanes."""

    ranks: Sequence[int]
    tops: Mapping[int, float]
    height: float
    thin: float
    bottom: float

    def lane(self, rank: int, lane: int) -> tuple[float, float]:
        """Return the top and the height of a rank's lane: 0 is its own, those of communication are below it."""
        top = self.tops[rank]
        return (top + self.height + 1 + (lane - 1) * (self.thin + 1), self.thin) if lane else (top, self.height)


def row_height(count: int) -> float:
    """Return the height of a compute lane, by how many rows there are."""
    return next((height for most, height in ((4, 34), (8, 28), (16, 22), (32, 14), (64, 9)) if count <= most), 6)


def place_rows(
    lanes: Sequence[int], top: float, folds: Sequence[Fold] | None = None, named: Sequence[Name] = ()
) -> Rows:
    """Give each rank a row, or each fold one; groups of rows stand a little apart."""
    folds = [Fold((rank,)) for rank in range(min(len(lanes), SHOWN))] if folds is None else folds
    height = row_height(len(folds))
    thin = max(3.0, round(height * 0.38))
    gap = max(1.0, round(height / 5))
    between = {first for _, first, _ in groups(named) if first}
    tops: dict[int, float] = {}
    for place, (fold, count) in enumerate(zip(folds, lanes, strict=False)):
        top += gap + 2 if place in between else 0
        tops.update(dict.fromkeys(fold.ranks, top))
        top += height + (count - 1) * (thin + 1) + gap
    return Rows([fold.rank for fold in folds], tops, height, thin, top - gap + 2)


class Panel(NamedTuple):
    """A run, the ranks that have rows, and the names of these; its boxes, and the axis that it shares with the panels
    above and below. `layers` have colours."""

    trace: Trace
    timeline: Timeline
    axis: Axis
    layers: int
    shown: Shown
    named: Sequence[Name]

    def rows(self, scene: Scene, y: float) -> Rows:
        """Paint the rows of the ranks from `y` on, and return where they are."""
        trace, timeline, axis = self.trace, self.timeline, self.axis
        rows = place_rows(timeline.lanes, y, self.shown.rows, self.named)
        deadlock = (trace.error or "").startswith("deadlock")
        tops, over = [rows.tops[rank] for rank in rows.ranks], dict.fromkeys(rows.ranks, 0)
        for rank, _, _, _, end, _ in timeline.boxes:
            over[rank] = max(end, over[rank])
        for rank, count, top in zip(rows.ranks, timeline.lanes, tops, strict=True):
            whole = rows.height + (count - 1) * (rows.thin + 1)  # after its end a rank has bare paper
            scene.add(Rect(axis.left, top, axis.x(over[rank]) - axis.left, whole, TRACK))
        axis.grid(scene, tops[0] - 2, rows.bottom + 2)
        for box in timeline.boxes if trace.error is not None else ():
            if box.look == "failed":  # nothing went on from there
                x = axis.x(box.start)
                scene.add(Poly(((x, tops[0] - 2), (x, rows.bottom)), stroke=ALARM, dash="3 2"))
        if deadlock and rows.height >= LABEL_SIZES[0][0]:
            waits = {box.rank for box in timeline.boxes if box.look == "pending"}
            for rank, top in zip(rows.ranks, tops, strict=True):  # ranks that do not wait for ever are over
                if rank not in waits:
                    scene.add(Text(axis.x(over[rank]) + 8, top + rows.height / 2, "has finished", TEXT, SOFT))
        write_names(scene, self.named, tops, rows.height, axis.left)
        shown = [*_thinned(timeline.boxes, axis)] if len(timeline.boxes) > PACKED else timeline.boxes
        painter = _Painter(self, rows, len(shown) > CROWDED)
        if deadlock and rows.height >= 14:
            stopped = (box for box in shown if box.look == "pending" and not box.lane)
            on = [(box.rank, waited_for(trace, box.rank, box.number)) for box in stopped]
            painter.waits = {rank: other for rank, other in on if other is not None and other in rows.tops}
        for box in shown:
            painter.box(box)
        scene.add(*sorted(painter.rects, key=look_of), *painter.details)
        scene.add(*sorted(painter.texts, key=lambda text: (text.size, text.fill, text.bold)))
        scene.add(*waiting_arrows(painter.waits, rows, axis.left + axis.width))
        if len(timeline.messages) <= ARROWS and rows.height >= 14:
            for message in timeline.messages:
                if message.target in rows.tops:
                    scene.add(*arrow(message, axis, rows))
        return rows

    def numbers(self, scene: Scene, rows: Rows) -> float:
        """Write which ranks have no row, and why; the moments; and the end of the run. Return where they end."""
        # A deadlock does not stop a working rank.
        failed = self.trace.error is not None and not self.trace.error.startswith("deadlock")
        why = "had not begun when the run stopped" if failed else "did nothing"
        told = [f"{numbered('rank', self.shown.idle)} {why}"] if self.shown.idle else []
        told += [f"and {counted(self.shown.rest, 'more rank', ',')}, not drawn"] if self.shown.rest else []
        scene.add(*([Text(self.axis.left, rows.bottom + 9, " · ".join(told), TEXT, SOFT)] if told else []))
        y = rows.bottom + (20 if told else 2)
        return self.axis.numbers(scene, y, makespan(self.trace), ending(self.trace))


def heading(scene: Scene, name: str, words: str, y: float) -> float:
    """Write the name of a run, and words beside it; return where they end."""
    short = fit(name, 260, TEXT)
    scene.add(Text(LEFT, y + 8, short, TEXT, INK, bold=True))
    after = LEFT + text_width(short, TEXT) * 1.08 + 12
    if words:
        scene.add(Text(after, y + 8, fit(words, scene.width - after - 10, TEXT), TEXT, SOFT))
    return y + 26


def _thinned(boxes: Iterable[Box], axis: Axis) -> Iterable[Box]:
    painted: dict[tuple[int, int], float] = {}
    for box in boxes:
        end = axis.x(box.end)
        if end - painted.get((box.rank, box.lane), -1.0) >= 0.5:
            painted[box.rank, box.lane] = end
            yield box


class _Painter:
    """Collects the marks of boxes: rectangles, overlays and labels."""

    def __init__(self, panel: Panel, rows: Rows, crowded: bool) -> None:
        self.trace, self.layers = panel.trace, panel.layers
        self.x, self.lane, self.crowded = cache(panel.axis.x), cache(rows.lane), crowded  # many begin where others end
        self.folds = {fold.rank: fold for fold in panel.shown.rows}
        self.rects, self.details, self.texts = list[Rect](), list[Poly | Rect](), list[Text]()
        self.looks: dict[tuple[str, int | None], Pair] = {}
        self.waiting: set[tuple[int, int]] = set()
        self.waits: dict[int, int] = {}  # the rank that each one waits for, where that is shown
        self.layered = {rank for rank in self.folds if _by_layer(panel.trace.programs[rank])}

    def box(self, box: Box) -> None:
        rank, number, look, start, end, lane = box
        event = self.trace.programs[rank].events[number]
        x = self.x(start)
        width = max(0.0, self.x(end) - x)
        top, height = self.lane(rank, lane)
        if (pair := self.looks.get((look, event.layer))) is None:  # a picture has thousands of boxes, and few looks
            pair = palette.fill_and_border(look, layer_colour(event.layer or 0, self.layers))
            self.looks[look, event.layer] = pair
        fill, stroke = pair
        words = title(self.trace, box, self.folds[rank], self.crowded)
        if look == "failed":
            self.failure(x, top, height, words)
            return
        if width < 0.05:
            self.rects.append(Rect(x - 0.6, top, 1.2, height, stroke if stroke != "none" else fill, title=words))
            return
        dash = "3 2" if look == "pending" else ""
        self.rects.append(boxed(x, top, width, height, fill, "none" if self.crowded else stroke, words, dash))
        width -= 0.8 if width > 3 else 0
        if event.layer is not None and width > 2:
            share = band(look, gathers(event.op))
            self.details.extend(banded(share, x, top, width, height, layer_colour(event.layer, self.layers)))
        if look != "wait" and not self.crowded and (padding := padded(self.trace, event)):
            share = width * padding / len(event.batches)
            pale = mix(fill, PAPER, PALER)
            self.details.extend(hatch(x + width - share, top + 1, share - 1, height - 2, pale, line=1.2))
        if width >= NARROW and height >= LABEL_SIZES[-1][0]:
            self.label(box, event, fill, x, top, width, height)

    def failure(self, x: float, top: float, height: float, words: str) -> None:
        """Paint the mark of the failure: a cross in a box, always of one size, and its meaning beside it."""
        size = min(MARK, height)
        left, upper = x + 1.5, top + (height - size) / 2
        self.details.append(Rect(left, upper, size, size, ALARM, title=words))
        near, far = size * 0.28, size * 0.72
        for start, end in ((near, far), (far, near)):
            line = ((left + near, upper + start), (left + far, upper + end))
            self.details.append(Poly(line, stroke=PAPER, line=max(1.0, size / 7)))
        if height >= READABLE:
            size = TEXT if height >= LABEL_SIZES[0][0] else SMALL
            self.texts.append(Text(left + MARK + 5, top + height / 2, "failed here", size, ALARM))

    def label(self, box: Box, event: Event, fill: str, x: float, top: float, width: float, height: float) -> None:
        colour = ALARM if box.look == "pending" else ink_on(fill)
        waits = None
        if box.look == "pending":  # boxes that share the last lane of a rank overlap
            if (box.rank, box.lane) in self.waiting:
                return
            width -= APART * (len(self.waits) + 1) if self.waits and not box.lane else 0
            self.waiting.add((box.rank, box.lane))
            waits = waiting(self.trace, box.rank, box.number)
        texts, below = labels(box, event, self.folds[box.rank].own, waits)
        if waits is not None and waits.who and height < TWO_LINES:
            texts = [f"{texts[0]}, {waits.who}", *texts]
        kept = event.op in COMPUTE and box.rank in self.layered
        for line in place_label(texts, below, width, height, kept):
            middle = top + height / 2 * (1 - band(box.look, gathers(event.op)))
            self.texts.append(line.at(x + width / 2, middle, colour))


def boxed(
    x: float, top: float, width: float, height: float, fill: str, stroke: str, title: str, dash: str = ""
) -> Rect:
    """Return the box of an operation, a little apart from the next one; a narrow one has no border."""
    width -= 0.8 if width > 3 else 0
    if stroke == "none" or width < 4:
        return Rect(x, top, width, height, fill, "none", 1, "", 0, title)
    return Rect(x + 0.5, top + 0.5, width - 1, height - 1, fill, stroke, 1, dash, 0, title)


def banded(share: float, x: float, top: float, width: float, height: float, colour: str) -> Iterator[Rect]:
    """Yield the band of a box, if it has one (see `band`)."""
    if share:
        high = max(2.0, round(abs(share) * height, 1))
        yield Rect(x, top if share < 0 else top + height - high, width, high, colour)


class Line(NamedTuple):
    """A line of a label in the middle of its box, or `below` it by some pixels. `turned` where it reads upwards."""

    text: str
    size: float
    below: float = 0.0
    turned: bool = False

    def at(self, x: float, y: float, colour: str) -> Text:
        """Return the line in a box with this middle."""
        return Text(x, y + self.below, self.text, self.size, colour, "middle", turned=self.turned)


def _by_layer(program: Program) -> bool:
    """Whether narrow boxes of a rank name their layers, as colours do too: where layers outnumber batches."""
    computed = [event for event in program.events if event.op in COMPUTE and event.layer is not None]
    return len({event.layer for event in computed}) > len({event.batches for event in computed})


def place_label(texts: Sequence[str], layer: str, width: float, height: float, kept: bool = False) -> list[Line]:
    """Return the longest text that fits into a box, upright or turned, with the layer below if there is room for both.

    Otherwise the layer is left out, or, if the layer is `kept`, the text: the colour says what a box does.
    """
    sizes = [size for least, size in LABEL_SIZES if height >= least]
    if not sizes or width < NARROW:
        return []
    lines = _line(texts, sizes, width, height)
    if not layer:
        return lines
    if lines and not lines[0].turned and height >= TWO_LINES and text_width(layer, SMALL) <= width - 2:
        return [Line(layer, SMALL, 7), lines[0]._replace(below=-5)]
    return (_line([layer], sizes, width, height) or lines) if kept or not texts else lines


def _line(texts: Sequence[str], sizes: Sequence[float], width: float, height: float) -> list[Line]:
    """The longest text that fits, as large as possible; else the shortest, turned, if that fits."""
    fitting = (Line(text, size) for size in sizes for text in texts if text_width(text, size) <= width - 1)
    if (best := next(fitting, None)) is not None:
        return [best]
    short = texts[-1] if texts else "…"
    if short.endswith("…") or width < 8 or text_width(short, SMALL) > height - 5:
        return []
    return [Line(short, SMALL, -1, turned=len(short) > 1)]  # a turned U would not look like a letter


def arrow(message: Message, axis: Axis, rows: Rows) -> list[Poly]:
    """Return a line from the end of a send to the start of its receive, with a head."""
    down = rows.tops[message.target] > rows.tops[message.source]
    start = (axis.x(message.sent) - 1, rows.tops[message.source] + (rows.height if down else 0))
    end = (axis.x(message.received) + 1, rows.tops[message.target] + (0 if down else rows.height))
    tip = 5 if down else -5
    head = ((end[0] - 2.5, end[1] - tip), (end[0] + 2.5, end[1] - tip), end)
    return [Poly((start, (end[0], end[1] - tip)), stroke=ARROW, line=1.2), Poly(head, fill=ARROW)]


APART: Final = 10  # pixels between two arrows of waiting ranks


def waiting_arrows(waits: Mapping[int, int], rows: Rows, right: float) -> Iterator[Poly]:
    """Yield an arrow from the row of each rank to the one that it waits for, left of `right`. Those that close a circle
    are thick."""
    after = {rank: rank for rank in waits}
    for _ in waits:  # a rank still on the way after this many steps is in a circle
        after = {rank: waits.get(there, there) for rank, there in after.items()}
    circle = {*after.values()} & waits.keys()
    shown = [(rank, on) for rank, on in waits.items() if {rank, on} <= rows.tops.keys()]
    for place, (rank, on) in enumerate(shown):
        x, tip = right - 10 - APART * (len(shown) - 1 - place), 6 if on > rank else -6
        start, end = (rows.tops[one] + rows.height / 2 for one in (rank, on))
        inside = rank in circle
        yield Poly(((x, start), (x, end - tip)), stroke=ALARM, line=2 if inside else 1, dash="" if inside else "2 2")
        yield Poly(((x - 4, end - tip), (x + 4, end - tip), (x, end)), fill=ALARM)


def operations(
    layers: int, boxes: Iterable[Box], said: str, padding: bool = False, laws: Collection[bool] = (), of: str = "layer"
) -> list[Entry]:
    """Return the legend of timelines: the layers (`of` says what has colours), and the operations that occur. `said` is
    about the batches of a forward. `laws`: whether collectives gather."""
    occurring = {(box.look, box.lane > 0) for box in boxes}
    shown = range(layers) if layers <= 12 else range(0, layers, -(-layers // 12))
    ramp: list[Rect | Text] = []
    for place, layer in enumerate(shown):
        fill = layer_colour(layer, layers)
        number = Text(place * 17 + 8.5, 6, str(layer), SMALL, ink_on(fill), "middle")
        ramp += [Rect(place * 17, 0, 17, 12, fill), number]
    colour = layer_colour(0, layers)
    entries: list[Entry] = [(ramp, 17 * len(shown), of), swatch(colour, text=f"forward ({said})")]
    if padding:
        sample = [Rect(0, 0, 16, 12, colour), *hatch(1, 1, 14, 10, mix(colour, PAPER, PALER), line=1.2)]
        entries.append((sample, 16, "padding"))
    for look, pair, words in palette.looks_of({look for look, _ in occurring}, colour):
        marks, wide, _ = swatch(*pair, words, 3 if look == "loss" else 16, "3 2" if look == "pending" else "")
        kinds = [(band(look), words)] if look in palette.PASSES else [(0.0, words)]
        if look == "collective" and laws == {False, True}:  # both occur, so they must be told apart
            kinds = [(band(look, True), "gathers"), (band(look), "other collective")]
        entries += [([*marks, *banded(share, 0, 0, wide, 12, colour)], wide, said) for share, said in kinds]
    if any(beside for _, beside in occurring):
        fill, stroke = palette.LOOKS["collective"].pair
        lane = [Rect(0, 0, 22, 5, colour), Rect(6.5, 6.5, 15, 5, fill, stroke)]
        entries.append((lane, 22, "beside computation"))
    return entries
