"""The Trace: one run as plain data, which everything else reads. Save it, load it, print it, parse it back. And the
form of an answer to a question about it."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from lib.cluster.costs import UNIT, Costs
from lib.errors.source_lines import Place
from lib.errors.wording import is_awaitable
from lib.record import record
from lib.trace.event import Event, Program, Source, place_at
from lib.values.kinds.kind import USUAL
from lib.values.layers import Layer, Shape

if TYPE_CHECKING:
    from pathlib import Path

    from lib.cluster.mesh import Mesh
    from lib.trace.lifetimes import Lifetimes
    from lib.trace.rebuild import Rebuilt

# Modules for files, text and what follows from a Trace are imported on demand, so that `import lib` stays quick.
D = TypeVar("D")
MODELS = "Trace.of takes the Models that simulate returned"

FEW, MANY, MOST_UNSEEN = 5_000, 100_000, 10**6
"""New objects that the collector may go through, which takes a millisecond; the same if some are frozen, when counting
these takes milliseconds; and those that may be counted as old unseen."""
# Objects counted as old unseen since the collector last ran, and whether any were frozen at the last count; if so, how
# many were new then, as counting again for these takes 40 times as long as a small run.
_unseen, _frozen, _asked = 0, False, 0


@contextmanager
def without_collector() -> Generator[None]:
    """Stop the garbage collector while many objects are made, and little garbage: 10^5 ranks run 2.8 times as fast."""
    collecting = gc.isenabled()
    look_for_garbage()
    gc.disable()
    try:
        yield
    finally:
        # If it was off before, it stays off.
        if collecting:
            count_as_old()
            gc.enable()


def count_as_old() -> None:
    """Count all objects as old, so that the collector does not go through them at once, which is 5% of a run."""
    global _unseen, _frozen, _asked
    # Frozen objects stay frozen. Asking means counting them: a kernel, a grader's child and the tests freeze all that
    # they imported, so they are asked a twentieth as often.
    made = gc.get_count()[0]
    _asked = min(_asked, made)
    if made - _asked <= (MANY if _frozen else FEW):
        return
    _frozen = bool(gc.get_freeze_count())
    _asked = made if _frozen else 0
    if not _frozen:
        gc.freeze()
        gc.unfreeze()
        _unseen += made


def freeze() -> None:
    """Keep all present objects for good: the collector never goes through them again, here or in forked processes,
    which need not count them to know it."""
    global _frozen
    gc.collect()
    gc.freeze()
    _frozen = True


def look_for_garbage() -> None:
    """Collect runs that are no longer in use: the collector goes through old objects only when it has seen many become
    old, and these became old unseen."""
    global _unseen
    if _unseen > MOST_UNSEEN and gc.isenabled():
        _unseen = 0
        gc.collect()


def absent(models: object) -> str | None:
    """Return why there is no run in what simulate returned: not solved, or failed. None where there is one."""
    if not isinstance(models, list | tuple) or models:
        return None
    puzzle = getattr(cast("object", models), "puzzle", None)  # a list without Models knows which one is not solved
    return "No run: simulate(...) has not come to its end" if puzzle is None else f"Not solved yet: {puzzle}"


def nothing_to(do: str, models: object, name: str | None = None) -> str | None:
    """Return the words of a picture without a run to draw or to step through. None where there is a run."""
    if absent(models) is None:
        return None
    puzzle = getattr(models, "puzzle", None) or name
    return f"nothing to {do} yet" + (f": {puzzle} is not solved" if puzzle else "")


def trace_of(run: object, who: str) -> Trace:
    """Return the Trace of a Trace, a Model, or the Models of a run. TypeError says that `who` got something else."""
    if isinstance(run, Trace):
        return run
    models = list(cast("Sequence[object]", run)) if isinstance(run, list | tuple) else [run]
    _need_models(models, who)
    try:
        return Trace.of(cast("list[ModelLike]", models))
    except AttributeError as error:  # a Model or its Dist may have any attributes
        raise TypeError(f"{who}, as they are: in these something was replaced ({error})") from None


def _need_models(models: Sequence[object], who: str) -> None:
    """Check that these are Models. TypeError says what else they are, and the likely reason."""
    strange = [one for one in models if not (hasattr(type(one), "program") or hasattr(one, "program"))]
    if not strange:
        return
    thing, hint = strange[0], ""
    if thing is None:
        hint = "; does your function end with `return model`?"
    elif is_awaitable(thing) and (code := getattr(thing, "cr_code", None)) is not None:
        cast("Coroutine[Any, Any, Any]", thing).close()  # else Python complains too
        hint = f"; did you forget `await`? models = simulate({code.co_name}, ...) runs it on every rank"
    elif is_awaitable(thing):
        hint = "; did you forget `await`?"
    elif callable(thing) and (name := getattr(thing, "__name__", None)) is not None:
        hint = f"; run it first: models = simulate({name}, ...)"
    elif isinstance(thing, str) or hasattr(thing, "__fspath__"):
        hint = "; Trace.load(...) reads a saved run"
    raise TypeError(f"{who}; got {type(thing).__name__}{hint}")


def _state(programs: dict[int, Program]) -> dict[int, tuple[Program, object]] | None:
    """Return something that changes whenever a rank records anything; None where a program is not a rank's record."""
    try:
        return {rank: (program, cast("Any", program).state()) for rank, program in programs.items()}
    except Exception:  # a program may have been replaced by anything
        return None


