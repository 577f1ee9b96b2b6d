"""Pictures of plans: bytes beside the memory of a GPU, the step of a pipeline, many plans, and predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast


def require(things: object, kind: type[Any], said: str) -> None:
    """Raise ValueError, with what a function takes, unless things, or what a mapping has of them, are one or more of a
    kind."""
    found = cast("Mapping[Any, object]", things).values() if isinstance(things, Mapping) else things
    every = [*cast("Iterable[object]", found)] if isinstance(found, Iterable) else []
    if not every or not all(isinstance(one, kind) for one in every):
        raise ValueError(f"{said}; got {things!r:.80}")
