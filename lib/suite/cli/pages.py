"""Pages made of templates, and those and the pictures of comparisons and galleries.

What others wrote goes through two gates, at one place each: what cannot be seen is made visible in everything that a
template prints, and then it is escaped. A page runs its own script and loads nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drawing.canvas.palette import GOLD, GOOD, PAGE, Colour
from drawing.canvas.picture import asset, on_paper
from lib.errors.wording import visible
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES, Size

if TYPE_CHECKING:
    from lib.suite.cli.compare import Gallery
    from lib.suite.cli.entries import Entry


def page(
    template: str,
    look: str,
    images: str = "'none'",
    script: bool = True,
    colours: Mapping[str, Colour] | None = None,
    **values: Any,
) -> str:
    """Fill in a template of `templates/`, which may use others there, with the style and script that a `look` has.

    `images` is from where the page may load any; its script is known by its hash, and nothing else comes from anywhere.
    `colours` are its own, by the names that its style uses. What is text in `values` is escaped; markup of ours comes
    as `markup`. ModuleNotFoundError without jinja2.
    """
    need_extra("grade", "a page needs", "jinja2")
    code = f"\n{file_of(f'{look}.js')}" if script else ""
    digest = b64encode(sha256(code.encode()).digest()).decode()
    allowed = f" script-src 'sha256-{digest}';" if script else ""
    policy = (
        f"default-src 'none';{allowed} style-src 'unsafe-inline'; img-src {images}; base-uri 'none'; form-action 'none'"
    )
    # The colours of all pages, and its own: by day and by night, as its `color-scheme` says, which follows the system
    # or what is chosen on the page.
    every = {**PAGE, **(colours or {})}
    day = "".join(f"--{name}:{colour};" for name, colour in every.items())
    both = "".join(f"--{name}:light-dark({colour},{colour.night});" for name, colour in every.items())
    look_of = f":root{{color-scheme:light dark;{day}}}\n@supports(color:light-dark(red,red)){{:root{{{both}}}}}\n"
    shared = {"policy": markup(policy), "style": markup(look_of + file_of(f"{look}.css")), "script": markup(code)}
    return _environment().get_template(template).render(**shared, **values)


@cache
def file_of(name: str) -> str:
    """Return the text of a template, style or script."""
    return asset(__package__, f"templates/{name}")


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here and not above: only a page needs it

    return Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(file_of),
        finalize=_seen,
    )


def _seen(value: Any) -> Any:
    """Text with all that cannot be seen made visible. Markup is ours, and a subclass of str."""
    return visible(value) if type(value) is str else value


def markup(text: str) -> Any:
    """Return markup of ours, which a template prints as it is."""
    from markupsafe import Markup  # here and not above: it comes with jinja2

    return Markup(text)


# -- a comparison ---------------------------------------------------------------------------------------------------


def _compared(entries: Sequence[Entry], says: bool) -> tuple[list[Any], str]:
    """The runs to draw, and a title: their puzzle, where all are of one; else what they are called."""
    from drawing.comparing.comparison import Compared, together

    runs = [
        Compared(one.short, one.trace, one.message if says else "", one.correct, one.title, one.puzzle or "")
        for one in entries
    ]
    task = entries[0].puzzle
    of_one = len(entries) > 1 and task is not None and all(entry.puzzle == task for entry in entries)
    return runs, PUZZLES[task].title if task is not None and of_one else together([entry.short for entry in entries])


def draw_comparison(
    entries: Sequence[Entry], memory: Any, fold: bool, shape: tuple[bool, float | None], path: Path
) -> None:
    """Draw runs below each other, on one axis, into a file."""
    from drawing.comparing.comparison import Comparison
    from drawing.timeline.schedule import WIDTH

    runs, title = _compared(entries, says=True)
    on_paper(
        lambda width: Comparison(runs, width=width, memory=memory, fold=fold, title=title).picture(), WIDTH, *shape
    ).save(path)


def comparison(entries: Sequence[Entry], lowest: Mapping[str, float], memory: Any, fold: bool) -> str:
    """Return a page with the figures of runs in a table, their timelines on one axis, and how they differ."""
    from drawing.comparing.comparison import Comparison
    from lib.analysis.difference import unequal

    runs, title = _compared(entries, says=False)  # the page says what went wrong
    compared = Comparison(runs, memory=memory, fold=fold)
    legend, pictures = compared.parts()
    warning = unequal(compared.drawn)
    rows = [
        {"entry": entry, "cells": entry.cells(lowest), "picture": entry.trace and picture.svg()}
        for entry, picture in zip(entries, pictures, strict=True)
    ]
    return _comparing(
        "comparison.html",
        title=title,
        warning=warning,
        size=Size.of(compared.traces[0]).words() if compared.traces and warning is None else "",
        legend=legend.svg() if compared.traces else "",
        runs=rows,
        differences=[words for words in compared.differences() if words],
        parted=any(gap is not None for gap in compared.gaps),
        marked=bool(lowest),
    )


def _comparing(template: str, images: str = "'none'", **what: Any) -> str:
    """A page of a comparison or a gallery, with the style and the script that both share."""
    from lib.suite.cli.entries import FIGURES

    return page(template, "comparing", images, colours={"good": GOOD, "gold": GOLD}, figures=FIGURES, **what)


# -- a gallery ------------------------------------------------------------------------------------------------------


def draw_gallery(shown: Gallery, shape: tuple[bool, float | None], path: Path) -> None:
    """Draw the solutions of a puzzle small, beside each other, into a file."""
    from drawing.comparing.overview import Tile, draw_overview
    from drawing.timeline.schedule import WIDTH
    from lib.suite.cli.compare import SORTS
    from lib.suite.cli.entries import FIGURES

    tiles: list[Tile] = []
    for group in shown.groups:
        first = group.first
        assert first.trace is not None, "what is shown has a run"
        goal = f"goal reached: {first.goals[-1]}" if first.goals else ""
        judged = [cell for cell in first.cells({}) if cell.words and FIGURES[cell.name].judged]
        said = [f"{FIGURES[cell.name].title} {cell.words}" for cell in judged]
        half = (len(said) + 1) // 2
        lines = [" · ".join(said[:half]), " · ".join(said[half:])] if said else []
        tiles.append(Tile(group.title(shown.names), first.trace, lines, group.message or goal, first.correct))
    overview = draw_overview(shown.title, f"{shown.about} · sorted by {SORTS[shown.sort]}", tiles)
    on_paper(lambda width: overview, WIDTH, *shape).save(path)


def write_gallery(shown: Gallery, path: Path) -> None:
    """Write a page with a tile for each schedule, and the large pictures that it leads to into a folder beside it."""
    from drawing.canvas.scene import Scene, Text, sheet
    from drawing.comparing.comparison import Compared, Comparison
    from drawing.comparing.overview import HIGH, WIDE, thumbnails
    from drawing.timeline.schedule import picture_of_trace
    from lib.suite.cli.compare import SORTS
    from lib.suite.cli.entries import best
    from lib.suite.course.solutions import OFFICIAL

    groups = [(group, group.first.trace) for group in shown.groups if group.first.trace is not None]
    small = thumbnails([trace for _, trace in groups])
    fills = {mark.fill for marks in small for mark in marks}
    strokes = {mark.stroke for marks in small for mark in marks if not isinstance(mark, Text)}
    night, style = sheet(fills, strokes, titles=False)
    lowest = best([group.first for group in shown.groups])
    official = next((group for group, _ in groups if any(entry.name == OFFICIAL for entry in group.ours)), None)
    tiles: list[dict[str, Any]] = []
    for (group, trace), marks in zip(groups, small, strict=True):
        title, differs = group.title(shown.names), list[str]()
        if official is not None and official is not group:
            other = Compared(group.first.short if group.ours else "this one", trace, counts=group.first.correct)
            differs = Comparison([Compared(official.first.short, official.first.trace), other]).differences()
        picture = Scene(WIDE, HIGH, marks, paper=False).svg(label=title, night=False)
        large = f"{path.stem}_pictures/{group.number}.svg" if shown.pictures else ""
        tile = {"group": group, "title": title, "cells": group.first.cells(lowest), "picture": picture}
        tiles.append({**tile, "differs": differs, "large": large})
    goals = [goal.name for goal in PUZZLES[shown.puzzle].goals]
    looks = {"title": shown.title, "night": night, "night_style": style}
    html = _comparing("gallery.html", "'self' file:", shown=shown, sorts=SORTS, tiles=tiles, goals=goals, **looks)
    write_whole(ready(path), html)
    for (_, trace), tile in zip(groups, tiles, strict=True):
        if tile["large"]:
            picture_of_trace(trace).save(path.parent / tile["large"])
