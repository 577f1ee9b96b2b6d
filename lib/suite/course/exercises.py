"""Functions for notebooks, besides the check: hint opens hints, predict takes guesses, expect judges exercises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from types import EllipsisType

from lib.analysis import figures
from lib.errors import graded
from lib.errors.wording import amount, these, with_article
from lib.puzzles.puzzle import HINTS
from lib.puzzles.records import PUZZLES
from lib.record import table
from lib.simulator.model import Model
from lib.suite.course.progress import Standing, has_size_of, known, record
from lib.trace.event import STORES
from lib.trace.trace import ModelLike, Trace, absent, trace_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION
from lib.values.values import Value, describe

# -- hints ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hints:
    """The first `opened` hints of a puzzle, as Markdown, which a notebook renders, and which prints as is elsewhere."""

    puzzle: str
    opened: int

    @property
    def body(self) -> str:
        """Return the open hints, each under its number. Empty if there are none."""
        every = enumerate(zip(HINTS, PUZZLES[self.puzzle].hints[: self.opened], strict=False), 1)
        return "\n\n".join(f"**Hint {number}, {kind}**\n\n{text}" for number, (kind, text) in every)

    def onwards(self, call: str) -> str:
        """Say that `call` opens the next hint, or that there are no more."""
        kinds = HINTS[self.opened :]
        return f"The next hint is {kinds[0]}: {call}" if kinds else "These were all the hints."

    @property
    def markdown(self) -> str:
        """Return the open hints, and how to open the next one."""
        call = f"`{_call(self.puzzle, self.opened + 1)}`"
        if not self.opened:
            return f"{len(HINTS)} hints for this puzzle: {', '.join(HINTS)}. To open the first: {call}"
        return f"{self.body}\n\n{self.onwards(call)}"

    def _repr_markdown_(self) -> str:
        return self.markdown

    def __repr__(self) -> str:
        return self.markdown if self.opened else self.markdown.replace("`", "")


def hint(puzzle: str, opened: int = 0) -> Hints:
    """Show the first `opened` hints for a puzzle, or with 0 how to open them. Opening counts as progress. ValueError
    for an unknown puzzle or number."""
    if not isinstance(puzzle, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"the function {puzzle.__name__}" if callable(puzzle) else with_article(type(puzzle).__name__)
        raise ValueError(f"hint takes the name of a puzzle in quotes, such as {_call('ddp', 1)}; got {got}")
    count = len(PUZZLES[puzzle].hints)
    if type(opened) is not int or not 0 <= opened <= count:
        raise ValueError(f"{puzzle} has hints 1 to {count}: {_call(puzzle, 1)} opens the first; got {opened!r}")
    if opened:
        record(puzzle, Standing(hints=opened))
    return Hints(puzzle, opened)


def next_hint(puzzle: str) -> Hints:
    """Return the hints of a puzzle, one more than recorded as open."""
    return hint(puzzle, min(known().get(puzzle, Standing()).hints + 1, len(PUZZLES[puzzle].hints)))


def _call(puzzle: str, opened: int) -> str:
    return f'hint("{puzzle}", {opened})'


# -- predictions ----------------------------------------------------------------------------------------------------

CLOSE = 1e-9  # relative difference between numbers that differ only by rounding


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something to predict. A guess is right within a `share` of the run's value, or within `margin`, in its unit."""

    name: str
    unit: str
    meaning: str
    share: float = CLOSE
    margin: float = CLOSE

    @property
    def label(self) -> str:
        """Return the name, with the unit if there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.unit + ': ' if self.unit else ''}{self.meaning})"

    def text(self, values: Sequence[float], ranks: int) -> str:
        """Return the values in a run of `ranks` ranks, in words."""
        if len(values) == ranks > 1:
            return "all are equal"
        return " or ".join(f"{value:.1f}" if self.unit == "%" else amount(value) for value in values)

    def verdict(self, guess: float, values: Sequence[float]) -> str:
        """Return "right", or how far off it is."""
        if any(abs(guess - value) <= max(self.margin, self.share * abs(value)) for value in values):
            return "right"
        if self.name == "rank":
            return "not this rank"
        nearest = min(values, key=lambda value: abs(guess - value))
        gap = round(abs(guess - nearest), 1 if self.unit == "%" else 4)
        return f"{amount(gap)} too {'high' if guess > nearest else 'low'}"


def measured(trace: Trace) -> dict[str, Sequence[float]]:
    """Return the quantities of a run by name: each is one value, or for a rank any of several."""
    peaks = [0.0 if best is None else float(best[0]) for best in figures.peaks(trace)]

    def most(ops: Collection[str]) -> int:
        return max(sum(event.op in ops for event in program.events) for program in trace.programs)

    return {
        "end": [figures.end(trace)],
        "memory": [max(peaks)],
        "rank": [rank for rank, peak in enumerate(peaks) if peak == max(peaks)],
        "collectives": [most(COLLECTIVES)],
        "messages": [most(["pass_to"])],
        "idle": [100 * figures.bubbles(trace).makespan],
    }


QUANTITIES = table(
    (
        Quantity("end", "time units", "when the last operation is over", share=0.0005),
        Quantity("memory", "elements", "the highest peak of any rank", share=0.01),
        Quantity("rank", "", "the rank with the highest peak; of equals any is right"),
        Quantity("collectives", "", "the most that a rank takes part in"),
        Quantity("messages", "", "the most that a rank passes to others"),
        Quantity("idle", "%", "the share of all ranks' time without computing", margin=1.0),
    )
)
"""Quantities to predict. A guess must be exact, except for an end (within 0.05 %, as people round by hand), memory
(within 1 %) and idle (within 1 percentage point)."""


class Prediction:
    """Guesses about a run that has not happened yet. `against` compares them with the run."""

    def __init__(self, puzzle: str | None, guesses: Mapping[str, float | None]) -> None:
        self.puzzle, self.guesses = puzzle, guesses
        self._counted = False

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {'...' if g is None else amount(g)}" for name, g in self.guesses.items())
        return f"your prediction: {said}; run the next cells, then guess.against(out)"

    def against(self, models: Sequence[ModelLike] | ModelLike | Trace) -> None:
        """Print each guess beside the run's value (from its Models or Trace), and beside the value that the puzzle asks
        for. Counts as progress, once, if the run has its puzzle's size."""
        if (why := absent(models)) is not None:
            print(f"{why}. Your prediction waits.")
            return
        if not isinstance(models, Trace):
            models = Trace.of([*models] if isinstance(models, Sequence) else [models])
        puzzle = self.puzzle if self.puzzle is not None and has_size_of(models, self.puzzle) else None
        asked = {} if puzzle is None else dict(PUZZLES[puzzle].predicts)
        rows = [("", "you said", "asked for", "your run", "") if asked else ("", "you said", "it is", "", "")]
        facts = measured(models)
        for name, guess in self.guesses.items():
            quantity, values = QUANTITIES[name], facts[name]
            own = quantity.text(values, models.ranks) if name in asked else ""
            values = [asked[name]] if name in asked else values
            fact = quantity.text(values, models.ranks)
            said, verdict = ("no guess", "") if guess is None else (amount(guess), quantity.verdict(guess, values))
            rows.append((quantity.label, said, fact, own, verdict))
        one, *widths = (max(len(row[column]) for row in rows) for column in range(4))
        for label, *columns, verdict in rows:
            cells = "".join(f"  {text:>{width}}" for text, width in zip(columns, widths, strict=True) if width)
            print(f"{label:<{one}}{cells}   {verdict}".rstrip())
        verdicts = [verdict for *_, verdict in rows if verdict]
        if puzzle is not None and not self._counted and verdicts:
            self._counted = True
            record(puzzle, Standing(predictions=len(verdicts), right=verdicts.count("right")))


