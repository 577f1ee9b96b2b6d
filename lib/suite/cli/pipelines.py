"""Commands about pipelines: `puzzles schedule`, and `puzzles profile`, of a recorded run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Column, Table

from lib.errors.wording import counted, exact
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.schedules.formats import orders
from lib.schedules.pipelines.action import Messages, Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.legality import IllegalOrder
from lib.schedules.pipelines.lowering import compute_only
from lib.suite.cli import console as options
from lib.suite.cli.console import argument, draw_thing, fail, numbers, option, output, say, show_table
from lib.suite.course.subject import run as run_subject

if TYPE_CHECKING:
    from lib.analysis.recording import Recording

ABOUT = "Schedules of pipelines: what each rank does, and in which order."
schedule = typer.Typer(add_completion=False, context_settings=options.SHORT, no_args_is_help=True, help=ABOUT)

RANKS, BATCHES = 4, 8
PEAKS = 64  # most ranks whose peaks are listed; of more, only the lowest and the highest
COSTS = "a rank takes 1 for the forward of a microbatch and 2 for its backward; messages are posted and take no time"
WHAT = f"a schedule of the list, a file with an order ({orders.SUFFIX}), or anything that `puzzles run` takes"
KNOWN = "; ".join(f"{name}: {about}" for name, about in orders.FORMATS.items()) + "."
BESIDE = "Orders of your own, to be shown beside the others."
SIZE = {"min": 1, "show_default": False}
What = Annotated[str, argument("WHAT", f"What to take: {WHAT}.")]
Ranks = Annotated[int | None, option(f"Ranks: {RANKS}, or those of the puzzle.", **SIZE)]
Batches = Annotated[int | None, option(f"Microbatches: {BATCHES}, or those of the puzzle.", **SIZE)]
Chunks = Annotated[int | None, option("Stages a rank has, where one can choose.", **SIZE)]


@schedule.command("list")
def list_(
    ranks: Annotated[int, option("Ranks.", min=1)] = RANKS,
    batches: Annotated[int, option("Microbatches.", min=1)] = BATCHES,
) -> None:
    """List the schedules that have a name: how long they take, how much they hold, and where they are from."""
    figures = numbers("stages a rank", "time", "bubble", "of span", "peak")
    bubble = "bubble: of that time, and of the longest that a rank is at work"
    size = f"{counted(ranks, 'rank')}, {counted(batches, 'microbatch')}"
    caption = f"{size}; {COSTS}. {bubble}; peak: microbatches of activations"
    table = Table("name", "", *figures, Column("from", overflow="fold", min_width=27), "in torch", caption=caption)
    for row in SCHEDULES.values():
        try:
            timed = orders.at_equal_costs(row.order(ranks, batches))
            shown = exact(timed.end), *(f"{share:.1%}" for share in timed.bubble), exact(max(timed.peaks)), row.paper
        except ValueError as error:
            shown = "", "", "", "", str(error)
        table.add_row(row.name, row.title, str(row.chunks), *shown, row.torch or "")
    show_table(table)


@schedule.command()
def show(what: What, ranks: Ranks = None, batches: Batches = None, chunks: Chunks = None) -> None:
    """Print what each rank does, a line a rank, and how good it is; or which action is wrong."""
    found = _found(what, ranks, batches, chunks)
    order = found.order
    if (wrong := found.wrong()) is not None:
        say(orders.in_positions(order, wrong))
        raise IllegalOrder(wrong, found.cell(wrong.rank, wrong.position))
    say(orders.in_time(order) if order == compute_only(order) else orders.in_positions(order))
    say(_figures(order))


@schedule.command()
def export(
    what: What,
    form: Annotated[Literal["csv", "csv-comms"], option(KNOWN, "--format")] = "csv",
    output: Annotated[
        Path | None, option("The file; else it is printed.", "--output", "-o", show_default=False)
    ] = None,
    ranks: Ranks = None,
    batches: Batches = None,
    chunks: Chunks = None,
) -> None:
    """Write an order for others."""
    text, left_out = orders.to_csv(_found(what, ranks, batches, chunks).legal(), comms=form == "csv-comms")
    if output is None:
        print(text, end="")
        return
    write_whole(ready(output), text)
    for line in (*left_out, f"Wrote {output}"):
        say(line)


@schedule.command("import")
def import_(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help=f"The file: {orders.SUFFIX}.")],
    output: options.Output = None,
    messages: Annotated[Messages, option("For the picture, messages are posted or awaited.")] = "posted",
) -> None:
    """Read an order from a file, see whether it is legal, say how good it is, and draw a run of it."""
    order = orders.read_file(file).legal()
    say(f"{file.name} is legal.\n{_figures(order)}")
    if output is not None:
        from drawing import draw as paint
        from lib.schedules.pipelines.program import program_of
        from lib.simulator.simulator import simulate
        from lib.trace.trace import Trace

        passes = compute_only(order)
        run = program_of(passes, messages=messages)
        models = simulate(run, ranks=len(order), layers=len(places(passes)), batches=batches_of(passes))
        paint(Trace.of(models)).save(output)
        say(f"Drew a run of it, with {messages} messages and a layer a stage: {output}")


@schedule.command()
def gallery(
    whats: Annotated[list[str] | None, argument("[NAME=WHAT]...", BESIDE)] = None,
    output: Annotated[Path, output("a page", (".html",))] = Path("gallery.html"),
    ranks: Annotated[int, option("Ranks.", min=2)] = RANKS,
    batches: Annotated[int, option("Microbatches.", min=1)] = BATCHES,
    message: Annotated[float, option("Time of a message; the forward of a rank takes 1.", min=0, max=10**9)] = 0.0,
    messages: Annotated[Messages, option("posted or awaited.")] = "posted",
) -> None:
    """Write the gallery: all schedules on one time axis, with four sliders that make most of them, as a page."""
    from drawing import draw_gallery  # not above: the other commands need no picture
    from lib.schedules.gallery import gallery as gallery_of

    own: dict[str, Order] = {}
    for what in whats or ():
        name, _, rest = what.rpartition("=")
        own[name or Path(rest).stem] = compute_only(_found(rest, ranks, batches, None).order)
    try:
        found = gallery_of(ranks, batches, message=message, messages=messages, own=own)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    draw_gallery(found).save(output)
    say(f"Wrote {output}: {found.world()}")


def _found(what: str, ranks: int | None, batches: int | None, chunks: int | None) -> orders.Imported:
    """The chosen order, legal or not."""
    if (row := SCHEDULES.get(what)) is not None:
        if chunks not in (None, row.chunks) and "chunks" not in row.takes:
            raise typer.BadParameter(f"{what} has {counted(row.chunks, 'stage')} a rank, always")
        try:
            return orders.Imported(row.order(ranks or RANKS, batches or BATCHES, chunks=chunks))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    names, suffix = ", ".join(SCHEDULES), Path(what).suffix
    if chunks is not None:
        raise typer.BadParameter(f"--chunks is for a schedule of the list; there are {names}")
    if suffix.lower() == orders.SUFFIX:
        return orders.read_file(what)
    if what not in PUZZLES and not suffix:
        raise typer.BadParameter(f"there is no schedule, puzzle or file {what!r}; the schedules are {names}")
    from lib.schedules.formats.trace import order_of

    run = run_subject(what, ranks=ranks, batches=batches)
    try:
        return orders.Imported(order_of(run.trace))
    except ValueError as error:
        fail(f"{run.name} gives no order of a pipeline: {error}")


def _figures(order: Order) -> str:
    timed, passes = orders.at_equal_costs(order), compute_only(order)
    sizes = {"rank": len(order), "stage": len(places(passes)), "microbatch": batches_of(passes)}
    size = ", ".join(counted(number, name) for name, number in sizes.items())
    bubble, peaks = timed.bubble, timed.peaks
    few = len(peaks) <= PEAKS
    listed = ", ".join(map(exact, peaks)) if few else f"{exact(min(peaks))} to {exact(max(peaks))}"
    return (
        f"{size}, {counted(sum(map(len, order)), 'action', ',')}.\n"
        f"Time {exact(timed.end)}: {COSTS}.\n"
        f"Bubble {bubble.makespan:.1%} of that time, {bubble.span:.1%} of the longest that a rank is at work.\n"
        f"Peaks {listed} microbatches of activations."
    )


# -- profile --------------------------------------------------------------------------------------------------------


def profile(
    files: Annotated[list[Path], argument("FILE...", "Traces of torch.profiler, one for each rank.")],
    schedule: Annotated[
        str | None, option(f"What it was to be: one of {', '.join(SCHEDULES)}; a file of an order; {options.WHAT}.")
    ] = None,
    step: Annotated[int | None, option("Which of the recorded steps; else the last.", min=0)] = None,
    output: options.Output = None,
    limit: options.Limit = None,
) -> None:
    """Show what torch.profiler recorded of a real run beside the schedule that it was to be.

    Ranges that are named as torch's pipeline executor names them (PP:3F1) are compared with the order of the schedule.
    """
    from drawing.comparing.recordings import draw_recordings
    from lib.analysis.recording import figures, told
    from lib.schedules.formats.chrome import read_profile

    name = re.sub(r"[_.-]*(rank)?[_.-]*\d*$", "", files[0].name.partition(".")[0])  # replay_rank0.json is called replay
    recordings = [read_profile(files, name or "profile", step)]
    try:
        if schedule is not None:
            recordings.insert(0, _expected(schedule, recordings[0], limit))
    except ValueError as error:
        fail(str(error))
    for line in (*map(figures, recordings), *told(recordings[0], recordings[1:])):
        say(line)
    if output is not None:
        draw_thing(draw_recordings(*recordings), output)


def _expected(schedule: str, found: Recording, limit: float | None) -> Recording:
    """The schedule that a recording is compared with: a run; or the order of a file, or one with a name, for as many
    ranks, microbatches and stages as were recorded, timed with its median passes. ValueError where it names no
    microbatches."""
    from lib.schedules.formats.trace import costs_of, order_of_recording, recording_of, recording_of_order

    if (row := SCHEDULES.get(schedule)) is None:
        name = Path(schedule).stem
        if Path(schedule).suffix.lower() != orders.SUFFIX:
            return recording_of(run_subject(schedule, limit=limit).trace, name)
        return recording_of_order(compute_only(orders.read_file(schedule).legal()), name, **costs_of(found))
    order = order_of_recording(found)
    batches, stages = batches_of(order), len(places(order))
    if batches * found.ranks > len(found.spans):
        raise ValueError(f"{found.name} names microbatch {batches - 1}, and not all that come before it")
    chunks = max(1, stages // found.ranks) if "chunks" in row.takes else None
    return recording_of_order(row.order(found.ranks, batches, chunks=chunks), row.title, **costs_of(found))
