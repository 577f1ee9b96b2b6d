"""Slides as one PDF: the same bytes every time, whoever makes it and whenever."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import ceil
from pathlib import Path
from typing import Any, Final, cast

from drawing.canvas.picture import Picture, convert, on_paper
from drawing.comparing.comparison import Compared, Comparison, Memory, together
from drawing.comparing.dots import draw_trade_off
from drawing.comparing.overview import Slide, scenes_of
from lib.analysis.difference import unequal
from lib.files import ready
from lib.puzzles.records import Size
from lib.suite.cli.comparing.entries import Entry
from lib.suite.cli.comparing.figures import FIGURES
from lib.suite.cli.comparing.groups import SORTS, Gallery

__all__ = ["comparison_slides", "gallery_slides", "write_slides"]

ROWS: Final = 12
"""Runs whose figures stand on one page."""
DOTS: Final = 12
"""Solutions that have a dot, and a line beside it, on one page."""


def comparison_slides(
    title: str, entries: Sequence[Entry], runs: Sequence[Compared], memory: Memory, fold: bool = True
) -> list[Slide]:
    """The title with what the colours mean; the figures of all; each run; and each beside the first."""
    drawn = [run for run in runs if run.trace is not None]
    names = together([entry.title for entry in entries])
    cover = [*_size_of(drawn), *([names] if names != title else [])]

    @cache
    def laid(width: float, beside: float) -> Comparison:
        return Comparison(drawn, width=width, memory=memory, fold=fold, beside=beside)

    @cache
    def beside_each_other(width: float, beside: float) -> Comparison:
        return Comparison(drawn, width=width, memory="none", fold=fold, beside=beside)

    pages = [Slide(title, cover, partial(_key, laid) if drawn else None, cover=True)]
    whole = [run for run in drawn if run.trace is not None and run.trace.error is None]
    rows = ceil(len(whole) / ceil(len(whole) / ROWS)) if len(whole) > 1 else 0  # about as many on each page
    parts = [whole[first : first + rows] for first in range(0, len(whole), rows)] if rows else []
    pages += [Slide("Figures", [], partial(_figures, part)) for part in parts]
    for entry, run in zip(entries, runs, strict=True):
        at = drawn.index(run) if run in drawn else None
        pages.append(Slide(entry.title, said_of(entry), None if at is None else partial(_part, laid, (at,)), "runs"))
    both = Comparison(drawn)
    same: list[str] = []
    parted = zip(drawn[1:], both.differences(), both.gaps, both.related, strict=True)
    for at, (run, words, gap, alike) in enumerate(parted, 1):
        if alike and gap is None:
            same.append(run.name)
            continue
        painted = partial(_part, beside_each_other, (0, at))
        pages.append(Slide(together([drawn[0].name, run.name]), [words] if words else [], painted, "pairs"))
    if same:
        pages.append(Slide(f"Does the same as {drawn[0].name}, at the same times", [", ".join(same)]))
    return pages


def gallery_slides(shown: Gallery) -> list[Slide]:
    """The title with what the colours mean; time against memory of all that are correct; and each schedule, in their
    order."""
    named = [(f"{place}. {group.title(shown.names)}", group) for place, group in enumerate(shown.groups, 1)]
    runs = [Compared(title, group.first.trace) for title, group in named]

    @cache
    def laid(width: float, beside: float) -> Comparison:
        return Comparison(runs, width=width, beside=beside)

    about = [shown.about, f"sorted by {SORTS[shown.sort]}"]
    pages = [Slide(shown.title, about, partial(_key, laid), cover=True)]
    correct = {title: group.first.trace for title, group in named if group.correct}
    if len(correct) > 1:
        few = [f"the first {DOTS} of {len(correct)}"] if len(correct) > DOTS else []
        dots = draw_trade_off(dict([*correct.items()][:DOTS]), shown.puzzle)
        pages.append(Slide(shown.title, few, partial(_same, dots)))
    for at, (title, group) in enumerate(named):
        said = said_of(group.first) if group.correct else [group.message]
        pages.append(Slide(title, said, partial(_part, laid, (at,)), "runs"))
    return pages


def _same(picture: Picture, width: float, height: float, beside: float) -> Picture:
    """A picture that has one width, in the middle of the page."""
    return on_paper(lambda _: picture, picture.scene.width, frame=False, aspect=width / height)


def _key(laid: Callable[[float, float], Comparison], width: float, height: float, beside: float) -> Picture:
    return laid(width, beside).key()


def _part(
    laid: Callable[[float, float], Comparison], places: Sequence[int], width: float, height: float, beside: float
) -> Picture:
    return laid(width, beside).part(*places)


def _figures(runs: Sequence[Compared], width: float, height: float, beside: float) -> Picture:
    return Comparison(runs, width=width).large_figures(height)


def said_of(entry: Entry) -> list[str]:
    """The figures of a run that one sees from the last row, and its goals; or what went wrong."""
    if entry.message and not entry.correct:
        return entry.message.splitlines()
    if entry.figures is None:
        return []
    judged = [(figure, entry.figures[name]) for name, figure in FIGURES.items() if figure.judged]
    words = " · ".join(f"{figure.title} {figure.words(value)}" for figure, value in judged)
    return [words, *([f"goal reached: {entry.goals[-1]}"] if entry.goals else [])]


def _size_of(runs: Sequence[Compared]) -> list[str]:
    traces = [(run.name, run.trace) for run in runs if run.trace is not None]
    if not traces:
        return []
    different = unequal(traces) is not None
    return [
        "of different sizes: their figures are not those of one task" if different else Size.of(traces[0][1]).words()
    ]


def write_slides(slides: Sequence[Slide], foot: str, path: Path) -> None:
    """Writes a PDF with a page for each."""
    from pypdf import PdfReader, PdfWriter  # here and not above: only slides need it

    writer = cast("Any", PdfWriter())
    for scene in scenes_of(slides, foot):
        (page,) = cast("Any", PdfReader(io.BytesIO(convert(scene.svg(night=False), ".pdf", 1)))).pages
        _in_order(page["/Resources"])
        writer.add_page(page)
    writer.metadata = {"/Title": foot}
    found = io.BytesIO()
    writer.write(found)
    ready(path).write_bytes(found.getvalue())


def _in_order(resources: Any) -> None:
    """Puts fonts and such in the order of their names. The converter has them in that of a hash, another one each time,
    and a page is copied in the order in which things are met."""
    for kind in [*resources]:
        found = resources[kind].get_object()
        if not isinstance(found, dict):  # a list, which has an order
            continue
        found = cast("Any", found)
        ordered = sorted(found.items())
        found.clear()
        found.update(ordered)
        for name, _ in ordered if kind == "/XObject" else ():
            if "/Resources" in found[name]:
                _in_order(found[name]["/Resources"])
