"""Runs beside each other in figures: a row for each run, what its figures are made of, and which one is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from drawing.canvas.palette import INK, SOFT
from drawing.canvas.scene import TEXT, Scene, Text, fit, text_width
from drawing.figures.bars import HIGH, PITCH, Bar, Column, Part, columns, row_name
from drawing.figures.parts import memory_parts, sent_parts, time_parts
from lib.analysis.difference import apart
from lib.analysis.figures import bubbles
from lib.analysis.shares import Share, counts, memory_shares, sent_shares, time_shares
from lib.errors.wording import amount, counted, exact
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES

__all__ = ["LINE", "measures", "table"]

LINE: Final = 24
"""Pixels from one run to the next."""
WIDTHS: Final = (0.22, 0.27, 0.27, 0.07, 0.17)
"""How the columns share the room: time, peak, sent, idle, and what is counted."""


class Measure(NamedTuple):
    """A column of bars: its name, what the bar of a run is made of, and how its sum is written."""

    name: str
    shares: Callable[[Trace], Sequence[Share]]
    parts: Callable[[Sequence[Share]], list[Part]]
    words: Callable[[float], str]


def table(
    scene: Scene,
    runs: Sequence[tuple[str, Trace]],
    left: float,
    right: float,
    y: float,
    judged: bool = True,
    counts: Sequence[bool] | None = None,
    line: float = LINE,
) -> float:
    """Paints the table from `y` on, a run on each `line` of so many pixels; returns where it ends. Where it is `judged`
    the better ones are marked, and of two runs the last row says how far they are apart. What does not count (`counts`)
    is never a better one: a run that leaves something out is soon over."""
    names = _room_of_names(runs)
    valid = _valid(runs, judged, counts)
    two = len(runs) == 2 and all(valid)
    if two:
        names = max(names, text_width("difference", TEXT) + 18)
    room, high = right - left - names, HIGH * line / LINE
    first = y + 16 + high / 2
    for row, (name, _) in enumerate(runs):
        row_name(scene, name, left, first + line * row, names - 8)
    if two:
        scene.add(Text(left, first + line * 2, "difference", TEXT, SOFT))
    x, placed = left + names, list[tuple[Column, float, float]]()
    for measure, part in zip(_measures(runs), WIDTHS, strict=False):
        column, apart = _column(measure, [trace for _, trace in runs], valid)
        placed.append((column, x, room * part - 14))
        if two:
            same = apart == "the same"
            scene.add(Text(x, first + line * 2, apart, TEXT, SOFT if same else INK, bold=not same))
        x += room * part
    bottom = columns(scene, placed, y, line, high)
    _texts(scene, [trace for _, trace in runs], x, room, y, valid, line)
    return bottom + (line if two else 0) + 4


def measures(
    scene: Scene,
    runs: Sequence[tuple[str, Trace]],
    left: float,
    right: float,
    y: float,
    judged: bool = True,
    counts: Sequence[bool] | None = None,
) -> float:
    """Paints the bars of each measure below those of the one before, as wide as there is room; returns where it ends.
    `judged` and `counts` are those of a table."""
    valid = _valid(runs, judged, counts)
    x = left + _room_of_names(runs, 230.0)
    for measure in _measures(runs):
        column, _ = _column(measure, [trace for _, trace in runs], valid)
        for row, (name, _) in enumerate(runs):
            row_name(scene, name, left, y + 16 + HIGH / 2 + PITCH * row, x - left - 8)
        y = columns(scene, [(column, x, right - x)], y) + 14
    return y


def _valid(runs: Sequence[object], judged: bool, counts: Sequence[bool] | None) -> list[bool]:
    """Which runs may be the better one."""
    return [judged] * len(runs) if counts is None else [judged and one for one in counts]


def _room_of_names(runs: Sequence[tuple[str, Trace]], most: float = 170.0) -> float:
    return min(most, max(text_width(name, TEXT) * 1.1 for name, _ in runs) + 22)


def _common(runs: Sequence[Trace]) -> list[str]:
    """What all runs send comes first, so that the rest can be compared."""
    sent = [{share.what for share in sent_shares(trace)} for trace in runs]
    return [op for op in (*COLLECTIVES, "pass_to") if all(op in found for found in sent)]


def _measures(runs: Sequence[tuple[str, Trace]]) -> Sequence[Measure]:
    """Time, peak and what is sent."""
    common = _common([trace for _, trace in runs])

    def sent(shares: Sequence[Share]) -> list[Part]:
        return sent_parts(shares, common)

    return (
        Measure("time", time_shares, time_parts, exact),
        Measure("peak, in elements", memory_shares, memory_parts, amount),
        Measure("sent per rank, in elements", sent_shares, sent, amount),
    )


def _best(figures: Sequence[float], valid: Sequence[bool]) -> list[bool]:
    """Which of the figures are the lowest of those that are valid, where not all of these are equal."""
    judged = [figure for figure, counts in zip(figures, valid, strict=True) if counts]
    best = min(judged) if judged and min(judged) != max(judged) else None
    return [counts and figure == best for figure, counts in zip(figures, valid, strict=True)]


def _column(measure: Measure, runs: Sequence[Trace], valid: Sequence[bool]) -> tuple[Column, str]:
    """The bars of a measure, the shortest ones marked where not all are equal; and how far two are apart, in words."""
    every = [measure.shares(trace) for trace in runs]
    sums = [round(sum(share.amount for share in shares), 9) for shares in every]
    bars: list[Bar] = []
    for shares, total, good in zip(every, sums, _best(sums, valid), strict=True):
        bars.append(Bar(measure.parts(shares), measure.words(total), bold=good, good=good))
    return Column(measure.name, bars), apart(*sums) if len(sums) == 2 else ""


def _texts(
    scene: Scene, runs: Sequence[Trace], x: float, room: float, y: float, valid: Sequence[bool], line: float
) -> None:
    """How long the ranks are idle, and how often a rank communicates."""
    first = y + 16 + HIGH * line / LINE / 2
    idle = [round(bubbles(trace).makespan, 6) for trace in runs]
    cells = [("idle", [f"{share:.1%}" for share in idle], _best(idle, valid))]
    common = _common(runs)
    cells.append(("calls per rank", [_counted(trace, common) for trace in runs], [False] * len(runs)))
    for (name, words, good), part in zip(cells, WIDTHS[3:], strict=True):
        scene.add(Text(x, y + 5, name, TEXT, SOFT))
        for row, (said, marked) in enumerate(zip(words, good, strict=True)):
            scene.add(Text(x, first + line * row, fit(said, room * part, TEXT), TEXT, INK, bold=marked))
        x += room * part


def _counted(trace: Trace, first: Sequence[str]) -> str:
    """Collectives by their short names, and messages: "12 AG, 6 RS"."""
    found = counts(trace)
    ops = sorted(found.collectives, key=lambda op: op not in first)
    said = [f"{found.collectives[op]} {COLLECTIVES[op].word}" for op in ops]
    if found.messages:
        said.append(counted(found.messages, "message"))
    return ", ".join(said) or "none"
