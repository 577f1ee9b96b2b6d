"""What a command works with: processes, and a cluster that joblib is to take."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, TypeVar, cast

import typer

__all__ = ["BACKEND", "SCHEDULER", "cluster", "some_jobs"]

BACKEND = "A backend of joblib, such as dask or ray, for a cluster."
SCHEDULER = "Where the cluster is, such as tcp://10.0.0.1:8786; else its configuration says so."


J = TypeVar("J", int, int | None)


def some_jobs(number: J) -> J:
    """As many processes as an option says; none is no number of them."""
    if number == 0:
        raise typer.BadParameter("some process has to do it; -1: one for each core")
    return number


@contextmanager
def cluster(backend: str | None, scheduler: str | None) -> Generator[None]:
    """Has joblib send its work where it is to go. A cluster is met by its own client: at the address that is given, or
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
