"""simulate: runs a student's function on every rank, and gives back the Models."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .costs import UNIT, Costs
from .dist import Dist
from .engine import Failed, Foreign
from .errors import NotSolved, PuzzleError, with_article
from .mesh import Mesh
from .model import Model
from .program import BUDGET
from .puzzles import PUZZLES
from .stuck import dist_trace, rank_failed

__all__ = ["Unsolved", "simulate"]


class Unsolved(list[Model]):
    """What simulate gives for a puzzle that still holds its stub: no Models, and the name of the puzzle."""

    def __init__(self, puzzle: str) -> None:
        super().__init__()
        self.puzzle = puzzle


def simulate(
    function: Callable[[Model], Any],
    *,
    puzzle: str | None = None,
    layers: int | None = None,
    batches: int | None = None,
    ranks: int | None = None,
    mesh: Mesh | None = None,
    costs: Costs | None = None,
    budget: int = BUDGET,
    order: Callable[[list[int]], Sequence[int]] | None = None,
) -> list[Model]:
    """Runs `function(model)` (async or plain) on every rank and returns the Models, rank 0 first.

    Sizes come from the record of `puzzle`, from the arguments (which win), or are 2 layers, 1 batch and 1 rank, or
    as many ranks as the mesh has. A function that still raises NotSolved prints what to do and gives an empty list.
    `order` permutes the ranks that can run: it must not change anything, and tests show that it does not.

    Raises PuzzleError for a mistake of the function's, with the Trace up to there in `error.trace`.
    """
    record = None if puzzle is None else PUZZLES[puzzle]
    if mesh is None and record is not None and ranks in (None, record.ranks):
        mesh = record.mesh
    if layers is None:
        layers = 2 if record is None else record.layers
    if batches is None:
        batches = 1 if record is None else record.batches
    if ranks is None:
        ranks = record.ranks if record is not None else 1 if mesh is None else len(mesh)
    if costs is None:
        costs = UNIT if record is None else record.costs
    dist = Dist(ranks, mesh=mesh, costs=costs, budget=budget)
    models = [Model(rank, dist, layers, batches) for rank in range(ranks)]
    collecting = gc.isenabled()
    gc.disable()  # a run makes millions of objects and no garbage worth looking for: 2.8 times at 10^5 ranks
    try:
        _run(function, models, dist, order)
    except NotSolved as error:
        print(error)
        return Unsolved(error.puzzle)
    finally:
        if collecting:
            gc.enable()
    return models


def _run(
    function: Callable[[Model], Any],
    models: list[Model],
    dist: Dist,
    order: Callable[[list[int]], Sequence[int]] | None,
) -> None:
    if not inspect.iscoroutinefunction(function):
        function = _asynchronous(function)
    coroutines = [function(model) for model in models]
    try:
        dist.engine.run(coroutines, order)
    except Failed as failed:
        error = failed.__cause__
        if isinstance(error, NotSolved):
            raise error from None
        if not isinstance(error, PuzzleError):
            error_ = rank_failed(dist, failed.name, error)
            _stop(dist, error_)
            raise error_ from error
        _stop(dist, error)
        raise error from None
    except Foreign as foreign:
        rank, thing = foreign.args
        error_ = PuzzleError(
            "awaited something that is not an operation of the model",
            expected="`await` on what model.allreduce, allgather, pass_to, receive, ... return",
            got=with_article(type(thing).__name__),
            fix="under simulate time is simulated: there is nothing else to wait for",
            rank=rank,
        )
        _stop(dist, error_)
        raise error_ from None
    except PuzzleError as error:
        _stop(dist, error)
        raise error from None
    finally:
        for coroutine in coroutines:
            # A `finally` that communicates cannot be finished now: what went wrong first is what counts.
            with suppress(Exception):
                coroutine.close()


def _stop(dist: Dist, error: PuzzleError) -> None:
    dist.failure = error
    error.trace = dist_trace(dist, str(error))


def _asynchronous(function: Callable[[Model], Any]) -> Callable[[Model], Any]:
    async def run(model: Model) -> Any:
        result = function(model)
        if inspect.isawaitable(result):
            result = await result
        return result

    return run
