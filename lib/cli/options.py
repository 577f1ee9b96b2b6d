"""Options of a command that are the fields of a dataclass, where alone their names, defaults and help stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, TypeVar

import typer

__all__ = ["takes_fields_of"]

C = TypeVar("C", bound=Callable[..., Any])


def takes_fields_of(cls: type[Any]) -> Callable[[C], C]:
    """Gives a command with `**chosen` an option for each field of a dataclass, whose metadata say what it means
    (`help`), of which `kind` it is or are `several`, what `choices` there are, and the `least` that it may be."""

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
    shown: Any = typer.Option(help=allowed["help"], metavar="|".join(allowed["choices"]) or None, min=allowed["least"])
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )
