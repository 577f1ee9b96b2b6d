"""simulate: runs a student's function on every rank, and gives back the Models."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from lib.cluster.costs import MAX_TICKS, TICKS, UNIT, Costs
from lib.errors.exceptions import ForgottenAwait, NotSolved, PuzzleError
from lib.record import replace
from lib.simulator.dist import Dist
from lib.simulator.engine import Halted
from lib.simulator.model import Model
from lib.simulator.recorder import BUDGET, PUZZLE_BUDGET
from lib.trace.trace import without_collector
from lib.values.kinds.kind import USUAL, Layer

if TYPE_CHECKING:
    from lib.cluster.mesh import Mesh
    from lib.puzzles.puzzle import Puzzle

MOST_KEPT = 200_000
"""Characters of output that are kept. What comes after them may never end, so it is shown at once."""
NEEDED: Final = PuzzleError("this function needs an event loop of asyncio")
"""The result of an attempt without a loop, which then counts for nothing."""


class Unsolved(list[Model]):
    """The result of simulating a puzzle that still has its stub: no Models, and the name of the puzzle."""

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
    """Run `function(model)` (async or plain) on every rank and return the Models, rank 0 first.

    Sizes are the arguments, or else those of the `puzzle`, or else 2 layers, 1 batch, and 1 rank or as many as the mesh
    has. Layers that differ are given by their descriptions: `layers=[Layer(outputs=2048), Layer(inputs=2048)]`. If the
    function still raises NotSolved, this prints what to do and returns an empty list.
    `padding` is a number of further batches, counted from `batches` on: they take time and memory like others, and no
    gradient needs them. `budget` is how many events a rank may record: far more than any solution needs at the size of
    a puzzle, and 250,000 at others. `order` permutes the ranks that can run, for tests that show that it changes
    nothing.

    Raises PuzzleError for a mistake in the function, with the Trace up to there in `error.trace`.

    >>> async def step(model):  # one layer, one batch, one rank
    ...     weight, opt_state = model.load_weights(0)
    ...     data = model.get_activation([0])
    ...     grad = model.loss(model.forward(0, data, weight))
    ...     grad_weight, _ = model.backward(0, data, grad, weight)
    ...     weight, opt_state = model.update(0, grad_weight, weight, opt_state)
    ...     model.set_final_weight(0, weight)
    >>> models = simulate(step, layers=1)
    >>> print(models[0].trace.text().splitlines()[-1])
    0| W0@0.1>0,1 I:0>2 F0:0/2,0>3 X/3>4 B0:0/2,4,0>5,6 U0/5,0,1>7,8 E0/7
    """
    _need_function(function)
    if order is not None and not callable(order):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"order= is a function that permutes the ranks that can run; got {order!r}")
    world = _setting(puzzle, layers, batches, padding, ranks, mesh, costs, budget)
    models, failure = _run(function, world, order)
    if failure is None and any(model.program.clock > MAX_TICKS for model in models):
        most = MAX_TICKS // TICKS
        raise ValueError(f"this run takes longer than {most} time units, which no Trace can hold: lower the costs")
    # No error: a notebook is run from top to bottom, and later cells have to show what is to be done.
    if isinstance(failure, NotSolved):
        from lib.errors import graded

        graded.say_unsolved(failure)
        return Unsolved(failure.puzzle)
    if failure is not None:
        raise failure from failure.__cause__
    models[0].dist.function = function  # the check tries it at other sizes
    return models


def _need_function(function: Callable[[Model], Any]) -> None:
    """Check that a function takes a Model and nothing else, and in a notebook, that it is the latest of its name."""
    import inspect  # here and not above: `import lib` should be quick

    try:
        with suppress(ValueError):  # a builtin that does not tell its parameters
            # It is called with one Model: all other parameters need defaults.
            inspect.signature(function).bind(None)
    except TypeError:
        from lib import diagnosis  # here and not above: a run that goes well needs none of it

        raise diagnosis.not_callable(function) from None
    if "IPython" in sys.modules:
        from lib import diagnosis

        if (error := diagnosis.not_the_latest(function)) is not None:
            raise error


World = Callable[[], tuple[Dist, list[Model]]]
"""Makes a world and its Models: a run that turns out to need asyncio starts over in another one."""


def _setting(
    puzzle: str | None,
    layers: int | Sequence[Layer] | None,
    batches: int | None,
    padding: int,
    ranks: int | None,
    mesh: Mesh | None,
    costs: Costs | None,
    budget: int | None,
) -> World:
    """Return a maker of the world of a run. Sizes that are None are those of the puzzle's record, or the usual ones."""
    for name, size in (("layers", layers), ("batches", batches), ("ranks", ranks)):
        if isinstance(size, bool):  # the rest is for Dist and Model to refuse
            raise ValueError(f"a run has at least one of its {name}; got {name}={size}")
    if isinstance(layers, Layer):
        raise ValueError("layers that are described stand in a list, one for each: layers=[Layer(...), Layer(...)]")
    layers, described = (len(layers), layers) if isinstance(layers, Sequence) else (layers, None)
    record: Puzzle | None = None
    if puzzle is not None:
        from lib.cluster.mesh import mesh_from  # here and not above: not every run is a puzzle's
        from lib.puzzles.records import schedule_record

        record = schedule_record(puzzle)
        # A mesh of its own belongs to the puzzle's size; at another number of ranks it would not fit.
        if mesh is None and record.mesh is not None and ranks in (None, record.ranks):
            mesh = mesh_from(record.mesh.to_json())
    if ranks is None and mesh is not None:
        from lib.cluster.mesh import Mesh

        ranks = len(mesh) if isinstance(mesh, Mesh) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    usual = (1, 2, 1) if record is None else record.size
    given = zip((ranks, layers, batches), usual, strict=True)
    ranks, layers, batches = (size if mine is None else mine for mine, size in given)
    if described is None:
        if record is not None and record.has_its_own_layers and layers != record.layers:
            raise ValueError(f"{puzzle} has {record.layers} layers, each of its own kind: leave out layers=")
        described = USUAL if record is None else record.described(layers)
    if costs is None:
        # A copy: changing the costs of a run must not change the record.
        costs = UNIT if record is None else replace(record.costs)
    if budget is None:
        # At the size of a puzzle little is recorded, so an endless loop is reported soon.
        budget = PUZZLE_BUDGET if record is not None and (ranks, layers, batches) == record.size else BUDGET

    def world() -> tuple[Dist, list[Model]]:
        dist = Dist(ranks, mesh=mesh, costs=costs, budget=budget)
        dist.by_hand = False
        dist.puzzle = puzzle
        dist.descriptions = described
        dist.asks = None if record is None else frozenset(record.asks)
        return dist, [Model(rank, dist, layers, batches, padding) for rank in range(ranks)]

    return world


