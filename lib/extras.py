"""The extras of the package: the libraries in each, the error where one is missing, and work shared out to processes
by joblib, one of these libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": ("watchfiles",),
    "notebook": ("ipykernel", "jupyterlab", "jupytext", "nbclient", "nbformat"),
    "png": ("vl_convert",),
    "replay": ("torch", "numpy"),
    "grade": ("jinja2", "joblib", "msgspec", "nbformat"),
    "optimum": ("ortools",),
}
"""The extras of pyproject.toml that a command may lack, and the import names of their libraries."""


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f'pip install "llm-training-puzzles[{extra}]"'


def need_extra(extra: str, doing: str, *libraries: str) -> None:
    """Raise ModuleNotFoundError where an extra's library is missing: any of them, or one of those named.

    Call it before long work, not after. `doing` begins the message: "a page needs".
    """
    missing = next((name for name in libraries or EXTRAS[extra] if not _is_there(name)), None)
    if missing is not None:
        raise ModuleNotFoundError(f'{doing} the extra "{extra}": {install(extra)}', name=missing)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # importing it is blocked, as by None in sys.modules
        return False


def shared_out(
    work: Callable[[T], R], items: Iterable[T], jobs: int | None, doing: str, *, ends: bool = False, **options: Any
) -> Iterator[R]:
    """Yield the results of `work` on each item, in the order in which `jobs` processes (-1: one for each core) finish;
    where jobs is 1 or None, in this process and in order.

    `options` are those of joblib.Parallel. With `ends` the processes end with the work, and do not wait for more.
    Raises ModuleNotFoundError where joblib is missing, saying that `doing` needs it.
    """
    if jobs in (None, 1):
        yield from map(work, items)
        return
    need_extra("grade", f"{doing} in several processes needs", "joblib")
    joblib = cast("Any", import_module("joblib"))  # here: it is an extra, not needed for one process
    try:
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", backend="loky", **options)(
            joblib.delayed(work)(item) for item in items
        )
    finally:
        if ends:
            loky = cast("Any", import_module("joblib.externals.loky"))
            loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)
