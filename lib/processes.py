"""Work that joblib shares out to processes of this machine, or that is done here, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeVar, cast

from lib.extras import need_extra

__all__ = ["shared_out"]

T = TypeVar("T")
R = TypeVar("R")


def shared_out(
    work: Callable[[T], R], items: Iterable[T], jobs: int | None, doing: str, *, ends: bool = False, **options: Any
) -> Iterator[R]:
    """Yield what `work` makes of each item, in the order in which `jobs` processes (-1: one for each core) finish; in
    this process, one after the other, where jobs is 1 or None.

    `options` are those of joblib.Parallel. With `ends` the processes end with the work, and do not wait for more.
    ModuleNotFoundError says, where joblib is missing, that `doing` this needs it.
    """
    if jobs in (None, 1):
        yield from map(work, items)
        return
    need_extra("grade", f"{doing} in several processes needs", "joblib")
    joblib = cast("Any", import_module("joblib"))  # here: it is an extra, and one process needs none
    try:
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", backend="loky", **options)(
            joblib.delayed(work)(item) for item in items
        )
    finally:
        if ends:
            loky = cast("Any", import_module("joblib.externals.loky"))
            loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)