def predict(puzzle: str | None = None, /, **guesses: float | EllipsisType) -> Prediction:
    """Write down a prediction of a run, such as predict("ddp", end=..., memory=1_835_008). `...` means no guess yet.

    The quantities are end (time units), memory (elements on the rank with the highest peak), rank (which that is),
    collectives and messages (the most of any rank), idle (percent). ValueError for any other, or for no number.

    >>> predict("ddp", end=12)
    your prediction: end 12; run the next cells, then guess.against(out)
    """
    if puzzle is not None:
        _ = PUZZLES[puzzle]  # ValueError if there is none
    known = ", ".join(map(str, QUANTITIES.values()))
    if not guesses:
        raise ValueError(f'say what you predict, such as predict("{puzzle or "ddp"}", end=5). There are {known}')
    for name in guesses:
        if name not in QUANTITIES:
            raise ValueError(f"{name!r} cannot be predicted. There are {known}")
    return Prediction(puzzle, {name: _guess(QUANTITIES[name], guess) for name, guess in guesses.items()})


def _guess(quantity: Quantity, guess: object) -> float | None:
    if guess is ...:
        return None
    if not isinstance(guess, int | float) or isinstance(guess, bool) or not isfinite(guess) or guess < 0:
        got = repr(guess) if isinstance(guess, int | float | str) else with_article(type(guess).__name__)
        raise ValueError(f"{quantity} wants a number, or ... for no guess yet; got {got}")
    return guess


