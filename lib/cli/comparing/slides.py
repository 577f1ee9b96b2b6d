"""Slides as one PDF: the same bytes every time, whoever makes it and whenever."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from drawing.canvas.bitmap import convert
from drawing.canvas.picture import Picture
from drawing.comparing.comparison import Compared, Comparison, Memory
from drawing.comparing.slides import Slide, scene_of
from drawing.trade_off import draw_trade_off
from lib.analysis.difference import unequal
from lib.cli.comparing.entries import Entry
from lib.cli.comparing.figures import FIGURES
from lib.cli.comparing.groups import SORTS, Gallery
from lib.files import ready
from lib.puzzles.records import Size

__all__ = ["comparison_slides", "gallery_slides", "write_slides"]

ROWS: Final = 9
"""Runs whose figures stand on one page."""
BARS: Final = 740
"""Pixels that the bars of figures need."""
DOTS: Final = 12
"""Solutions that have a dot, and a line beside it, on one page."""
PLOT: Final = 840
"""Pixels that the dots and their lines have."""


def comparison_slides(title: str, entries: Sequence[Entry], runs: Sequence[Compared], memory: Memory) -> list[Slide]:
    """The title; each run; the figures of all; and where each departs from the first."""
    drawn = [run for run in runs if run.trace is not None]
    names = ", ".join(entry.name for entry in entries)
    pages = [Slide(title, [*_size_of(drawn), names])]
    for entry, run in zip(entries, runs, strict=True):
        pages.append(Slide(entry.name, said_of(entry), timeline([run], memory)))
    whole = [run for run in drawn if run.trace is not None and run.trace.error is None]
    parts = [whole[first : first + ROWS] for first in range(0, len(whole), ROWS)] if len(whole) > 1 else []
    pages += [Slide("The figures of all", [], _figures(part), BARS) for part in parts]
    both = Comparison(drawn)
    same = [run.name for run, gap in zip(drawn[1:], both.gaps, strict=True) if gap is None]
    for run, gap, words in zip(drawn[1:], both.gaps, both.differences(), strict=True):
        if gap is not None:
            pages.append(Slide(f"{drawn[0].name} and {run.name}", [words], timeline([drawn[0], run], "none")))
    if same:
        pages.append(Slide(f"Does the same as {drawn[0].name}, at the same times", [", ".join(same)]))
    return pages


def gallery_slides(shown: Gallery) -> list[Slide]:
    """The title; time against memory of all that are correct; and each schedule, in their order."""
    pages = [Slide(shown.title, [shown.about, f"sorted by {SORTS[shown.sort]}"])]
    named = [(f"{place}. {group.title(shown.names)}", group) for place, group in enumerate(shown.groups, 1)]
    correct = {title: group.first.trace for title, group in named if group.correct}
    if correct:
        few = [f"the first {DOTS} of {len(correct)}"] if len(correct) > DOTS else []
        dots = draw_trade_off(dict([*correct.items()][:DOTS]), shown.puzzle)
        pages.append(Slide("Time against memory", few, partial(_same, dots), PLOT))
    for title, group in named:
        said = said_of(group.first) if group.correct else [group.message]
        pages.append(Slide(title, said, timeline([Compared("", group.first.trace)], "peak")))
    return pages


def timeline(runs: Sequence[Compared], memory: Memory) -> Callable[[float], Picture] | None:
    """What paints timelines at a width, without what the page says of them; None where there is none."""
    shown = [run._replace(said="", name=run.name if len(runs) > 1 else "") for run in runs]
    if all(run.trace is None for run in runs):
        return None
    return lambda width: Comparison(shown, width=width, memory=memory).timelines()


def said_of(entry: Entry) -> list[str]:
    """The figures of a run that one sees from the last row, and its goals; or what went wrong."""
    if entry.message and not entry.correct:
        return entry.message.splitlines()
    if entry.figures is None:
        return []
    judged = [(figure, entry.figures[name]) for name, figure in FIGURES.items() if figure.judged]
    words = " · ".join(f"{figure.title} {figure.words(value)}" for figure, value in judged)
    return [words, *([f"goal reached: {entry.goals[-1]}"] if entry.goals else [])]


def _same(picture: Picture, width: float) -> Picture:
    """A picture that has one width."""
    return picture


def _figures(runs: Sequence[Compared]) -> Callable[[float], Picture]:
    return lambda width: Comparison(runs, width=width).figures(headline=False)


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
    for number, slide in enumerate(slides, 1):
        svg = scene_of(slide, number, len(slides), foot).svg(night=False)
        (page,) = cast("Any", PdfReader(io.BytesIO(convert(svg, ".pdf", 1)))).pages
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