class ModelLike(Protocol):
    """The attributes of a Model that a Trace reads."""

    @property
    def rank(self) -> int: ...
    @property
    def program(self) -> Program: ...
    @property
    def dist(self) -> Any: ...


def kept(work_out: Callable[[Trace], D]) -> Callable[[Trace], D]:
    """Return a function whose answer is worked out once for each Trace and kept with it. Do not change the answer."""

    @wraps(work_out)
    def answer(run: Trace) -> D:
        # The key is the function: two may share a name.
        if answer not in run.answers:
            run.answers[answer] = work_out(run)
        return run.answers[answer]

    return answer


@record(slots=False)
class Trace:
    """One run: its size, its costs, and a program for each rank. `error` is the message of a run that failed. It does
    not change: what follows from it is worked out once (see `kept`).

    `descriptions` are those of the layers, or one for all if they are alike. `padding` is the number of batches after
    the last one that do not belong to the step (see `Shape`).

    >>> async def read(model):
    ...     model.get_activation([0])
    >>> trace = Trace.of(simulate(read))
    >>> Trace.parse(trace.text()).text() == trace.text()
    True
    """

    layers: int
    batches: int
    programs: Sequence[Program]
    costs: Costs = UNIT
    mesh: Mesh | None = None
    sandbox: bool = False
    puzzle: str | None = None
    error: str | None = None
    descriptions: tuple[Layer, ...] = USUAL
    padding: int = 0

    @classmethod
    def of(cls, models: Sequence[ModelLike], error: str | None = None) -> Trace:
        """Return the Trace of a run's Models, in any order; a rank without a Model has an empty program.

        ValueError if there are none, two of one rank, or Models of different worlds.
        """
        _need_models(models if isinstance(models, list | tuple) else [models], MODELS)
        if not models:
            raise ValueError("a Trace needs at least one Model; got none")
        # Sizes are those of the world: a student may have written another class of Model.
        world = models[0].dist
        # On shared links, unawaited communication may end after the last rank; its times are part of the run.
        if (settle := getattr(world, "settle", None)) is not None:
            settle()
        programs = {model.rank: model.program for model in models}
        if len(programs) != len(models) or any(model.dist is not world for model in models):
            raise ValueError("the Models of one run have one Dist and different ranks; these do not")
        # A run that is over is guessed, drawn, reviewed, compared. While nothing more is recorded, it is one Trace, and
        # what follows from it is worked out once. A check believes none of that (see `rebuilt`).
        over = error is None and getattr(world, "function", None) is not None
        state = _state(programs) if over else None
        if state is not None and world.taken is not None and world.taken[0] == state:
            return world.taken[1]
        # Copies: further operations, as in a notebook, must not change a Trace taken before.
        every = [Program.of(programs.get(rank) or Program(rank)) for rank in range(world.ranks)]
        shape, puzzle = world.shape, getattr(world, "puzzle", None)
        setting = world.costs, world.mesh, world.sandbox, puzzle, error
        made = cls(shape.layers, shape.batches, every, *setting, shape.descriptions, shape.padding)
        if state is not None:
            world.taken = state, made
        return made

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.programs)

    @cached_property
    def shape(self) -> Shape:
        """The size of the training step, with tables of places."""
        return Shape(self.layers, self.batches, self.descriptions, self.padding)

    @cached_property
    def answers(self) -> dict[object, Any]:
        """The answers of the functions that `kept` made."""
        return {}

    def events(self) -> Iterator[tuple[int, Event]]:
        """Yield every event with its rank, rank by rank in program order."""
        for program in self.programs:
            for event in program.events:
                yield program.rank, event

    def place(self, event: Event) -> Place | None:
        """Return the student's source line of an event, where it is known."""
        return self.line(event.source)

    def line(self, source: Source) -> Place | None:
        """Return the line of an event's source: looked up once, however many events share it."""
        # By id: the hash of a code object goes through all of it, and events keep theirs alive.
        key: Any = (id(source[0]), source[1]) if type(source) is tuple else source
        if key not in self._places:
            self._places[key] = place_at(source)
        return self._places[key]

    @cached_property
    def _places(self) -> dict[Any, Place | None]:
        return {}

    @kept
    def lifetimes(self) -> list[Lifetimes]:
        """Return how long the values of each rank live (see `lib.trace.lifetimes`)."""
        from lib.trace.lifetimes import lifetimes

        return lifetimes(self)

    @kept
    def rebuilt(self) -> Rebuilt:
        """Return the run worked out anew (see `lib.trace.rebuild`). PuzzleError or TraceError if that is impossible. A
        check rebuilds for itself, and believes nothing that is kept."""
        from lib.trace.rebuild import rebuild

        return rebuild(self)

    def normalised(self, costs: Costs | None = None) -> Trace:
        """Return this Trace with all values and times worked out anew, at its own costs or at others: what a verdict is
        about. PuzzleError or TraceError if that is impossible."""
        from lib.trace.retiming import retime

        costs = self.costs if costs is None else costs
        if costs not in self._timed:
            run = self.rebuilt().run
            run = self._timed[costs] = run if costs == run.costs else retime(run, costs)
            run._timed[costs] = run  # of itself it is that already
        return self._timed[costs]

    @cached_property
    def _timed(self) -> dict[Costs, Trace]:
        return {}

    def save(self, path: str | Path) -> None:
        """Write the Trace as JSON, all of it or nothing."""
        from lib.trace import json_format

        json_format.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote. TraceError where the file is anything else, damaged or too large."""
        from lib.trace import json_format

        return json_format.read(path)

    def text(self) -> str:
        """Return the schedule as text, one line a rank: see `lib.trace.text_format`. Source lines are left out."""
        from lib.trace.text_format import to_text

        return to_text(self)

    @classmethod
    def parse(cls, source: str) -> Trace:
        """Return the Trace that `text` printed, with the times that its costs give. TraceError says what is wrong."""
        from lib.trace.text_format import from_text

        if not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Trace.parse takes the text that trace.text() gives; got {type(source).__name__}")
        return from_text(source)

    def __repr__(self) -> str:
        return f"<Trace of {self.ranks} ranks, {self.layers} layers, {self.batches} batches>"


# -- answers ----------------------------------------------------------------------------------------------------------


class Answer(ABC):
    """The answer to a question about a run: a sentence, lines below it, and an end.

    Printed it is all of that; notebooks show a picture.
    """

    __slots__ = ()

    @abstractmethod
    def head(self) -> str:
        """Answer in a sentence or two."""

    def lines(self) -> Iterable[str]:
        """Yield the lines of the answer, without indent."""
        return ()

    def ends(self) -> Iterable[str]:
        """Yield what comes below the lines."""
        return ()

    def text(self) -> str:
        """Return all of it in words."""
        return "\n".join([self.head(), *(f"  {line}" for line in self.lines()), *self.ends()])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:  # what is shown where nothing can draw, instead of a whole Trace
        return self.text()


def asked(models: Trace | Sequence[ModelLike], question: str) -> Trace | None:
    """Return the Trace that a question is about; None where there is no run, after printing why."""
    if (missing := absent(models)) is not None:
        print(f"{missing}.")
        return None
    return trace_of(models, f"{question} takes the Models that simulate returned, or a Trace")
