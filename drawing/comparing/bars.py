"""Bars to scale: figures of runs beside each other, their parts, and which one is better.

A column is one figure. Its bars stand under each other on one scale, so that longer means more, with the value of each
beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from drawing.canvas.layout import compact
from drawing.canvas.palette import BOUND, EDGE, GOOD, INK, LOOKS, MINE, NONE, PAPER, SOFT, Colour, ink_on, mix
from drawing.canvas.scene import SMALL, TEXT, Poly, Rect, Scene, Text, fit, fitting, text_width
from drawing.timeline.memory import STACK
from lib.analysis.difference import TIMES, Share, apart, counts, memory_shares, sent_shares, time_shares
from lib.analysis.figures import bubbles
from lib.errors.wording import amount, counted, exact
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES

HIGH: Final = 15  # pixels of a bar's height, and from one to the next
PITCH: Final = 20
BESIDE: Final = 6  # pixels between a bar and its words


class Part(NamedTuple):
    """A part of a bar. The first of `labels` that fits is written in it; `title` is the tooltip."""

    amount: float
    fill: Colour
    border: Colour = NONE
    labels: Sequence[str] = ()
    title: str = ""


class Bar(NamedTuple):
    """A bar: its amount, the words beside it, and its parts. `good` puts a tick after the words."""

    parts: Sequence[Part]
    words: str
    bold: bool = False
    ink: Colour = INK
    good: bool = False

    @property
    def amount(self) -> float:
        """All parts together."""
        return sum(part.amount for part in self.parts)

    @property
    def beside(self) -> float:
        """Pixels that the words take, with the tick."""
        wide = text_width(self.words, TEXT) * (1.08 if self.bold else 1.0)
        return BESIDE + wide + (20 if self.good else 4)


class Bound(NamedTuple):
    """A lower bound, marked by a line through the bars and a diamond below them. `title` is the tooltip."""

    amount: float
    words: str
    title: str = ""


class Column(NamedTuple):
    """One figure: its name, its bars, one for each row (or none), and its lower bound where one is known.

    `line` is drawn dashed through all bars: where the learner's own ends.
    """

    name: str
    bars: Sequence[Bar | None]
    line: float | None = None
    bound: Bound | None = None

    def scale(self, width: float) -> float:
        """Return the pixels of an element or a unit of time, so that every bar has room with its words."""
        shown = [(bar.amount, width - bar.beside) for bar in self.bars if bar is not None and bar.amount > 0]
        if self.bound is not None and self.bound.amount > 0:
            shown.append((self.bound.amount, width))
        return min((room / amount for amount, room in shown), default=0.0)


def columns(scene: Scene, shown: Sequence[tuple[Column, float, float]], y: float, pitch: float = PITCH) -> float:
    """Paint columns, each at its left edge in its width, with bars from y + 16 on; return where they end."""
    return max((_column(scene, column, left, width, y, pitch) for column, left, width in shown), default=y)


def _column(scene: Scene, column: Column, left: float, width: float, y: float, pitch: float) -> float:
    scale = column.scale(width)
    top, bottom = y + 16, y + 16 + pitch * len(column.bars) - (pitch - HIGH) + 3
    scene.add(Text(left, y + 5, fit(column.name, width, TEXT), TEXT, SOFT))
    if column.line is not None:
        end = left + scale * column.line
        scene.add(Poly(((end, top - 3), (end, bottom)), stroke=MINE, dash="2 2"))
    for row, bar in enumerate(column.bars):
        if bar is None:
            continue
        low = top + pitch * row
        end, wide = stack(scene, bar.parts, left, low, scale, HIGH), bar.beside - BESIDE
        scene.add(Rect(end + 3, low, wide, HIGH, PAPER))  # lines that go through all bars must not run through words
        scene.add(Text(end + BESIDE, low + HIGH / 2, bar.words, TEXT, bar.ink, bold=bar.bold))
        if bar.good:
            tick(scene, end + BESIDE + wide - 15, low + HIGH / 2)
    scene.add(Rect(left - 0.8, top - 3, 0.8, bottom - top + 3, EDGE))
    if column.bound is not None:
        return _bound(scene, column.bound, left, width, scale, top - 3, bottom)
    return bottom


def stack(scene: Scene, parts: Sequence[Part], left: float, top: float, scale: float, high: float) -> float:
    """Draw the parts of a bar one after the other, each with its label where there is room; return where they end."""
    x = left
    for part in parts:
        width = scale * part.amount
        if part.amount <= 0:
            continue
        gap = 0.8 if width > 3 else 0.0
        inset = 0.5 if part.border != NONE and width > 3 else 0.0
        border = part.border if inset else NONE
        box = (x + inset, top + inset, max(0.6, width - gap - 2 * inset), high - 2 * inset)
        scene.add(Rect(*box, part.fill, border, title=part.title))
        label = fitting(width - 4, *part.labels, "", size=SMALL)
        if label and high >= 12:
            scene.add(Text(x + (width - gap) / 2, top + high / 2, label, SMALL, ink_on(part.fill), "middle"))
        x += width
    return x


def _bound(scene: Scene, bound: Bound, left: float, width: float, scale: float, top: float, bottom: float) -> float:
    """A line through the bars, a diamond, and its words: beside the diamond where there is room, else below it."""
    x, wide = left + scale * bound.amount, text_width(bound.words, TEXT)
    scene.add(Poly(((x, top), (x, bottom + 2)), stroke=BOUND, line=1.4))
    diamond(scene, x, bottom + 7, 5, 6, bound.title)
    if x + 9 + wide <= left + width:
        scene.add(Text(x + 9, bottom + 8, bound.words, TEXT, BOUND))
    elif x - 9 - wide >= left - 4:
        scene.add(Text(x - 9, bottom + 8, bound.words, TEXT, BOUND, "end"))
    else:
        scene.add(Text(left, bottom + 22, bound.words, TEXT, BOUND))
        return bottom + 30
    return bottom + 16


def diamond(scene: Scene, x: float, y: float, wide: float, high: float, title: str = "") -> None:
    """Draw the mark of a lower bound, on its line or beside its words."""
    scene.add(Poly(((x, y - high), (x + wide, y), (x, y + high), (x - wide, y)), fill=BOUND, title=title))


def tick(scene: Scene, left: float, y: float) -> None:
    """Draw a check mark, 12 pixels wide."""
    scene.add(Poly(((left, y), (left + 4, y + 5), (left + 12, y - 6)), stroke=GOOD, line=2.2))


def row_name(scene: Scene, name: str, left: float, y: float, room: float, reached: bool | None = None) -> None:
    """Write the name of a row of bars: with a tick and bold where it is reached, with a dash where it is not."""
    shift = 0.0 if reached is None else 18.0
    strong = reached is not False
    size = TEXT * (1.08 if strong else 1.0)
    scene.add(Text(left + shift, y, fit(name, room - shift, size), TEXT, INK if strong else SOFT, bold=strong))
    if reached:
        tick(scene, left, y)
    elif reached is not None:
        scene.add(Poly(((left + 2, y), (left + 10, y)), stroke=SOFT, line=2))


_PAIRS: Final = [(MINE, NONE), *(LOOKS[look].pair for look in ("collective", "pass_to", "read", "wait"))]
TIME_LOOKS: Final[dict[str, tuple[Colour, Colour]]] = dict(zip(TIMES, _PAIRS, strict=True))


def time_parts(shares: Sequence[Share]) -> list[Part]:
    """Return the parts of a critical path: computing, collectives, messages, reading and waiting."""
    said = [(share.amount, share.what, exact(share.amount)) for share in shares]
    return [Part(long, *TIME_LOOKS[what], (f"{what} {words}", words), f"{what}: {words}") for long, what, words in said]


def memory_parts(shares: Iterable[Share]) -> list[Part]:
    """Return the parts of a bar of memory: values alive at the peak, by kind, in the order of the stack."""
    amounts = {share.what: share.amount for share in shares}
    return [
        Part(size, colour, NONE, (f"{kind} {compact(size)}", kind), f"{kind}: {amount(size)}")
        for kind, colour in STACK.items()
        if (size := amounts.get(kind)) is not None
    ]


def sent_parts(shares: Sequence[Share], first: Iterable[str] = ()) -> list[Part]:
    """Return the parts of a bar of traffic: by collective, and messages. Those named `first` come first."""
    order = list(first)
    parts: list[Part] = []
    for share in sorted(shares, key=lambda share: order.index(share.what) if share.what in order else len(order)):
        row = COLLECTIVES.get(share.what)
        title, word = (row.title, row.word) if row is not None else ("messages", "messages")
        fill, border = LOOKS["pass_to" if row is None else "collective"].pair
        if row is not None:  # each a little stronger than the one before it in the table, to tell them apart in a bar
            fill = mix(fill, border, min(0.7, 0.14 * [*COLLECTIVES].index(row.name)))
        said = compact(share.amount)
        labels = (f"{title} {said}", f"{word} {said}", word)
        parts.append(Part(share.amount, fill, border, labels, f"{title}: {amount(share.amount)} elements"))
    return parts


LINE: Final = 24  # pixels from one run to the next
WIDTHS: Final = (0.22, 0.27, 0.27, 0.07, 0.17)  # the shares of the columns in the room: time, peak, sent, idle, calls


def table(
    scene: Scene, runs: Sequence[tuple[str, Trace]], left: float, right: float, y: float, valid: Sequence[bool]
) -> float:
    """Paint the table from `y` on; return where it ends. The better ones of the `valid` runs are marked, and for two
    of them the last row says how far apart they are."""
    traces, two = [trace for _, trace in runs], len(runs) == 2 and all(valid)
    names = min(170.0, max(text_width(name, TEXT) * 1.1 for name, _ in runs) + 22)
    names = max(names, text_width("difference", TEXT) + 18) if two else names
    room, first, x = right - left - names, y + 16 + HIGH / 2, left + names
    for row, (name, _) in enumerate(runs):
        row_name(scene, name, left, first + LINE * row, names - 8)
    if two:
        scene.add(Text(left, first + LINE * 2, "difference", TEXT, SOFT))
    placed: list[tuple[Column, float, float]] = []
    for (column, words), part in zip(_measured(traces, valid), WIDTHS, strict=False):
        placed.append((column, x, room * part - 14))
        if two:
            same = words == "the same"
            scene.add(Text(x, first + LINE * 2, words, TEXT, SOFT if same else INK, bold=not same))
        x += room * part
    bottom = columns(scene, placed, y, LINE)
    idle, common = [round(bubbles(trace).makespan, 6) for trace in traces], _common(traces)
    cells = (
        ("idle", [f"{share:.1%}" for share in idle], _best(idle, valid)),
        ("calls per rank", [_calls(trace, common) for trace in traces], [False] * len(runs)),
    )
    for (name, words, good), part in zip(cells, WIDTHS[3:], strict=True):
        scene.add(Text(x, y + 5, name, TEXT, SOFT))
        for row, (said, marked) in enumerate(zip(words, good, strict=True)):
            scene.add(Text(x, first + LINE * row, fit(said, room * part, TEXT), TEXT, INK, bold=marked))
        x += room * part
    return bottom + (LINE if two else 0) + 4


def _common(runs: Sequence[Trace]) -> list[str]:
    """Return the operations with which all runs send: they come first, so that the rest can be compared."""
    sent = [{share.what for share in sent_shares(trace)} for trace in runs]
    return [op for op in (*COLLECTIVES, "pass_to") if all(op in ops for ops in sent)]


def _measured(runs: Sequence[Trace], valid: Sequence[bool]) -> list[tuple[Column, str]]:
    """Time, peak and traffic: bars, the shortest marked where not all are equal; and how far apart two are."""
    time, peak, sent = ([shares(run) for run in runs] for shares in (time_shares, memory_shares, sent_shares))
    common = _common(runs)
    measured: list[tuple[Column, str]] = []
    for name, shares, parts, words in (
        ("time", time, [time_parts(mine) for mine in time], exact),
        ("peak, in elements", peak, [memory_parts(mine) for mine in peak], amount),
        ("sent per rank, in elements", sent, [sent_parts(mine, common) for mine in sent], amount),
    ):
        sums = [round(sum(share.amount for share in mine), 9) for mine in shares]
        marked = zip(parts, sums, _best(sums, valid), strict=True)
        bars = [Bar(mine, words(total), bold=good, good=good) for mine, total, good in marked]
        measured.append((Column(name, bars), apart(*sums) if len(sums) == 2 else ""))
    return measured


def _best(figures: Sequence[float], valid: Sequence[bool]) -> list[bool]:
    judged = [figure for figure, counts in zip(figures, valid, strict=True) if counts]
    best = min(judged) if judged and min(judged) != max(judged) else None
    return [counts and figure == best for figure, counts in zip(figures, valid, strict=True)]


def _calls(trace: Trace, first: Sequence[str]) -> str:
    """Collectives by their short names, and messages: "12 AG, 6 RS"."""
    calls = counts(trace)
    order = sorted(calls.collectives, key=lambda op: op not in first)
    said = [f"{calls.collectives[op]} {COLLECTIVES[op].word}" for op in order]
    return ", ".join([*said, *([counted(calls.messages, "message")] if calls.messages else [])]) or "none"
