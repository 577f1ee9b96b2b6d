"""simulate: runs a student's function on every rank, and gives back the Models."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from lib import diagnosis
from lib.cluster.clock import MAX_TICKS, TICKS
from lib.cluster.costs import UNIT, Costs
from lib.cluster.mesh import Mesh, mesh_from
from lib.errors import fixes, graded
from lib.errors.exceptions import ForgottenAwait, NotSolved, PuzzleError
from lib.puzzles.records import schedule_record
from lib.simulator.asyncio_support.drivers import OwnLoop
from lib.simulator.dist import Dist
from lib.simulator.engine import TURNS, Failed, Foreign, Halted, Spinning
from lib.simulator.failures.aftermath import failure_of, go_on, is_final
from lib.simulator.model import Model
from lib.simulator.printing import in_order
from lib.simulator.recorder import BUDGET, PUZZLE_BUDGET
from lib.values.kinds.kind import USUAL, Layer
from lib.values.operations import TIMED

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
    layers: int | Sequence[Layer] | None = None,
    batches: int | None = None,
    padding: int = 0,
    ranks: int | None = None,
    mesh: Mesh | None = None,
    costs: Costs | None = None,
    budget: int | None = None,
    order: Callable[[list[int]], Sequence[int]] | None = None,
) -> list[Model]:
    """Runs `function(model)` (async or plain) on every rank and returns the Models, rank 0 first.

    Sizes come from the record of `puzzle`, from the arguments (which win), or are 2 layers, 1 batch and 1 rank, or
    as many ranks as the mesh has. Layers that are not all alike are given by their descriptions, as in
    `layers=[Layer(outputs=2048), Layer(inputs=2048)]`. A function that still raises NotSolved prints what to do and
    gives an empty list.
    `padding` is how many batches more there are, from the number `batches` on: they take time and memory like others,
    and no gradient needs them. `budget` is how many events a rank may record: far more than any solution needs at the
    size of a puzzle, and 250,000 at others. `order` permutes the ranks that can run: it must not change anything, and
    tests show that it does not.

    Raises PuzzleError for a mistake of the function's, with the Trace up to there in `error.trace`.
    """
    if not _can_be_called(function):
        raise diagnosis.not_callable(function)
    if "IPython" in sys.modules and (error := diagnosis.not_the_latest(function)) is not None:
        raise error
    for name, size in (("layers", layers), ("batches", batches), ("ranks", ranks)):
        if isinstance(size, bool):  # the rest is for Dist and Model to refuse
            raise ValueError(f"a run has at least one of its {name}; got {name}={size}")
    if order is not None and not callable(order):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"order= is a function that permutes the ranks that can run; got {order!r}")
    described: Sequence[Layer] = USUAL
    if isinstance(layers, Sequence):
        layers, described = len(layers), layers
    record = None if puzzle is None else schedule_record(puzzle)
    if mesh is None and record is not None and ranks in (None, record.ranks):
        mesh = None if record.mesh is None else mesh_from(record.mesh.to_json())
    if layers is None:
        layers = 2 if record is None else record.layers
    if batches is None:
        batches = 1 if record is None else record.batches
    if ranks is None:
        ranks = len(mesh) if isinstance(mesh, Mesh) else 1 if record is None else record.ranks
    if costs is None:
        costs = UNIT if record is None else replace(record.costs)
    sizes = ranks, layers, batches
    if budget is None:
        budget = PUZZLE_BUDGET if record is not None and sizes == record.size else BUDGET

    def world() -> tuple[Dist, list[Model]]:
        dist = Dist(sizes[0], mesh=mesh, costs=costs, budget=budget)
        dist.by_hand = False
        dist.puzzle = puzzle
        dist.descriptions = described
        dist.asks = None if record is None else frozenset(record.asks)
        return dist, [Model(rank, dist, *sizes[1:], padding) for rank in range(sizes[0])]

    collecting = gc.isenabled()
    gc.disable()  # a run makes millions of objects and no garbage worth looking for: 2.8 times at 10^5 ranks
    try:
        models = _run(function, world, order)
        # Here and not below: the first allocation after gc.enable() pays for all that the run has made.
        if any(model.program.clock > MAX_TICKS for model in models):
            most = MAX_TICKS // TICKS
            raise ValueError(f"this run takes longer than {most} time units, which no Trace can hold: lower the costs")
    except NotSolved as error:
        graded.say_unsolved(error)
        return Unsolved(error.puzzle)
    finally:
        if collecting:
            gc.enable()
    return models


World = Callable[[], tuple[Dist, list[Model]]]
Order = Callable[[list[int]], Sequence[int]] | None


def _run(function: Callable[[Model], Any], world: World, order: Order) -> list[Model]:
    """Runs a function on all ranks of a world by our own driver, or by asyncio where that is what it needs."""
    from lib.simulator.asyncio_support.uses import uses_asyncio  # here and not above: only a run needs it

    needed, names = uses_asyncio(function), getattr(function, "__globals__", {})
    if not inspect.iscoroutinefunction(function):
        function = _asynchronous(function)
    with _alone(needed), _exit_is_an_error(names):
        dist, models = world()
        failure = None if needed else _attempt(function, models, dist, order, _step)
        if needed or failure is NEEDED:
            # The loop of `eventloop` can do all that our driver does and more, but takes several times as long.
            dist, models = world() if failure is NEEDED else (dist, models)
            failure = _attempt(function, models, dist, order, _host)
    if failure is None:
        return models
    if not isinstance(failure, NotSolved):
        fixes.keep(failure)
        dist.failure = failure
        if dist.mesh is not None and failure.rank is not None:
            failure.named = dist.mesh.named(failure.rank)
        failure.trace = dist.so_far(str(failure))
    raise failure from failure.__cause__


NEEDED: Final = PuzzleError("this function needs an event loop of asyncio")
"""What became of an attempt without a loop, where that is so: the attempt counts for nothing."""


def _attempt(
    function: Callable[[Model], Any], models: list[Model], dist: Dist, order: Order, drive: Callable[..., None]
) -> PuzzleError | None:
    """Runs the ranks to their end. What a student did wrong, if anything; what made it is its cause."""
    failure: PuzzleError | None = None
    with in_order(dist) as printed, _dropped(dist) as dropped:
        coroutines = [function(model) for model in models]
        try:
            failure = _outcome(dist, coroutines, order, drive)
        finally:
            for coroutine in coroutines:
                # A `finally` that communicates cannot be finished now: what went wrong first is what counts.
                with suppress(Exception, Halted, SystemExit, GeneratorExit):
                    coroutine.close()
            if failure is NEEDED:
                dropped.clear()
                printed.forget()
    if dropped and not isinstance(failure, NotSolved):  # it explains whatever came of it
        return dropped[0]
    return failure


def _outcome(
    dist: Dist, coroutines: list[Coroutine[Any, Any, Any]], order: Order, drive: Callable[..., None]
) -> PuzzleError | None:
    try:
        drive(dist, coroutines, order)
    except Failed as failed:
        if isinstance(failed.__cause__, KeyboardInterrupt):
            raise diagnosis.interrupted(failed.name, failed.__cause__) from None
        first = _first_of_all(dist, failed) if drive is _step else failed
        if drive is _step and _asked(first.__cause__):
            return NEEDED
        return _failure(dist, first.name, first.__cause__)
    except Spinning as spinning:
        return diagnosis.asleep(spinning.name, diagnosis.waiting_at(coroutines[spinning.name]), TURNS)
    except Foreign as foreign:
        rank, thing = foreign.args
        if hasattr(thing, "_asyncio_future_blocking"):
            return NEEDED
        return diagnosis.not_ours(rank, thing, diagnosis.waiting_at(coroutines[rank]))
    except PuzzleError as error:
        return error
    except KeyboardInterrupt as stop:
        raise diagnosis.interrupted(None, stop) from None
    except (SystemExit, GeneratorExit) as error:  # asyncio lets go of everything when a task raises one of them
        return _failure(dist, None, error)
    return None


def _first_of_all(dist: Dist, failed: Failed) -> Failed:
    """Runs the other ranks up to the moment at which one failed; should another fail before, up to that. The first."""
    if is_final(failed) or _asked(failed.__cause__):
        return failed
    first = failure_of(failed, dist.models)
    go_on(first, dist.models)
    while True:
        try:
            dist.engine.run_on(first.time)
        except Failed as other:
            if (found := failure_of(other, dist.models))[:2] < first[:2]:
                first = found
                go_on(first, dist.models)
        except (Spinning, Foreign):  # what went wrong before is what counts
            return first.error
        else:
            return first.error


def _step(dist: Dist, coroutines: Sequence[Coroutine[Any, Any, Any]], order: Order) -> None:
    dist.engine.run(coroutines, order)


def _host(dist: Dist, coroutines: Sequence[Coroutine[Any, Any, Any]], order: Order) -> None:
    from lib.simulator.asyncio_support import event_loop  # here and not above: asyncio is slow to import

    driver = dist.driver = OwnLoop(dist.engine)
    try:
        event_loop.run(driver, coroutines, order, dist.models)
    except event_loop.Stopped as stopped:
        cause = event_loop.leaf(stopped.__cause__ or stopped)
        if stopped.rank is None:
            raise cause from None
        raise Failed(stopped.rank) from cause


def _asked(error: BaseException | None) -> bool:
    from lib.simulator.asyncio_support.uses import asked_for_a_loop

    return error is not None and asked_for_a_loop(error)


@contextmanager
def _alone(needed: bool) -> Generator[None]:
    """Hides a loop that is running, such as a notebook's: tasks that a rank makes are not for that loop to run."""
    if not needed and "asyncio" not in sys.modules:
        yield
        return
    from lib.simulator.asyncio_support.event_loop import alone

    with alone():
        yield


