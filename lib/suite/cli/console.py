"""Input and output of commands: their options, in one table; words, tables and errors in the terminal; pages.

rich is imported only where it is used: most commands print a few lines, and start four times as fast without it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import typer

from lib.cluster.mesh import Mesh, mesh_from
from lib.errors.wording import visible
from lib.extras import need_extra
from lib.files import packaged
from lib.puzzles.records import PUZZLES, puzzle_of_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from drawing.canvas.palette import Colour

WIDTH = 100  # columns if the output is not a terminal
CONTROL = str.maketrans("", "", "\a\b\v\f\r")
"""Bells and returns, which are not printed: rich does not print them on a terminal either."""
LEAST = 12  # fewest columns of a table's part that folds
SHORT = {"help_option_names": ["-h", "--help"]}
WHAT = "a puzzle's id (its reference solution), a notebook, a .py, or a saved Trace (.json)"
C = TypeVar("C", bound=Callable[..., Any])


# -- in the terminal ------------------------------------------------------------------------------------------------


def console(*, stderr: bool = False) -> Console:
    """Return the console to print on. It highlights nothing: a number matters no more than the word beside it."""
    from rich.console import Console

    terminal = Console(stderr=stderr, highlight=False)
    if not terminal.is_terminal:
        terminal.width = WIDTH
    return terminal


def say(text: str) -> None:
    """Print text as it is. If the output is not a terminal, lines are never wrapped."""
    if not _may_be_a_terminal():
        return print(text.expandtabs().translate(CONTROL))
    from rich.text import Text

    terminal = console()
    terminal.print(Text(text), soft_wrap=not terminal.is_terminal)


def width() -> int:
    """Return the number of columns of a line."""
    return console().width if _may_be_a_terminal() else WIDTH


def _may_be_a_terminal() -> bool:
    """Tell whether rich must decide; if not, printing a few lines does not import it."""
    return sys.stdout.isatty() or not os.environ.keys().isdisjoint(("FORCE_COLOR", "TTY_COMPATIBLE"))


def fail(text: str, status: int = 1) -> NoReturn:
    """Say what went wrong, and exit with a status."""
    from rich.panel import Panel
    from rich.text import Text

    console(stderr=True).print(Panel(Text(text), title="Error", title_align="left", border_style="red"))
    raise typer.Exit(status)


def as_typed(error: Exception) -> str:
    """Write an error's arguments as options: --rank for rank=, --op update for op='update'."""
    return re.sub(r"\b(\w+)=(?:'(\w+)'|(\d\S*))?", r"--\1 \2\3", str(error)).replace(" ,", ",").replace("  ", " ")


def numbers(*names: str) -> list[Column]:
    """Return columns of numbers for a table."""
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def show_table(table: Table) -> None:
    """Print a table. If it does not fit, only folding columns are narrowed: better wider than the terminal than without
    figures and names."""
    terminal, longest = console(), list[int]()
    for column in table.columns:
        column.no_wrap = column.overflow != "fold"
        lines = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
        longest.append(max(map(len, lines), default=0))
        column.min_width = max(min(longest[-1], 1000 if column.no_wrap else LEAST), column.min_width or 0)
    least = terminal.measure(table, options=terminal.options.update(max_width=10**4)).minimum
    terminal.width = max(terminal.width, least)
    spare = terminal.width - least  # rich would share it out regardless of least widths, and cut the table
    for column, wanted in zip(table.columns, longest, strict=True):
        if not column.no_wrap and column.min_width is not None:
            column.width = min(max(wanted, column.min_width), column.min_width + spare)
            spare -= column.width - column.min_width
    terminal.print(table)


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar if there is a terminal, and yield a function that moves it: how many are done, of how many."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda so_far, everything: bar.update(task, completed=so_far, total=everything)


def title(text: str) -> None:
    """Print a heading."""
    from rich.rule import Rule
    from rich.text import Text

    console().print(Rule(Text(text), align="left", style="dim"))


def draw_thing(thing: Any, output: Path | None, said: str = "Drew") -> None:
    """Draw anything that shows itself as a picture, where a file was named."""
    if output is not None:
        from lib.trace.trace import Trace

        if isinstance(thing, Trace):  # without importing what draws all else
            from drawing.timeline.schedule import picture_of_trace as picture_of
        else:
            from drawing import picture_of
        picture_of(thing).save(output)
        say(f"{said} {output}")


# -- options and arguments ------------------------------------------------------------------------------------------


def option(help_: str, *names: str, **limits: Any) -> Any:
    """Return the option of a command: its help, its names if they differ from the parameter's, its limits and
    callback."""
    return typer.Option(*names, help=help_, **limits)


