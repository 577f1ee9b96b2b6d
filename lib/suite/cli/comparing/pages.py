"""Pages: a comparison, or a gallery, as an HTML file that needs no network and no script to be read.

What comes from outside is text to the templates, which escape it; a picture escapes its own. A page may run its own
script, known by its hash, and load nothing from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drawing.canvas.palette import GOLD, GOOD
from drawing.canvas.picture import Picture, asset
from drawing.canvas.scene import Scene, Text, sheet
from drawing.comparing.comparison import Compared, Comparison
from drawing.comparing.overview import HIGH, WIDE, thumbnails
from drawing.timeline.schedule import picture_of_trace
from lib.analysis.difference import unequal
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES, Size
from lib.suite.cli.comparing.entries import Entry
from lib.suite.cli.comparing.figures import FIGURES
from lib.suite.cli.comparing.groups import SORTS, Gallery, Group
from lib.suite.cli.templates import colours, policy, rendered
from lib.suite.course.solutions import OFFICIAL

__all__ = ["comparison_page", "gallery_page", "write_page"]


def comparison_page(title: str, entries: Sequence[Entry], compared: Comparison, best: Mapping[str, float]) -> str:
    """A page with the figures of runs in a table, their timelines on one axis, and how they differ."""
    legend, pictures = compared.parts()
    runs = [
        {
            "entry": entry,
            "cells": figure_cells(entry, best),
            "picture": None if entry.trace is None else picture.svg(),
            "failed": entry.trace is not None and entry.trace.error is not None,
        }
        for entry, picture in zip(entries, pictures, strict=True)
    ]
    warning = unequal(compared.drawn)
    return _page(
        "comparison.html",
        title=title,
        warning=warning,
        size=Size.of(compared.traces[0]).words() if compared.traces and warning is None else "",
        legend=legend.svg() if compared.traces else "",
        runs=runs,
        differences=[words for words in compared.differences() if words],
        parted=any(gap is not None for gap in compared.gaps),
        marked=bool(best),
    )


def gallery_page(shown: Gallery, folder: str) -> tuple[str, dict[str, Picture]]:
    """A page with a tile for each schedule, and the large pictures that it leads to, by their names: in a folder beside
    it, or none where the folder is ""."""
    groups = [(group, group.first.trace) for group in shown.groups if group.first.trace is not None]
    small = thumbnails([trace for _, trace in groups])
    fills = {mark.fill for marks in small for mark in marks}
    strokes = {mark.stroke for marks in small for mark in marks if not isinstance(mark, Text)}
    night, style = sheet(fills, strokes, titles=False)
    start = next((group for group, _ in groups if OFFICIAL in group.ours), None)
    tiles: list[dict[str, Any]] = []
    large: dict[str, Picture] = {}
    for (group, trace), marks in zip(groups, small, strict=True):
        title = group.title(shown.names)
        name = f"{folder}/{group.number}.svg" if folder else ""
        if name:
            large[name] = picture_of_trace(trace)
        tiles.append(
            {
                "number": group.number,
                "title": title,
                "count": len(group.students),
                "goals": group.first.goals,
                "cells": figure_cells(group.first, shown.best),
                "correct": group.correct,
                "state": group.first.state,
                "message": group.message,
                "students": group.students if shown.names else (),
                "picture": Scene(WIDE, HIGH, marks, paper=False).svg(label=title, night=False),
                "differs": _differs(start, group) if start is not None and start is not group else (),
                "large": name,
            }
        )
    goals = [goal.name for goal in PUZZLES[shown.puzzle].goals]
    what: dict[str, Any] = {"title": shown.title, "about": shown.about, "sort": shown.sort, "sorts": SORTS}
    return _page(
        "gallery.html", "'self' file:", **what, tiles=tiles, goals=goals, night=night, night_style=style
    ), large


def _differs(official: Group, group: Group) -> list[str]:
    """How a schedule departs from the official one."""
    name = group.first.short if group.ours else "this one"
    other = Compared(name, group.first.trace, counts=group.correct)
    return Comparison([Compared(official.first.short, official.first.trace), other]).differences()


def figure_cells(entry: Entry, best: Mapping[str, float]) -> list[dict[str, Any]]:
    """The figures of an entry as a table has them; one that there is not sorts behind all others."""
    if entry.figures is None:
        return [{"name": name, "value": "", "words": "", "best": False} for name in FIGURES]
    return [
        {
            "name": name,
            "value": repr(round(value, 9)),
            "words": FIGURES[name].words(value),
            "best": entry.correct and best.get(name) == round(value, 9),
        }
        for name, value in entry.figures.items()
    ]


def _page(template: str, images: str = "'none'", **what: Any) -> str:
    """A template of this room with the style and the script that all share. `images` is from where it may load any."""
    script = "\n" + asset(__package__, "page.js")
    style = colours({"good": GOOD, "gold": GOLD}) + asset(__package__, "page.css")
    shared = {"policy": policy(script, images), "style": style, "script": script, "figures": FIGURES}
    return rendered(__package__, template, **shared, **what)


def write_page(path: Path, html: str) -> None:
    """Writes a page, whole or not at all."""
    write_whole(ready(path), html)
