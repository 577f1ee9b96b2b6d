"""Work that joblib shares out to processes of this machine, or to a cluster; or that is done here, one by one."""

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
    """What `work` makes of each item, in `jobs` processes (-1: one for each core), in the order in which they finish;
    in this process, one after the other, where jobs is 1 or None.

    Which processes these are is for joblib to say: `joblib.parallel_config(backend="dask")` around it takes a cluster.
    `options` are those of joblib.Parallel. `ends`: those of this machine end with the work, and do not wait for more.
    ModuleNotFoundError says, where joblib is missing, that `doing` this needs it.
    """
    if jobs in (None, 1):
        yield from map(work, items)
        return
    need_extra("grade", f"{doing} in several processes needs", "joblib")
    import joblib  # pyright: ignore[reportMissingTypeStubs]  # here: it is an extra, and one process needs none

    loose = cast("Any", joblib)
    parallel = loose.Parallel(n_jobs=jobs, return_as="generator_unordered", **options)
    try:
        yield from parallel(loose.delayed(work)(item) for item in items)
    finally:
        if ends and "Loky" in type(getattr(parallel, "_backend", None)).__name__:
            executor = cast("Any", import_module("joblib.externals.loky")).get_reusable_executor()
            executor.shutdown(wait=True, kill_workers=True)
