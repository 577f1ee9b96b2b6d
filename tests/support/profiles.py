"""How much is tried: a little at every commit, much more under `make test-all`, which sets TESTS=thorough."""

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

__all__ = ["THOROUGH", "examples", "sample"]

THOROUGH = os.environ.get("TESTS") == "thorough"
FEWER = 8
"""What is tried in full by `make test-all`, every commit tries one in so many of."""

T = TypeVar("T")

# Else numbers and words of the modules of ours that are imported are tried, too: other ones in each worker.
providers._get_local_constants = lambda: providers._local_constants  # pyright: ignore[reportPrivateUsage]

settings.register_profile(
    "same every time",
    max_examples=300 if THOROUGH else 15,
    derandomize=True,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same every time")


def examples(count: int, few: int | None = None, **others: Any) -> Any:
    """Settings for a property whose examples cost much: `count` in `make test-all`, `few` (an eighth) at a commit.

    A property without settings has as many as the profile says. `others` are passed on to hypothesis.settings.
    """
    few = max(2, count // FEWER) if few is None else few
    return settings(max_examples=count if THOROUGH else few, **others)


def sample(cases: Iterable[T]) -> list[T]:
    """Every eighth of some cases, beginning with the first; all of them in `make test-all`."""
    return list(cases)[:: 1 if THOROUGH else FEWER]
