"""The files that a comparison and a gallery are written to: one row for each format, by the suffix of its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lib.extras import need_extra
from lib.puzzles.records import PUZZLES
from lib.suite.cli.comparing.entries import Entry
from lib.suite.cli.comparing.figures import FIGURES
from lib.suite.cli.comparing.groups import SORTS, Gallery, Group

if TYPE_CHECKING:
    from drawing.canvas.picture import Picture
    from drawing.comparing.comparison import Compared

__all__ = ["COMPARISONS", "GALLERIES", "Form", "Memory", "Paper", "need_for"]

# What draws is imported where something is drawn: figures alone need no picture.

Memory = Literal["peak", "each", "none"]
"""Whose memory is drawn."""
Best = Mapping[str, float]


class Paper(NamedTuple):
    """What a picture is on: with a frame around it or not, and how many times as wide as it is high, where somebody
    says so."""

    frame: bool = True
    aspect: float | None = None

    def save(self, paint: Callable[[float], Picture], path: Path) -> None:
        """Paints a picture as wide as its paper asks for, and writes it."""
        from drawing.canvas.picture import on_paper
        from drawing.timeline.schedule import WIDTH

        on_paper(paint, WIDTH, self.frame, self.aspect).save(path)


class Form(NamedTuple):
    """What a comparison shows: whose memory, and whether ranks that are alike share a row; and on which paper."""

    memory: Memory = "peak"
    fold: bool = True
    paper: Paper = Paper()


def need_for(path: Path) -> None:
    """ModuleNotFoundError where an extra is missing that the format of a file needs: before anything runs."""
    if path.suffix == ".html":
        need_extra("grade", "a page needs", "jinja2")
    elif path.suffix == ".png":
        need_extra("png", "a PNG needs", "vl_convert")
    elif path.suffix == ".pdf":
        need_extra("png", "slides need")


def _compared(entries: Sequence[Entry]) -> list[Compared]:
    from drawing.comparing.comparison import Compared

    return [
        Compared(entry.short, entry.trace, entry.message, entry.correct, entry.title, entry.task or "")
        for entry in entries
    ]


def _title(entries: Sequence[Entry]) -> str:
    """The puzzle, where all are of one; else what they are called."""
    from drawing.comparing.comparison import together

    tasks = {entry.task for entry in entries}
    if len(entries) > 1 and len(tasks) == 1 and (task := tasks.pop()) is not None:
        return PUZZLES[task].title
    return together([entry.short for entry in entries])


def _comparison_picture(entries: Sequence[Entry], form: Form, best: Best, path: Path) -> None:
    from drawing.comparing.comparison import Comparison

    runs, title = _compared(entries), _title(entries)

    def paint(width: float) -> Picture:
        return Comparison(runs, width=width, memory=form.memory, fold=form.fold, title=title).picture()

    form.paper.save(paint, path)


def _comparison_page(entries: Sequence[Entry], form: Form, best: Best, path: Path) -> None:
    from drawing.comparing.comparison import Comparison
    from lib.suite.cli.comparing.pages import comparison_page, write_page

    silent = [run._replace(said="") for run in _compared(entries)]  # the page says what went wrong
    compared = Comparison(silent, memory=form.memory, fold=form.fold)
    write_page(path, comparison_page(_title(entries), entries, compared, best))


def _comparison_slides(entries: Sequence[Entry], form: Form, best: Best, path: Path) -> None:
    from lib.suite.cli.comparing.slides import comparison_slides, write_slides

    slides = comparison_slides(_title(entries), entries, _compared(entries), form.memory, form.fold)
    write_slides(slides, _title(entries), path)


COMPARISONS: Final[Mapping[str, Callable[[Sequence[Entry], Form, Best, Path], None]]] = {
    ".svg": _comparison_picture,
    ".png": _comparison_picture,
    ".html": _comparison_page,
    ".pdf": _comparison_slides,
}


def _gallery_picture(shown: Gallery, paper: Paper, path: Path) -> None:
    from drawing.comparing.overview import Tile, draw_overview

    tiles: list[Tile] = []
    for group in shown.groups:
        first = group.first
        assert first.trace is not None, "what is shown has a run"
        goal = f"goal reached: {first.goals[-1]}" if first.goals else ""
        tiles.append(Tile(group.title(shown.names), first.trace, _lines(group), group.message or goal, group.correct))
    overview = draw_overview(shown.title, f"{shown.about} · sorted by {SORTS[shown.sort]}", tiles)
    paper.save(lambda width: overview, path)


def _lines(group: Group) -> list[str]:
    """The figures of a solution on two lines."""
    if group.first.figures is None:
        return []
    judged = [(figure, group.first.figures[name]) for name, figure in FIGURES.items() if figure.judged]
    said = [f"{figure.title} {figure.words(value)}" for figure, value in judged]
    half = (len(said) + 1) // 2
    return [" · ".join(said[:half]), " · ".join(said[half:])]


def _gallery_page(shown: Gallery, paper: Paper, path: Path) -> None:
    from lib.suite.cli.comparing.pages import gallery_page, write_page

    html, large = gallery_page(shown, f"{path.stem}_pictures" if shown.pictures else "")
    write_page(path, html)
    for name, picture in large.items():
        picture.save(path.parent / name)


def _gallery_slides(shown: Gallery, paper: Paper, path: Path) -> None:
    from lib.suite.cli.comparing.slides import gallery_slides, write_slides

    write_slides(gallery_slides(shown), shown.title, path)


GALLERIES: Final[Mapping[str, Callable[[Gallery, Paper, Path], None]]] = {
    ".html": _gallery_page,
    ".svg": _gallery_picture,
    ".png": _gallery_picture,
    ".pdf": _gallery_slides,
}