def _run(function: Callable[[Model], Any], world: World, order: Any) -> tuple[list[Model], PuzzleError | None]:
    """Run a function on all ranks of a world; return the Models, and the student's mistake, if any.

    Our own driver steps the coroutines: it knows only Signals, and is several times as fast as asyncio. Tasks, locks
    and timers need an asyncio loop, in a new world; the function is the same for both.
    """
    import inspect

    async def run(model: Model) -> Any:
        result = function(model)
        return await result if inspect.isawaitable(result) else result

    # An async function is called directly: a wrapper would add a frame to each step.
    on_a_rank = function if inspect.iscoroutinefunction(function) else run
    with without_collector(), _alone(), _exit_is_an_error(getattr(function, "__globals__", {})):
        dist, models = world()
        failure = _attempt(on_a_rank, dist, models, dist.engine.run, order)
        if failure is NEEDED:
            from lib.simulator import event_loop

            dist, models = world()
            failure = _attempt(on_a_rank, dist, models, partial(event_loop.run, dist), order)
    return models, failure


def _attempt(
    function: Callable[[Model], Any], dist: Dist, models: Sequence[Model], drive: Callable[..., None], order: Any
) -> PuzzleError | None:
    """Run a function on all ranks to their end; return the student's mistake, if any, with its cause."""
    failure: PuzzleError | None = None
    with Printed(sys.stdout, dist) as printed, _dropped(dist) as dropped:
        coroutines = [function(model) for model in models]
        try:
            drive(coroutines, order)
        # exit(), too: a student's function must not end the notebook.
        except BaseException as error:
            from lib.simulator.failures import what_failed  # here and not above: a run that goes well needs none of it

            failure = what_failed(dist, coroutines, error) or NEEDED
        finally:
            for coroutine in coroutines:
                # A `finally` that communicates cannot finish now: only the first mistake counts.
                with suppress(Exception, Halted, SystemExit, GeneratorExit):
                    coroutine.close()
        if failure is NEEDED:
            # The second attempt prints everything again.
            printed.kept.clear()
            dropped.clear()
    if dropped and not isinstance(failure, NotSolved):  # it explains any other failure
        failure = dropped[0]
    if failure is not None and failure is not NEEDED and not isinstance(failure, NotSolved):
        from lib.simulator.failures import blamed

        failure = blamed(dist, failure)
    return failure


def _alone() -> Any:
    """Hide a running loop, such as a notebook's, which must not run the tasks that a rank makes."""
    if "asyncio" not in sys.modules:
        return nullcontext()
    from lib.simulator.running_loop import alone

    return alone()


@contextmanager
def _exit_is_an_error(names: dict[str, Any]) -> Generator[None]:
    """Replace a notebook's exit(), which silently ends its kernel, by Python's, which raises."""
    own = {
        name: names[name] for name in ("exit", "quit") if type(names.get(name)).__module__ == "IPython.core.autocall"
    }
    names.update(dict.fromkeys(own, sys.exit))
    try:
        yield
    finally:
        names.update(own)


@contextmanager
def _dropped(dist: Dist) -> Generator[list[ForgottenAwait]]:
    """Find calls of async functions that were never awaited, so never ran: Python only warns of them."""
    found: list[ForgottenAwait] = []
    with warnings.catch_warnings():
        # By default Python warns once for each line, but a notebook's cell is run again and again.
        warnings.filterwarnings("always", r"coroutine '.*' was never awaited", RuntimeWarning)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
            name = re.match(r"coroutine '(.*)' was never awaited", str(message))
            if name is None:
                show(message, category, filename, line, *rest)
            else:
                from lib import diagnosis

                found.append(diagnosis.never_awaited(name[1].rpartition(".")[2], dist.engine.running()))

        warnings.showwarning = note
        yield found


# -- what ranks print ---------------------------------------------------------------------------------------------


class Printed:
    """Replaces a stream while ranks run, and puts what they print in the order of simulated time; at equal times the
    lower rank comes first. All but writing is left to the stream.

    Ranks run ahead until they wait, in an arbitrary order. So output is kept until the run is over, there is a lot of
    it, or the process ends.
    """

    def __init__(self, stream: TextIO, dist: Dist) -> None:
        self._stream = stream
        self._dist = dist
        self.kept: list[tuple[tuple[int, int], str]] = []
        self._room = MOST_KEPT

    def __enter__(self) -> Self:
        sys.stdout = self  # pyright: ignore[reportAttributeAccessIssue]
        return self

    def __exit__(self, *_: object) -> None:
        """Show what was kept, however the run ends."""
        if sys.stdout is self:
            sys.stdout = self._stream
        self.release()

    def write(self, text: str, /) -> int:
        """Keep what a rank prints, with the time by its clock."""
        rank = self._dist.engine.running()
        # From no rank, or too much to be kept: at once, after what was kept so far.
        if rank is None or self._room < 0:
            self.release()
            return self._stream.write(text)
        self.kept.append(((self._dist.models[rank].program.clock, rank), text))
        self._room -= len(text)
        if self._room < 0:
            self.release()
        return len(text)

    def writelines(self, lines: Any, /) -> None:
        """Keep several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Show nothing yet: other ranks may print something earlier."""

    def release(self) -> None:
        """Show what was kept; after a failure, up to its moment, as its picture does."""
        kept, self.kept = self.kept, []
        if (until := self._dist.until) is not None:
            kept = [one for one in kept if one[0][0] <= until[0]]
        if kept:
            self._stream.write("".join([text for _, text in sorted(kept, key=itemgetter(0))]))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
