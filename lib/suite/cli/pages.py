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
from drawing.canvas.picture import Picture, asset, on_paper
from lib.errors.wording import counted, visible
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.goals import Size
from lib.puzzles.records import PUZZLES

if TYPE_CHECKING:
    from lib.suite.cli.compare import Group
    from lib.suite.cli.entries import Entry


def page(name: str, look: str, images: str, colours: Mapping[str, Colour], **values: Any) -> str:
    """Fill in a template of `templates/`, which may use others there, with the style and script that a `look` has.

    `images` is from where the page may load any; its script is known by its hash, and nothing else comes from anywhere.
    `colours` are its own, by the names that its style uses. What is text in `values` is escaped; markup of ours comes
    as `markup`. ModuleNotFoundError without jinja2.
    """
    need_extra("grade", "a page needs", "jinja2")
    code = f"\n{file_of(f'{look}.js')}"
    allowed = f"script-src 'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'; style-src 'unsafe-inline'"
    policy = f"default-src 'none'; {allowed}; img-src {images}; base-uri 'none'; form-action 'none'"
    # The colours of all pages, and its own: by day and by night, as its `color-scheme` says, which follows the system
    # or what is chosen on the page.
    every = {**PAGE, **colours}
    day = "".join(f"--{name}:{colour};" for name, colour in every.items())
    both = "".join(f"--{name}:light-dark({colour},{colour.night});" for name, colour in every.items())
    look_of = f":root{{color-scheme:light dark;{day}}}\n@supports(color:light-dark(red,red)){{:root{{{both}}}}}\n"
    shared = {"policy": markup(policy), "style": markup(look_of + file_of(f"{look}.css")), "script": markup(code)}
    return template(name).render(**shared, **values)


@cache
def file_of(name: str) -> str:
    """Return the text of a template, style or script."""
    return asset(__package__, f"templates/{name}")


def template(name: str) -> Any:
    """Return a template: what is text in a page is escaped, and what cannot be seen made visible."""
    return _environment().get_template(name)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # here and not above: only a page needs it

    return Environment(
        autoescape=lambda name: name is not None and name.endswith(".html"),
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


def draw_comparison(entries: Sequence[Entry], fold: bool, frame: bool, aspect: float | None, path: Path) -> None:
    """Draw runs below each other, on one axis, into a file."""
    from drawing.comparing.comparison import Comparison
    from drawing.timeline.schedule import WIDTH

    runs, title = _compared(entries, says=True)

    def paint(width: float) -> Picture:
        return Comparison(runs, width=width, fold=fold, title=title).picture()

    on_paper(paint, WIDTH, frame, aspect).save(path)


def write_comparison(entries: Sequence[Entry], lowest: Mapping[str, float], fold: bool, path: Path) -> None:
    """Write a page with the figures of runs in a table, their timelines on one axis, and how they differ."""
    from drawing.comparing.comparison import Comparison
    from lib.analysis.difference import unequal

    runs, title = _compared(entries, says=False)  # the page says what went wrong
    compared = Comparison(runs, fold=fold)
    legend, pictures = compared.parts()
    warning = unequal(compared.drawn)
    rows = [
        {"entry": entry, "cells": entry.cells(lowest), "picture": entry.trace and picture.svg()}
        for entry, picture in zip(entries, pictures, strict=True)
    ]
    _write(
        path,
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


def _write(path: Path, name: str, images: str = "'none'", **what: Any) -> None:
    """Write a page of a comparison or a gallery, with the style and the script that both share."""
    from lib.suite.cli.entries import FIGURES

    html = page(name, "comparing", images, {"good": GOOD, "gold": GOLD}, figures=FIGURES, **what)
    write_whole(ready(path), html)


# -- a gallery ------------------------------------------------------------------------------------------------------


def write_gallery(puzzle: str, groups: Sequence[Group], lowest: Mapping[str, float], names: bool, path: Path) -> None:
    """Write a page with a tile for each schedule, and the large pictures that it leads to into a folder beside it."""
    from drawing.canvas.scene import Scene, Text, sheet
    from drawing.comparing.comparison import Compared, Comparison
    from drawing.comparing.overview import HIGH, WIDE, thumbnails
    from drawing.timeline.schedule import picture_of_trace
    from lib.suite.course.solutions import OFFICIAL

    record, drawn = PUZZLES[puzzle], [(group, group.first.trace) for group in groups if group.first.trace is not None]
    small = thumbnails([trace for _, trace in drawn])
    every = [mark for marks in small for mark in marks]
    strokes = {mark.stroke for mark in every if not isinstance(mark, Text)}
    night, style = sheet({mark.fill for mark in every}, strokes, titles=False)
    official = next((one for group in groups for one in group.ours if one.name == f"{puzzle}:{OFFICIAL}"), None)
    tiles: list[dict[str, Any]] = []
    for (group, trace), marks in zip(drawn, small, strict=True):
        title, differs, large = group.title(names), list[str](), f"{path.stem}_pictures/{group.number}.svg"
        if official is not None and official not in group.ours:
            other = Compared(group.first.short if group.ours else "this one", trace, counts=group.first.correct)
            differs = Comparison([Compared(official.short, official.trace), other]).differences()
        picture = Scene(WIDE, HIGH, marks, paper=False).svg(label=title, night=False)
        tiles.append({"group": group, "title": title, "cells": group.first.cells(lowest), "picture": picture})
        tiles[-1] |= {"differs": differs, "large": large}
        picture_of_trace(trace).save(path.parent / large)
    solutions = sum(len(group.ours) + len(group.students) for group in groups)
    _write(
        path,
        "gallery.html",
        "'self' file:",
        title=f"Solutions of {record.heading}",
        about=f"{record.size.words()} · {counted(solutions, 'solution')}, {counted(len(groups), 'schedule')}",
        goals=[goal.name for goal in record.goals],
        tiles=tiles,
        names=names,
        night=night,
        night_style=style,
    )
