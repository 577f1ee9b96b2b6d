"""Options of a command: a picture, a mesh, and the fields of a dataclass, where alone their names and help stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from lib.cluster.mesh import Mesh, mesh_from

__all__ = [
    "SHORT",
    "Aspect",
    "Batches",
    "Frame",
    "Layers",
    "Limit",
    "MeshOption",
    "Output",
    "PuzzleOption",
    "Ranks",
    "mesh_of",
]
__all__ += ["output", "shape_of", "takes_fields_of"]

SHORT = {"help_option_names": ["-h", "--help"]}
C = TypeVar("C", bound=Callable[..., Any])


def output(what: str, formats: Sequence[str], default: str = "") -> Any:
    """The option of a file in one of several formats, by their suffixes. `what` it is, in a word or two, and what it is
    called where nobody says so."""

    def known(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in formats:
            raise typer.BadParameter(f"{what} is {', '.join(formats[:-1])} or {formats[-1]}; got {path.name!r}")
        return path

    named, otherwise = what.partition(" ")[2], f"; else {default}" if default else ""
    return typer.Option(
        "--output", "-o", callback=known, help=f"{named[0].upper()}{named[1:]}: {', '.join(formats)}{otherwise}."
    )


Output = Annotated[Path | None, output("a picture", (".svg", ".png", ".pdf"))]


def _aspect(text: str) -> float:
    """The shape of a picture: "16:9" is 1.78."""
    wide, _, high = text.partition(":")
    if not (wide.isdecimal() and high.isdecimal() and int(high) and 0.2 <= int(wide) / int(high) <= 5):
        raise typer.BadParameter(f"the shape of a picture is its width and height, such as 16:9 or 4:3; got {text!r}")
    return int(wide) / int(high)


Frame = Annotated[
    Literal["card", "none"], typer.Option(help="What is around a picture: a card with round corners, or nothing.")
]
Aspect = Annotated[
    float | None,
    typer.Option(
        parser=_aspect, metavar="WIDTH:HEIGHT", help="The shape of a picture, such as 16:9.", show_default=False
    ),
]


def shape_of(path: Path | None, frame: str, aspect: float | None) -> tuple[bool, float | None]:
    """What --frame and --aspect say, which are for pictures: slides are 16:9 without one anyway."""
    if (frame != "card" or aspect is not None) and (path is None or path.suffix not in (".svg", ".png")):
        raise typer.BadParameter("--frame and --aspect are for a picture: say -o NAME.svg or -o NAME.png")
    return frame == "card", aspect


def mesh_of(text: str) -> Mesh:
    """The mesh of an option: "replica=2,shard=4", and what else Mesh takes, "replica=2,shard=4;host_size=4"."""
    axes, *more = [part.strip() for part in text.split(";")]
    try:
        data: dict[str, Any] = {"axes": [_pair(axis) for axis in axes.split(",")]}
        for name, value in (part.split("=", 1) for part in more):
            several = name.strip() == "ranks" or "," in value
            data[name.strip()] = [int(number) for number in value.split(",")] if several else int(value)
        return mesh_from(data)
    except ValueError as error:
        reason = None if "invalid literal" in str(error) or "unpack" in str(error) else str(error)
        example = "a mesh is its axes, such as replica=2,shard=4, and perhaps ;host_size=4 ;processes=4 ;ranks=0,2,1,3"
        raise typer.BadParameter(reason or f"{example}; got {text!r}") from None


PuzzleOption = Annotated[str | None, typer.Option("--puzzle", help="The puzzle, where the file does not tell.")]
Ranks = Annotated[int | None, typer.Option(min=1, help="Ranks, instead of the puzzle's.")]
Layers = Annotated[int | None, typer.Option(min=1, help="Layers, instead of the puzzle's.")]
Batches = Annotated[int | None, typer.Option(min=1, help="Batches, instead of the puzzle's.")]
MeshOption = Annotated[
    Mesh | None,
    typer.Option(
        "--mesh",
        parser=mesh_of,
        metavar="AXIS=SIZE,...",
        help="A mesh, instead of the puzzle's: replica=2,shard=4;host_size=4 (and ;ranks=... ;processes=...).",
    ),
]
Limit = Annotated[float | None, typer.Option(min=0.1, help="Seconds that a function may run.", show_default=False)]


def _pair(axis: str) -> tuple[str, int]:
    name, size = axis.split("=")
    return name.strip(), int(size)


def takes_fields_of(cls: type[Any]) -> Callable[[C], C]:
    """Gives a command with `**chosen` an option for each field of a dataclass, whose metadata say what it means
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
    shown: Any = typer.Option(help=allowed["help"], metavar="|".join(allowed["choices"]) or None, **limits)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )
