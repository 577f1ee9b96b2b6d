"""The two ways to run a function on every rank, and what the tests ask of a run."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lib import UNIT, Costs, Dist, Layer, Mesh, Model, Trace, simulate
from lib.analysis import figures
from lib.trace import json_format as serial
from lib.values.kinds.kind import USUAL

ROOT = Path(__file__).parents[2]
Run = Callable[..., list[Model]]


async def gather(
    function: Callable[[Model], Any],
    *,
    ranks: int = 1,
    layers: int = 2,
    batches: int = 1,
    mesh: Mesh | None = None,
    costs: Costs = UNIT,
    budget: int = 250_000,
    described: Sequence[Layer] = USUAL,
) -> list[Model]:
    """What a notebook of the original does: one asyncio task a rank."""
    dist = Dist(ranks, mesh=mesh, costs=costs, budget=budget)
    dist.descriptions = described
    models = [Model(rank=rank, dist=dist, layers=layers, batches=batches) for rank in range(ranks)]

    async def run(model: Model) -> None:
        result = function(model)
        if inspect.isawaitable(result):
            await result

    await asyncio.gather(*[run(model) for model in models])
    return models


def in_asyncio(function: Callable[[Model], Any], **sizes: Any) -> list[Model]:
    """`gather` in a loop of its own."""
    return asyncio.run(gather(function, **sizes))


DRIVERS: dict[str, Run] = {"simulate": simulate, "asyncio": in_asyncio}


def encoded(models: list[Model]) -> dict[str, Any]:
    """The whole Trace as JSON data: equal only where everything is."""
    return serial.encode(Trace.of(models))


def without_places(trace: Trace) -> dict[str, Any]:
    """A Trace without source lines, which the text form leaves out."""
    return serial.encode(trace, lines=False)


def figures_of(models: list[Model]) -> tuple[float, float, float]:
    """What `draw` prints as time, the true end, and the peak memory."""
    trace = Trace.of(models)
    return figures.printed(trace), figures.end(trace), float(figures.peak(trace).elements)


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints for `code`, started in the repository's root."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