def argument(metavar: str, help_: str, **limits: Any) -> Any:
    """Return an argument of a command: its name in the usage, and its help."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False, **limits)


def output(what: str, formats: Sequence[str], default: str = "") -> Any:
    """Return the option for a file in one of several formats, by suffix. `what` describes it in a word or two, and
    `default` is its name if none is given. A missing extra is reported before anything runs."""

    def known(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in formats:
            allowed = " or ".join(filter(None, (", ".join(formats[:-1]), formats[-1])))
            raise typer.BadParameter(f"{what} is {allowed}; got {path.name!r}")
        if path is not None and path.suffix in (".png", ".pdf"):
            need_extra("png", f"a {path.suffix[1:].upper()} needs")
        return path

    named, otherwise = what.partition(" ")[2], f"; else {default}" if default else ""
    words = f"{named[0].upper()}{named[1:]}: {', '.join(formats)}{otherwise}."
    return option(words, "--output", "-o", callback=known)


def _aspect(text: str) -> float:
    """The shape of a picture: "16:9" is 1.78."""
    wide, _, high = text.partition(":")
    if not (wide.isdecimal() and high.isdecimal() and int(high) and 0.2 <= int(wide) / int(high) <= 5):
        raise typer.BadParameter(f"the shape of a picture is its width and height, such as 16:9 or 4:3; got {text!r}")
    return int(wide) / int(high)


def _mesh(text: str) -> Mesh:
    """The mesh of an option: "replica=2,shard=4", or with other arguments, "replica=2,shard=4;host_size=4"."""
    axes, *more = [part.strip() for part in text.split(";")]
    try:
        sizes = [axis.split("=") for axis in axes.split(",")]
        data: dict[str, Any] = {"axes": [(name.strip(), int(size)) for name, size in sizes]}
        for name, value in (part.split("=", 1) for part in more):
            several = name.strip() == "ranks" or "," in value
            data[name.strip()] = [int(number) for number in value.split(",")] if several else int(value)
        return mesh_from(data)
    except ValueError as error:
        reason = None if "invalid literal" in str(error) or "unpack" in str(error) else str(error)
        example = "a mesh is its axes, such as replica=2,shard=4, and perhaps ;host_size=4 ;processes=4 ;ranks=0,2,1,3"
        raise typer.BadParameter(reason or f"{example}; got {text!r}") from None


def _some(number: int) -> int:
    """The number of processes in an option. BadParameter for 0."""
    if number == 0:
        raise typer.BadParameter("some process has to do it; -1: one for each core")
    return number


def _known(name: str) -> str:
    """Return a puzzle's id, also for a notebook with any number (08_pipeline_fsdp). BadParameter if unknown."""
    try:
        return (puzzle_of_file(Path(name).stem) or PUZZLES[name]).id
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Subject = Annotated[str, argument("WHAT", f"What to run: {WHAT}.")]
PuzzleArgument = Annotated[str, typer.Argument(help="The puzzle's id.", callback=_known, show_default=False)]

Puzzle = Annotated[str | None, option("The puzzle, where the file does not tell.", "--puzzle")]
Limit = Annotated[float | None, option("Seconds that a function may run.", min=0.1, show_default=False)]
Ranks = Annotated[int | None, option("Ranks, instead of the puzzle's.", min=1)]
Layers = Annotated[int | None, option("Layers, instead of the puzzle's.", min=1)]
Batches = Annotated[int | None, option("Batches, instead of the puzzle's.", min=1)]
MESH = "A mesh, instead of the puzzle's: replica=2,shard=4;host_size=4 (and ;ranks=... ;processes=...)."
MeshOption = Annotated[Mesh | None, option(MESH, "--mesh", parser=_mesh, metavar="AXIS=SIZE,...")]

Output = Annotated[Path | None, output("a picture", (".svg", ".png", ".pdf"))]
Frame = Annotated[Literal["card", "none"], option("What is around a picture: a card with round corners, or nothing.")]
SHAPE = {"parser": _aspect, "metavar": "WIDTH:HEIGHT", "show_default": False}
Aspect = Annotated[float | None, option("The shape of a picture, such as 16:9.", **SHAPE)]

Jobs = Annotated[int, option("Processes; -1: one for each core.", "--jobs", "-j", callback=_some)]


def takes_fields_of(cls: type[Any]) -> Callable[[C], C]:
    """Give a command with `**chosen` an option for each field of a dataclass, whose metadata have its `help`, its
    `kind`, whether there are `several`, its `choices`, and the `least` and `most` allowed."""
    options: list[inspect.Parameter] = []
    for field in fields(cls):
        allowed, default = field.metadata, field.default
        kind: Any = allowed["kind"]
        if allowed["several"]:
            kind, default = list[kind], []
        elif default is None:
            kind = kind | None
        shown = option(
            allowed["help"], metavar="|".join(allowed["choices"]) or None, min=allowed["least"], max=allowed["most"]
        )
        keyword = inspect.Parameter.KEYWORD_ONLY
        options.append(inspect.Parameter(field.name, keyword, default=default, annotation=Annotated[kind, shown]))

    def decorate(command: C) -> C:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__dict__["__signature__"] = signature.replace(parameters=[*own, *options])
        return command

    return decorate


# -- pages made of templates ------------------------------------------------------------------------------------------

# Untrusted text passes two gates, each in one place: in everything that a template prints, invisible characters are
# made visible, and then it is escaped. A page runs its own script and loads nothing.


def page(name: str, look: str, images: str, colours: Mapping[str, Colour], **values: Any) -> str:
    """Fill in a template from `templates/`, which may use others there, with the style and script of a `look`.

    `images` is where the page may load images from; its script is allowed by its hash, and nothing else is loaded.
    `colours` are its own, by the names in its style. Text in `values` is escaped, unless a template marks it as `safe`:
    then it is our markup. ModuleNotFoundError without jinja2.
    """
    from drawing.canvas.palette import PAGE  # not above: most commands draw nothing

    need_extra("grade", "a page needs", "jinja2")
    script = f"\n{file_of(f'{look}.js')}"
    shared = {
        "images": images,
        "digest": b64encode(sha256(script.encode()).digest()).decode(),
        "colours": {**PAGE, **colours},
        "style": file_of(f"{look}.css"),
        "script": script,
    }
    return template(name).render(**shared, **values)


@cache
def file_of(name: str) -> str:
    """Return the text of a template, style or script."""
    return packaged("lib.suite.cli", f"templates/{name}")


def template(name: str) -> Any:
    """Return a template, which escapes text in a page, and makes invisible characters visible."""
    return _environment().get_template(name)


@cache
def _environment() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # not above: only a page needs it

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
    """Text with invisible characters made visible. What is `safe` is a subclass of str, and left alone."""
    return visible(value) if type(value) is str else value
