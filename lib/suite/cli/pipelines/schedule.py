"""`puzzles schedule`: orders of pipelines, those that have a name and those of files. A thin door to lib/schedules."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Column, Table

from lib.errors.wording import counted, exact
from lib.files import ready, write_whole
from lib.puzzles.records import PUZZLES
from lib.schedules.formats.order_file import Imported
from lib.schedules.formats.orders import (
    FORMATS,
    at_equal_costs,
    in_positions,
    in_time,
    is_order_file,
    read_file,
    suffixes,
)
from lib.schedules.formats.trace import order_of
from lib.schedules.pipelines.action import Messages, Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.legality import IllegalOrder
from lib.schedules.pipelines.lowering import compute_only
from lib.schedules.pipelines.program import MESSAGES_ARE, program_of
from lib.simulator.simulator import simulate
from lib.suite.cli.console import fail, say, show_table
from lib.suite.cli.options import SHORT, Output
from lib.suite.course.subject import run as run_subject
from lib.trace.trace import Trace

__all__ = ["schedules"]

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
PAGES = (".html", ".htm")
WHAT = f"a schedule of the list, a file with an order ({suffixes(', ')}), or whatever `puzzles run` takes"
What = Annotated[str, typer.Argument(metavar="WHAT", help=f"What to take: {WHAT}.", show_default=False)]
Ranks = Annotated[int | None, typer.Option(min=1, help=f"Ranks: {RANKS}, or those of the puzzle.", show_default=False)]
Batches = Annotated[
    int | None, typer.Option(min=1, help=f"Microbatches: {BATCHES}, or those of the puzzle.", show_default=False)
]
Chunks = Annotated[int | None, typer.Option(min=1, help="Stages a rank has, where one can choose.", show_default=False)]
COSTS = "a rank takes 1 for the forward of a microbatch and 2 for its backward; messages are posted and take no time"


KNOWN = "; ".join(f"{name}: {row.about}" for name, row in FORMATS.items()) + "."


def _format(name: str) -> str:
    if name not in FORMATS:
        raise typer.BadParameter(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    return name


def _messages(name: str) -> str:
    if name not in MESSAGES_ARE:
        raise typer.BadParameter(f"messages are {' or '.join(MESSAGES_ARE)}; got {name!r}")
    return name


def _page(path: Path) -> Path:
    if path.suffix.lower() not in PAGES:
        raise typer.BadParameter(f"a page is .html; got {path.name!r}")
    return path


def _time(number: float) -> float:
    if not isfinite(number):
        raise typer.BadParameter(f"a message takes a time, such as 0.2; got {number}")
    return number


@schedules.command("list")
def list_(
    ranks: Annotated[int, typer.Option(min=1, help="Ranks.")] = RANKS,
    batches: Annotated[int, typer.Option(min=1, help="Microbatches.")] = BATCHES,
) -> None:
    """The schedules that have a name: how long they take, how much they hold, and where they are from."""
    numbers = [Column(name, justify="right") for name in ("stages a rank", "time", "bubble", "of span", "peak")]
    bubble = "bubble: of that time, and of the longest that a rank is at work"
    size = f"{counted(ranks, 'rank')}, {counted(batches, 'microbatch')}"
    caption = f"{size}; {COSTS}. {bubble}; peak: microbatches of activations"
    table = Table("name", "", *numbers, Column("from", overflow="fold", min_width=27), "in torch", caption=caption)
    for row in SCHEDULES.values():
        try:
            timed = at_equal_costs(row.make(ranks, batches))
        except ValueError as error:
            table.add_row(row.name, row.title, str(row.chunks), "", "", "", "", str(error), row.torch or "")
            continue
        figures = exact(timed.end), *(f"{share:.1%}" for share in timed.bubble), exact(max(timed.peaks))
        table.add_row(row.name, row.title, str(row.chunks), *figures, row.paper, row.torch or "")
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
    form: Annotated[str, typer.Option("--format", callback=_format, help=KNOWN)] = "csv",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; else it is printed.", show_default=False)
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
        str, typer.Option(callback=_messages, help=f"For the picture, messages are {' or '.join(MESSAGES_ARE)}.")
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
    output: Annotated[Path, typer.Option("--output", "-o", callback=_page, help="The page: .html.")] = Path(
        "gallery.html"
    ),
    ranks: Annotated[int, typer.Option(min=2, help="Ranks.")] = RANKS,
    batches: Annotated[int, typer.Option(min=1, help="Microbatches.")] = BATCHES,
    message: Annotated[
        float, typer.Option(min=0, callback=_time, help="Time of a message; the forward of a rank takes 1.")
    ] = 0.0,
    messages: Annotated[str, typer.Option(callback=_messages, help=f"{' or '.join(MESSAGES_ARE)}.")] = "posted",
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
    if run is None:
        raise typer.Exit(1)  # which simulate has said
    try:
        return Imported(order_of(run.trace))
    except ValueError as error:
        fail(f"{run.name} gives no order of a pipeline: {error}")


def _figures(order: Order) -> str:
    """How good it is, in words."""
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