# -- exercises ------------------------------------------------------------------------------------------------------


def expect(
    models: Sequence[Model],
    *,
    store: str | None = None,
    layer: int | None = None,
    batches: Iterable[int] | None = None,
    whole: bool = False,
    memory: float | None = None,
    end: float | None = None,
    calls: Iterable[str] = (),
) -> None:
    """Print whether every rank ends with what was asked for; if grading is on, it is an error if not.

    That can be a value in `store`, of this `layer`, with exactly these `batches`, and `whole`, not a shard; `memory`
    elements in its stores at the end; an `end` of the whole run no later than this; and that every rank `calls` these
    operations, uses no other communication, and makes up no second gradient."""
    if store is not None and store not in STORES:
        raise ValueError(f"there is no store {store!r}; there are {', '.join(STORES)}")
    if (why := absent(models)) is not None:
        graded.say_absent(models, f"{why}.")
        return
    trace_of(models, "expect takes the Models that simulate returned")
    checks: list[Callable[[Model], str]] = []
    if store is not None:
        checks.append(partial(_without, store, layer, None if batches is None else frozenset(batches), whole))
    if memory is not None:
        checks.append(partial(_too_full, memory))
    if asked := [*calls]:
        checks.append(partial(_otherwise, asked))
    faults: list[str] = []
    for check in checks:  # for each, the fault of the first rank, and the other ranks with one
        said = {model.rank: text for model in models if (text := check(model))}
        others = f"\n         (and so it is on {these('rank', [*said][1:])})" if len(said) > 1 else ""
        faults += [f"rank {rank} {text}{others}" for rank, text in [*said.items()][:1]]
    last = figures.end(Trace.of([*models]))
    if end is not None and last > end:
        faults.append(f"the run ends at {amount(last)}, and it can end at {amount(end)}")
    graded.say("\n".join(f"Not yet: {fault}" for fault in faults) or "Right!", passed=not faults)


def _without(store: str, layer: int | None, batches: frozenset[int] | None, whole: bool, model: Model) -> str:
    """Say which value a rank lacks, and what it has instead. None allows anything."""
    held: list[Value] = [*getattr(model, store).values()]
    for value in held:
        fits = layer in (None, value.layer) and batches in (None, value.place.batches)
        if fits and (not whole or value.is_complete()):
            return ""
    words = f"{'a whole value' if whole else 'a value'} in {store}"
    words += "" if layer is None else f" of layer {layer}"
    words += "" if batches is None else f" with {these('batch', batches)}"
    return f"should end with {words}{_it_has(held)}"


def _too_full(memory: float, model: Model) -> str:
    held = f"holds {amount(model.memory())} elements in the end, and there should be {amount(memory)}"
    return "" if model.memory() == memory else held + _it_has(v for store in model.storage() for v in store.values())


def _it_has(held: Iterable[Value]) -> str:
    return "\n         it has: " + ("\n                 ".join(map(describe, held)) or "nothing")


def _otherwise(asked: Sequence[str], model: Model) -> str:
    """Say which operation a rank does not call, how else it communicates, or what it makes up."""
    done = [event.op for event in model.program.events]
    if (made := done.count("fake_grad")) > 1:
        return f"makes up {made} gradients, and only its own is given: the others come from the other ranks"
    missing = [op for op in asked if op not in done]
    other = next((op for op in done if op in COMMUNICATION and op not in asked), None)
    if other is not None:
        wanted = [op for op in asked if op in COMMUNICATION]
        return f"calls {other}, and it is to be done with {' and '.join(wanted)} alone"
    return f"never calls {' or '.join(missing)}" if missing else ""
