"""`puzzles explore`: sweeps schedules of pipelines over sizes, limits and costs, and shows those that nothing beats."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Column, Table

from lib.errors.wording import exact
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.schedules.explore import Explored, Grid, Point, called, cell, explore, front, run_of, settings
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.suite.cli.console import numbers, progress, say, show_table
from lib.suite.cli.options import Backend, Jobs, Scheduler, cluster, option

__all__ = ["explore_command"]

NONE = ("none", "-")
MOST = 10_000
"""The most numbers that an option takes: more of them are a slip of the keyboard."""


def _numbers(text: str, name: str) -> list[float]:
    """Numbers with commas between, or ranges: 2,4,8 or 4-8."""
    found: list[float] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            ends = (int(first), min(int(last), int(first) + MOST)) if dash and first.isdigit() else None
            found += [float(part)] if ends is None else map(float, range(ends[0], ends[1] + 1))
        except ValueError:
            raise typer.BadParameter(
                f"--{name} takes numbers with commas between, such as 4,8,16; got {part!r}"
            ) from None
        if len(found) > MOST:
            raise typer.BadParameter(f"--{name} takes at most {MOST} numbers; got {text!r}")
    if wrong := [number for number in found if not isfinite(number)]:
        raise typer.BadParameter(f"--{name} takes numbers such as 4; got {wrong[0]}")
    return found


def _whole(text: str, name: str) -> list[int]:
    found = _numbers(text, name)
    if wrong := [number for number in found if number != int(number)]:
        raise typer.BadParameter(f"--{name} takes whole numbers; got {wrong[0]:g}")
    return [int(number) for number in found]


def explore_command(
    out: Annotated[Path, option("The folder for what is found.", "--output", "-o")] = Path("explore"),
    schedules: Annotated[str, option("Schedules by name, with commas between; see `puzzles schedule list`.")] = "all",
    ranks: Annotated[str, option("Ranks, one after another or 4-8.")] = "4",
    batches: Annotated[str, option("Microbatches into which the examples are cut.")] = "4,8,16,32",
    chunks: Annotated[str, option("Stages a rank, where a schedule lets one choose.")] = "1,2,4",
    limits: Annotated[str, option("Microbatches of activations a rank may hold; none: what it likes.")] = "none",
    messages: Annotated[str, option("posted, awaited, or both with a comma.")] = "posted",
    examples: Annotated[int, option("Examples of the batch, whatever it is cut into.", min=1)] = 64,
    costs: Annotated[str, option("Forward, input half and weight half of an example on a rank.")] = "1,1,1",
    overhead: Annotated[str, option("Time that each pass costs besides, however small.")] = "0",
    message: Annotated[str, option("Time of a message, for each example in it.")] = "0",
    latency: Annotated[str, option("Time of a message, however small.")] = "0",
    jobs: Jobs = 1,
    backend: Backend = None,
    scheduler: Scheduler = None,
) -> None:
    """Sweep schedules of pipelines over sizes, limits of memory and costs, and draw those that nothing beats.

    In the folder are then points.jsonl (what is known; stopped and started again, it goes on), points.csv, and for each
    world of costs a picture of the front, with index.html and a notebook in which each of its points is drawn.
    """
    need_extra("explore", "puzzles explore needs")
    passes = _numbers(costs, "costs")
    if len(passes) != 3:
        raise typer.BadParameter(f"--costs takes three numbers, such as 1,1.2,0.8; got {costs}")
    names = list(SCHEDULES) if schedules == "all" else [name.strip() for name in schedules.split(",")]
    grid = Grid(
        schedules=names,
        ranks=_whole(ranks, "ranks"),
        batches=_whole(batches, "batches"),
        chunks=_whole(chunks, "chunks"),
        limit=[
            limit
            for part in limits.split(",")
            for limit in ([None] if part.strip().lower() in NONE else _numbers(part, "limits"))
        ],
        messages=cast("Any", [one.strip() for one in messages.split(",")]),
        examples=[examples],
        forward=[passes[0]],
        input_half=[passes[1]],
        weight_half=[passes[2]],
        overhead=_numbers(overhead, "overhead"),
        message=_numbers(message, "message"),
        latency=_numbers(latency, "latency"),
    )
    try:
        some = next(settings(grid), None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if some is None:
        raise typer.BadParameter(f"none of these schedules has {chunks} stages a rank; see `puzzles schedule list`")
    with progress("settings") as done, cluster(backend, scheduler):
        processes = -1 if backend is not None else jobs
        found = explore(grid, jobs=processes, file=out / "points.jsonl", done=done)
    write_whole(ready(out / "points.csv"), _csv(found.points))
    fronts = {words: front(points) for words, points in found.worlds().items()}
    for words, best in fronts.items():
        columns = numbers("time", "bubble", "memory", "sent")
        table = Table("", Column("schedule", overflow="fold"), *columns, title=words)
        for number, point in enumerate(best, 1):
            figures = exact(point.time), f"{point.makespan_bubble:.1%}", exact(point.memory), exact(point.sent)
            table.add_row(str(number), called(point), *figures)
        show_table(table)
    _draw(found, fronts, out)
    refused = sum(bool(point.why) for point in found.points)
    say(f"{len(found.points)} settings; {refused} of them are impossible, and points.csv says why.")
    say(f"Look at {out / 'index.html'}")


def _csv(points: Sequence[Point]) -> str:
    rows = [asdict(point) for point in points]
    flat = [row.pop("setting") | row for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]) if flat else ["schedule"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _draw(found: Explored, fronts: Mapping[str, Sequence[Point]], out: Path) -> None:
    """Draw the fronts and their points, and write the page and the notebook of all of them."""
    from drawing import draw  # here and not above: a sweep that fails needs no picture
    from drawing.comparing.plot import Dot, draw_front
    from lib.suite.cli.pages import page

    worlds: list[dict[str, Any]] = []
    for world, (words, points) in enumerate(found.worlds().items(), 1):
        if not fronts[words]:
            continue
        every, best = (
            [Dot(called(point), point.time, point.memory, point.sent) for point in some if not point.why]
            for some in (points, fronts[words])
        )
        draw_front(every, best, words).save(out / f"front_{world}.svg")
        shown: list[dict[str, Any]] = []
        for number, point in enumerate(fronts[words], 1):
            name = f"point_{world}_{number}.svg"
            draw(run_of(point)).save(out / name)
            shown.append({"name": called(point), "cell": cell(point), "point": point, "picture": name})
        worlds.append({"words": words, "picture": f"front_{world}.svg", "points": shown})
    html = page("explore.html", "explore", "'self' data:", script=False, worlds=worlds, everything=len(found.points))
    write_whole(out / "index.html", html)
    write_whole(out / "fronts.ipynb", _notebook(fronts))


def _notebook(fronts: Mapping[str, Sequence[Point]]) -> str:
    """A notebook with a cell for each point, as text. Its cells have the same names every time."""
    import nbformat  # here and not above: only a notebook needs it
    from nbformat import v4

    make = cast("Any", v4)
    cells: list[Any] = [make.new_markdown_cell("# Schedules that nothing beats")]
    for words, best in fronts.items():
        cells += [make.new_markdown_cell(f"## {words}")] if best else []
        for number, point in enumerate(best, 1):
            figures = f"time {point.time:g}, memory {point.memory:g} and sent {point.sent:g} examples"
            cells.append(make.new_markdown_cell(f"**{number}. {called(point)}**: {figures}"))
            cells.append(make.new_code_cell(cell(point)))
    for number, one in enumerate(cells):
        one["id"] = f"explore-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = make.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    return cast("Any", nbformat).writes(notebook) + "\n"
