"""The commands about pipelines: `puzzles schedule`, `puzzles explore`, and the orders behind `puzzles profile`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Column, Table

from lib.analysis.recording import Recording
from lib.errors.wording import counted, exact
from lib.extras import need_extra
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.schedules.formats.kineto import read_profile
from lib.schedules.formats.orders import (
    FORMATS,
    Imported,
    at_equal_costs,
    in_positions,
    in_time,
    is_order_file,
    read_file,
    suffixes,
)
from lib.schedules.formats.perfetto import is_ours, read_perfetto
from lib.schedules.formats.trace import costs_of, order_of, order_of_recording, recording_of, recording_of_order
from lib.schedules.gallery import Grid, Point, called, cell, explore, front, run_of, settings, worlds
from lib.schedules.gallery import gallery as gallery_of
from lib.schedules.pipelines.action import Messages, Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.legality import IllegalOrder, illegal
from lib.schedules.pipelines.lowering import compute_only
from lib.schedules.pipelines.program import MESSAGES_ARE, program_of
from lib.simulator.simulator import simulate
from lib.suite.cli.console import fail, numbers, progress, say, show_table
from lib.suite.cli.options import SHORT, Backend, Jobs, Output, Scheduler, argument, cluster, one_of, option
from lib.suite.course.subject import run as run_subject
from lib.trace.trace import Trace

__all__ = ["expected", "explore_command", "recorded", "schedules", "write_order"]

schedules = typer.Typer(
    context_settings=SHORT,
    no_args_is_help=True,
    help="Schedules of pipelines: what each rank does, and in which order.",
)

RANKS, BATCHES = 4, 8
SHOWN, DRAWN = 10_000, 20_000
"""Actions of the largest order that is printed, and of the largest that is drawn."""
PEAKS = 64
"""Ranks whose peaks are listed; of more, the lowest and the highest."""
WHAT = f"a schedule of the list, a file with an order ({suffixes(', ')}), or whatever `puzzles run` takes"
What = Annotated[str, argument("WHAT", f"What to take: {WHAT}.")]
SIZE = {"min": 1, "show_default": False}
Ranks = Annotated[int | None, option(f"Ranks: {RANKS}, or those of the puzzle.", **SIZE)]
Batches = Annotated[int | None, option(f"Microbatches: {BATCHES}, or those of the puzzle.", **SIZE)]
Chunks = Annotated[int | None, option("Stages a rank has, where one can choose.", **SIZE)]
COSTS = "a rank takes 1 for the forward of a microbatch and 2 for its backward; messages are posted and take no time"


_format = one_of([*FORMATS], f"there is no format {{!r}}; there are {', '.join(FORMATS)}")
KNOWN = "; ".join(f"{name}: {row.about}" for name, row in FORMATS.items()) + "."


_messages = one_of([*MESSAGES_ARE], f"messages are {' or '.join(MESSAGES_ARE)}; got {{!r}}")


def _page(path: Path) -> Path:
    if path.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"a page is .html; got {path.name!r}")
    return path


def _time(number: float) -> float:
    if not isfinite(number):
        raise typer.BadParameter(f"a message takes a time, such as 0.2; got {number}")
    return number


@schedules.command("list")
def list_(
    ranks: Annotated[int, option("Ranks.", min=1)] = RANKS,
    batches: Annotated[int, option("Microbatches.", min=1)] = BATCHES,
) -> None:
    """The schedules that have a name: how long they take, how much they hold, and where they are from."""
    figures = numbers("stages a rank", "time", "bubble", "of span", "peak")
    bubble = "bubble: of that time, and of the longest that a rank is at work"
    size = f"{counted(ranks, 'rank')}, {counted(batches, 'microbatch')}"
    caption = f"{size}; {COSTS}. {bubble}; peak: microbatches of activations"
    table = Table("name", "", *figures, Column("from", overflow="fold", min_width=27), "in torch", caption=caption)
    for row in SCHEDULES.values():
        try:
            timed = at_equal_costs(row.make(ranks, batches))
        except ValueError as error:
            table.add_row(row.name, row.title, str(row.chunks), "", "", "", "", str(error), row.torch or "")
            continue
        shown = exact(timed.end), *(f"{share:.1%}" for share in timed.bubble), exact(max(timed.peaks))
        table.add_row(row.name, row.title, str(row.chunks), *shown, row.paper, row.torch or "")
    show_table(table)


@schedules.command()
def show(what: What, ranks: Ranks = None, batches: Batches = None, chunks: Chunks = None) -> None:
    """Print what each rank does, a line a rank, and how good it is; or which action is wrong."""
    found = _found(what, ranks, batches, chunks)
    wrong = found.wrong()
    actions = sum(map(len, found.order))
    if actions > SHOWN:
        say(f"{counted(actions, 'action', ',')} are too many to print: at most {SHOWN:,} are shown.")
    elif wrong is not None:
        say(in_positions(found.order, wrong))
    if wrong is not None:
        raise IllegalOrder(wrong, found.cell(wrong.rank, wrong.position))
    if actions <= SHOWN:
        say(in_time(found.order) if found.order == compute_only(found.order) else in_positions(found.order))
    say(_figures(found.order))


@schedules.command()
def export(
    what: What,
    form: Annotated[str, option(KNOWN, "--format", callback=_format)] = "csv",
    output: Annotated[
        Path | None, option("The file; else it is printed.", "--output", "-o", show_default=False)
    ] = None,
    ranks: Ranks = None,
    batches: Batches = None,
    chunks: Chunks = None,
) -> None:
    """Write an order for others."""
    text, left_out = FORMATS[form].write(_found(what, ranks, batches, chunks).legal())
    if output is None:
        print(text, end="")
        return
    write_whole(ready(output), text)
    for line in left_out:
        say(line)
    say(f"Wrote {output}")


@schedules.command("import")
def import_(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help=f"The file: {suffixes()}.")],
    output: Output = None,
    messages: Annotated[
        str, option(f"For the picture, messages are {' or '.join(MESSAGES_ARE)}.", callback=_messages)
    ] = "posted",
) -> None:
    """Read an order from a file, see whether it is legal, say how good it is, and draw a run of it."""
    order = read_file(file).legal()
    say(f"{file.name} is legal.\n{_figures(order)}")
    if output is not None:
        if sum(map(len, order)) > DRAWN:
            fail(f"{file.name} has too many actions for a picture: at most {DRAWN:,} are drawn")
        from drawing import draw as paint

        passes = compute_only(order)
        run = program_of(passes, messages="posted" if messages == "posted" else "awaited")
        models = simulate(run, ranks=len(order), layers=len(places(passes)), batches=batches_of(passes))
        paint(Trace.of(models)).save(output)
        say(f"Drew a run of it, with {messages} messages and a layer a stage: {output}")


@schedules.command()
def gallery(
    whats: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=WHAT]...", help="Orders of your own, to be shown beside the others."),
    ] = None,
    output: Annotated[Path, option("The page: .html.", "--output", "-o", callback=_page)] = Path("gallery.html"),
    ranks: Annotated[int, option("Ranks.", min=2)] = RANKS,
    batches: Annotated[int, option("Microbatches.", min=1)] = BATCHES,
    message: Annotated[float, option("Time of a message; the forward of a rank takes 1.", min=0, callback=_time)] = 0.0,
    messages: Annotated[str, option(f"{' or '.join(MESSAGES_ARE)}.", callback=_messages)] = "posted",
) -> None:
    """Write the gallery: all schedules on one time axis, with four sliders that make most of them, as a page."""
    from drawing import draw_gallery  # here and not above: the other commands need no picture

    own: dict[str, Order] = {}
    for what in whats or ():
        name, _, rest = what.rpartition("=")
        own[name or Path(rest).stem] = compute_only(_found(rest, ranks, batches, None).order)
    try:
        found = gallery_of(ranks, batches, message=message, messages=cast("Messages", messages), own=own)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    draw_gallery(found).save(output)
    say(f"Wrote {output}: {found.world()}")


def _found(what: str, ranks: int | None, batches: int | None, chunks: int | None) -> Imported:
    """The order that is meant, legal or not."""
    if (row := SCHEDULES.get(what)) is not None:
        if chunks is not None and "chunks" not in row.takes and chunks != row.chunks:
            raise typer.BadParameter(f"{what} has {counted(row.chunks, 'stage')} a rank, always")
        chosen: dict[str, Any] = {} if chunks is None or "chunks" not in row.takes else {"chunks": chunks}
        try:
            return Imported(row.make(ranks or RANKS, batches or BATCHES, **chosen))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    if chunks is not None:
        raise typer.BadParameter(f"--chunks is for a schedule of the list; there are {', '.join(SCHEDULES)}")
    if is_order_file(what):
        return read_file(what)
    if what not in PUZZLES and not Path(what).suffix:
        names = ", ".join(SCHEDULES)
        raise typer.BadParameter(f"there is no schedule, puzzle or file {what!r}; the schedules are {names}")
    run = run_subject(what, ranks=ranks, batches=batches)
    try:
        return Imported(order_of(run.trace))
    except ValueError as error:
        fail(f"{run.name} gives no order of a pipeline: {error}")


def _figures(order: Order) -> str:
    """Describe how good an order is."""
    timed, passes = at_equal_costs(order), compute_only(order)
    sizes = (
        counted(len(order), "rank"),
        counted(len(places(passes)), "stage"),
        counted(batches_of(passes), "microbatch"),
    )
    bubble, peaks = timed.bubble, timed.peaks
    each = map(exact, peaks if len(peaks) <= PEAKS else (min(peaks), max(peaks)))
    listed = (", " if len(peaks) <= PEAKS else " to ").join(each)
    return (
        f"{', '.join(sizes)}, {counted(sum(map(len, order)), 'action', ',')}.\n"
        f"Time {exact(timed.end)}: {COSTS}.\n"
        f"Bubble {bubble.makespan:.1%} of that time, {bubble.span:.1%} of the longest that a rank is at work.\n"
        f"Peaks {listed} microbatches of activations."
    )


# -- profile --------------------------------------------------------------------------------------------------------


def recorded(files: Sequence[Path], step: int | None = None) -> list[Recording]:
    """The recordings in some files: one of torch.profiler's, a file a rank; or all that are in files for Perfetto that
    we wrote."""
    ours = [path for path in files if is_ours(path)]
    if not ours:  # replay_rank0.json is called replay
        name = re.sub(r"[_.-]*(rank)?[_.-]*\d*$", "", files[0].name.partition(".")[0]) or "profile"
        return [read_profile(files, name, step)]
    return [one for path in ours for one in read_perfetto(path).values()]


def expected(schedule: str, found: Recording, run: Callable[[str], Trace]) -> Recording:
    """The schedule that a recording is compared with: a run; or the order of a file, or one with a name, of the
    recording's own size, timed with its median passes. ValueError where the recording names no microbatches."""
    if schedule in SCHEDULES:
        row = SCHEDULES[schedule]
        return recording_of_order(_of_its_size(row, found), row.title, **costs_of(found))
    if is_order_file(schedule):
        order = compute_only(read_file(schedule).legal())
        return recording_of_order(order, Path(schedule).stem, **costs_of(found))
    return recording_of(run(schedule), Path(schedule).stem)


def _of_its_size(row: Named, found: Recording) -> Order:
    """The order of a schedule with a name, for as many ranks, microbatches and stages as were recorded."""
    if not found.has_order:
        raise ValueError(
            f"{found.name} names no microbatches, so {row.title} has no size to be compared at. torch's own 1F1B names "
            "nothing in a profile, and an order that torch loads from a file names each pass: puzzles schedule export "
            f"{row.name} --ranks {found.ranks} --batches N -o {row.name}.csv. Or give that file here, to see both as "
            f"they are: --schedule {row.name}.csv"
        )
    order = order_of_recording(found)
    batches, stages = batches_of(order), len(places(order))
    if batches * found.ranks > len(found.spans):
        raise ValueError(f"{found.name} names microbatch {batches - 1}, and not all that come before it")
    chunks = {"chunks": max(1, stages // found.ranks)} if "chunks" in row.takes else {}
    return row.make(found.ranks, batches, **chunks)


def write_order(path: Path, found: Recording) -> str:
    """Write the order that was recorded, as `puzzles schedule export` does, and say whether it is legal."""
    form = next((row for row in FORMATS.values() if row.suffix == path.suffix.lower()), None)
    if form is None:
        raise ValueError(f"an order is written as {suffixes()}")
    order = order_of_recording(found)
    write_whole(ready(path), form.write(order).text)
    wrong = illegal(order)
    return f"Wrote {path}" + ("" if wrong is None else f", which is no whole step: {wrong}")


# -- explore --------------------------------------------------------------------------------------------------------

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
    write_whole(ready(out / "points.csv"), _csv(found))
    fronts = {words: front(points) for words, points in worlds(found).items()}
    for words, best in fronts.items():
        columns = numbers("time", "bubble", "memory", "sent")
        table = Table("", Column("schedule", overflow="fold"), *columns, title=words)
        for number, point in enumerate(best, 1):
            figures = exact(point.time), f"{point.makespan_bubble:.1%}", exact(point.memory), exact(point.sent)
            table.add_row(str(number), called(point), *figures)
        show_table(table)
    _draw(found, fronts, out)
    refused = sum(bool(point.why) for point in found)
    say(f"{len(found)} settings; {refused} of them are impossible, and points.csv says why.")
    say(f"Look at {out / 'index.html'}")


def _csv(points: Sequence[Point]) -> str:
    rows = [asdict(point) for point in points]
    flat = [row.pop("setting") | row for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]) if flat else ["schedule"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _draw(found: Sequence[Point], fronts: Mapping[str, Sequence[Point]], out: Path) -> None:
    """Draw the fronts and their points, and write the page and the notebook of all of them."""
    from drawing import draw  # here and not above: a sweep that fails needs no picture
    from drawing.comparing.plot import Dot, draw_front
    from lib.suite.cli.pages import page

    sections: list[dict[str, Any]] = []
    for world, (words, points) in enumerate(worlds(found).items(), 1):
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
        sections.append({"words": words, "picture": f"front_{world}.svg", "points": shown})
    html = page("explore.html", "explore", "'self' data:", script=False, worlds=sections, everything=len(found))
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
