"""The options that several commands have, in one table, and what they ask for: files, a mesh, processes, a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import Field, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import typer

from lib.cluster.mesh import Mesh, mesh_from
from lib.puzzles.records import PUZZLES

__all__ = ["SHORT", "WHAT", "Aspect", "Backend", "Batches", "Frame", "Jobs", "Layers", "Limit", "MeshOption", "Output"]
__all__ += ["Puzzle", "PuzzleArgument", "Ranks", "Scheduler", "Subject"]
__all__ += ["argument", "cluster", "one_of", "option", "output", "shape_of", "some_jobs", "takes_fields_of"]

SHORT = {"help_option_names": ["-h", "--help"]}
WHAT = "a puzzle's id (its reference solution), a notebook, a .py, or a saved Trace (.json)"
C = TypeVar("C", bound=Callable[..., Any])
J = TypeVar("J", int, int | None)


def option(help_: str, *names: str, **limits: Any) -> Any:
    """Return the option of a command: what it means, its names where they are not those of the parameter, its limits
    and callback."""
    return typer.Option(*names, help=help_, **limits)


def argument(metavar: str, help_: str, **limits: Any) -> Any:
    """Return an argument of a command: how it is called in the usage, and what it means."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False, **limits)


def one_of(allowed: Sequence[str], wrong: str) -> Callable[[str], str]:
    """Return a callback that takes one of some words; `wrong` is said of another, with {!r} for what came."""

    def known(name: str) -> str:
        if name not in allowed:
            raise typer.BadParameter(wrong.format(name))
        return name

    return known


def output(what: str, formats: Sequence[str], default: str = "") -> Any:
    """Return the option of a file in one of several formats, by their suffixes. `what` it is, in a word or two, and
    what it is called where nobody says so."""

    def known(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in formats:
            raise typer.BadParameter(f"{what} is {', '.join(formats[:-1])} or {formats[-1]}; got {path.name!r}")
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
    """The mesh of an option: "replica=2,shard=4", and what else Mesh takes, "replica=2,shard=4;host_size=4"."""
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


def some_jobs(number: J) -> J:
    """As many processes as an option says; none is no number of them."""
    if number == 0:
        raise typer.BadParameter("some process has to do it; -1: one for each core")
    return number


# -- the table ------------------------------------------------------------------------------------------------------

_known = one_of([*PUZZLES], f"there is no puzzle {{!r}}; there are {', '.join(PUZZLES)}")
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
FRAME = "What is around a picture: a card with round corners, or nothing."
Frame = Annotated[Literal["card", "none"], option(FRAME)]
ASPECT = "The shape of a picture, such as 16:9."
Aspect = Annotated[float | None, option(ASPECT, parser=_aspect, metavar="WIDTH:HEIGHT", show_default=False)]

Jobs = Annotated[int, option("Processes; -1: one for each core.", "--jobs", "-j", callback=some_jobs)]
Backend = Annotated[str | None, option("A backend of joblib, such as dask or ray, for a cluster.")]
SCHEDULER = "Where the cluster is, such as tcp://10.0.0.1:8786; else its configuration says so."
Scheduler = Annotated[str | None, option(SCHEDULER)]


def shape_of(path: Path | None, frame: str, aspect: float | None) -> tuple[bool, float | None]:
    """Return what --frame and --aspect say, which are for pictures alone."""
    if (frame != "card" or aspect is not None) and (path is None or path.suffix == ".html"):
        raise typer.BadParameter("--frame and --aspect are for a picture: say -o NAME.svg or -o NAME.png")
    return frame == "card", aspect


def takes_fields_of(cls: type[Any]) -> Callable[[C], C]:
    """Give a command with `**chosen` an option for each field of a dataclass, whose metadata say what it means
    (`help`), of which `kind` it is or are `several`, what `choices` there are, and the `least` and the `most` that it
    may be."""

    def decorate(command: C) -> C:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__dict__["__signature__"] = signature.replace(parameters=own + [_parameter(f) for f in fields(cls)])
        return command

    return decorate


def _parameter(field: Field[Any]) -> inspect.Parameter:
    allowed, default = field.metadata, field.default
    kind: Any = allowed["kind"]
    if allowed["several"]:
        kind, default = list[kind], []
    elif default is None:
        kind = kind | None
    limits = {"min": allowed["least"], "max": allowed["most"]}
    shown = option(allowed["help"], metavar="|".join(allowed["choices"]) or None, **limits)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )


@contextmanager
def cluster(backend: str | None, scheduler: str | None) -> Generator[None]:
    """Have joblib send its work where it is to go. A cluster is met by its own client: at the address that is given, or
    where its configuration says, or one of this machine is started."""
    if backend is None:
        yield
        return
    with ExitStack() as stack:
        try:
            import joblib  # pyright: ignore[reportMissingTypeStubs]  # here and not above: an extra, and few need it

            if backend == "dask":
                client = import_module("distributed").Client
                stack.enter_context(client(scheduler) if scheduler else client())
            elif backend == "ray":
                import_module("ray").init(address=scheduler)
                import_module("ray.util.joblib").register_ray()
            stack.enter_context(cast("Any", joblib).parallel_config(backend=backend))
        except ImportError as error:
            raise ModuleNotFoundError(f"--backend {backend} needs what is not installed: {error}") from None
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error)) from None
        yield