@contextmanager
def _exit_is_an_error(names: dict[str, Any]) -> Generator[None]:
    """A notebook has an exit() of its own, which says nothing and ends its kernel: here it is Python's, an error."""
    own = {
        name: names[name] for name in ("exit", "quit") if type(names.get(name)).__module__ == "IPython.core.autocall"
    }
    names.update(dict.fromkeys(own, sys.exit))
    try:
        yield
    finally:
        names.update(own)


def _failure(dist: Dist, rank: int | None, cause: BaseException | None) -> PuzzleError:
    """What a rank that raised tells the student."""
    if isinstance(cause, NotSolved) and _has_worked(dist) and not cause.untouched():
        cause.left_over()
    if isinstance(cause, PuzzleError):
        return cause
    failure = diagnosis.rank_failed(dist, rank, cause)
    failure.__cause__ = cause
    return failure


def _has_worked(dist: Dist) -> bool:
    """Whether any rank has done something that takes time."""
    return any(event.op in TIMED for model in dist.models.values() for event in model.program.events)


# -- what simulate alone can see ----------------------------------------------------------------------------------


@contextmanager
def _dropped(dist: Dist) -> Generator[list[ForgottenAwait]]:
    """Finds calls of async functions that nobody awaited: Python only warns of them, and they have never run."""
    found: list[ForgottenAwait] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("always", r"coroutine '.*' was never awaited", RuntimeWarning)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
            name = re.match(r"coroutine '(.*)' was never awaited", str(message))
            if name is None:
                show(message, category, filename, line, *rest)
            else:
                found.append(diagnosis.never_awaited(name[1].rpartition(".")[2], dist.engine.running()))

        warnings.showwarning = note
        yield found


def _asynchronous(function: Callable[[Model], Any]) -> Callable[[Model], Any]:
    async def run(model: Model) -> Any:
        result = function(model)
        if inspect.isawaitable(result):
            result = await result
        return result

    return run


def _can_be_called(function: Any) -> bool:
    """Whether simulate can call the function, with the model as its only argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell its parameters
        return True
    return True
