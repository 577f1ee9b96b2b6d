"""What `puzzles explore` leaves behind of its fronts: a page, and a notebook in which every point is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from lib.schedules.explore import Point, called, cell
from lib.suite.cli.templates import rendered

__all__ = ["notebook_of_fronts", "page_of_fronts"]

Fronts = Mapping[str, Sequence[Point]]
"""The points that nothing beats, by the world of costs in which that is so."""


def page_of_fronts(fronts: Fronts, pictures: Mapping[str, str], timelines: Mapping[str, str], everything: int) -> str:
    """A page with a picture of each front, and each of its points with its timeline and the cell that runs it.

    `pictures` are the files of the fronts by their world, `timelines` those of the points by their settings' keys.
    """
    worlds = [
        {
            "words": words,
            "picture": pictures[words],
            "points": [
                {"name": called(point), "cell": cell(point), "point": point, "picture": timelines[point.setting.key]}
                for point in best
            ],
        }
        for words, best in fronts.items()
    ]
    return rendered(__package__, "front_page.html", worlds=worlds, everything=everything)


def notebook_of_fronts(fronts: Fronts) -> str:
    """A notebook with a cell for each point, as text. Its cells have the same names every time."""
    import nbformat  # here and not above: only a notebook needs it
    from nbformat import v4

    make = cast("Any", v4)
    cells: list[Any] = [make.new_markdown_cell("# Schedules that nothing beats")]
    for words, best in fronts.items():
        cells.append(make.new_markdown_cell(f"## {words}"))
        for number, point in enumerate(best, 1):
            figures = f"time {point.time:g}, memory {point.memory:g} and sent {point.sent:g} examples"
            cells.append(make.new_markdown_cell(f"**{number}. {called(point)}**: {figures}"))
            cells.append(make.new_code_cell(cell(point)))
    for number, one in enumerate(cells):
        one["id"] = f"explore-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = make.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    return cast("Any", nbformat).writes(notebook) + "\n"
