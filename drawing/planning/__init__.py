"""Pictures of plans: bytes beside the memory of a GPU, the step of a pipeline, many plans, and predictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast


def require(things: object, kind: type[Any], said: str) -> None:
    """Raise ValueError, with what a function takes, unless things are one or more of a kind."""
    try:
        every = [*cast("Iterable[object]", things)]
    except TypeError:
        every = []
    if not every or not all(isinstance(one, kind) for one in every):
        raise ValueError(f"{said}; got {things!r:.80}")
