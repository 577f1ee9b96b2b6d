"""`puzzles schedule` and `puzzles profile`: orders of pipelines, by name, of files, and as they were recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Column, Table

from lib.analysis.recording import Recording
from lib.errors.wording import counted, exact
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
from lib.schedules.formats.recorded import costs_of, order_of_recording, recording_of, recording_of_order
from lib.schedules.formats.trace import order_of
from lib.schedules.pipelines.action import Messages, Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES, Named
from lib.schedules.pipelines.legality import IllegalOrder, illegal
from lib.schedules.pipelines.lowering import compute_only
from lib.schedules.pipelines.program import MESSAGES_ARE, program_of
from lib.simulator.simulator import simulate
from lib.suite.cli.console import fail, numbers, say, show_table
from lib.suite.cli.options import SHORT, Output, argument, one_of, option
from lib.suite.course.subject import run as run_subject
from lib.trace.trace import Trace

__all__ = ["expected", "recorded", "schedules", "write_order"]

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
    from lib.schedules.gallery import gallery as gallery_of

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
