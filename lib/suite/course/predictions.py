"""predict: say what a run will give before you see it, and compare when it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from types import EllipsisType
from typing import NamedTuple

from lib.analysis import figures
from lib.errors.wording import amount, with_article
from lib.puzzles.records import PUZZLES
from lib.trace.trace import ModelLike, Trace, absent
from lib.values.collectives import COLLECTIVES

__all__ = ["QUANTITIES", "Prediction", "predict"]

CLOSE = 1e-9
"""Relative difference between numbers that are the same but for rounding."""


class Fact(NamedTuple):
    """What the simulator says of a quantity: a number, or for a rank any of several."""

    values: tuple[float, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something to predict. A guess is right within `share` of the fact, or within `margin`, in its unit."""

    name: str
    unit: str
    meaning: str
    measure: Callable[[Trace], Fact]
    share: float = CLOSE
    margin: float = CLOSE

    @property
    def label(self) -> str:
        """Its name, with the unit where it has one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.unit + ': ' if self.unit else ''}{self.meaning})"

    def verdict(self, guess: float, fact: Fact) -> str:
        """ "right", or how far the guess is off."""
        if any(abs(guess - value) <= max(self.margin, self.share * abs(value)) for value in fact.values):
            return "right"
        if self.name == "rank":
            return "not this rank"
        nearest = min(fact.values, key=lambda value: abs(guess - value))
        gap = abs(guess - nearest)
        gap = round(gap, 1) if self.unit == "%" else float(f"{gap:.4g}")
        return f"{amount(gap)} too {'high' if guess > nearest else 'low'}"


def _fact(value: float) -> Fact:
    return Fact((value,), amount(value))


def _end(trace: Trace) -> Fact:
    return _fact(figures.end(trace))


def _peaks(trace: Trace) -> list[float]:
    """The peak memory of each rank."""
    return [
        max((float(sample.total) for sample in figures.samples(trace, rank)), default=0.0)
        for rank in range(trace.ranks)
    ]


def _memory(trace: Trace) -> Fact:
    return _fact(max(_peaks(trace)))


def _rank(trace: Trace) -> Fact:
    peaks = _peaks(trace)
    highest = [rank for rank, peak in enumerate(peaks) if peak == max(peaks)]
    if len(highest) == len(peaks) and len(peaks) > 1:
        return Fact(tuple(highest), "all are equal")
    return Fact(tuple(highest), " or ".join(map(str, highest)))


def _collectives(trace: Trace) -> Fact:
    return _fact(max(sum(event.op in COLLECTIVES for event in program.events) for program in trace.programs))


def _messages(trace: Trace) -> Fact:
    return _fact(max(sum(event.op == "pass_to" for event in program.events) for program in trace.programs))


def _idle(trace: Trace) -> Fact:
    share = 100 * figures.bubbles(trace).makespan
    return Fact((share,), f"{share:.1f}")


QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("end", "time units", "when the last operation is over", _end),
        Quantity("memory", "elements", "the highest peak of any rank", _memory, share=0.01),
        Quantity("rank", "", "the rank with the highest peak; of equals any is right", _rank),
        Quantity("collectives", "", "the most that a rank takes part in", _collectives),
        Quantity("messages", "", "the most that a rank passes to others", _messages),
        Quantity("idle", "%", "the share of all ranks' time without computing", _idle, margin=1.0),
    )
}
"""What can be predicted. A guess is right when it is exact, for memory within 1 %, for idle within 1 percent point."""


class Prediction:
    """Guesses about a run that has not happened yet. `against` compares them with one."""

    def __init__(self, puzzle: str | None, guesses: Mapping[str, float | None]) -> None:
        self.puzzle = puzzle
        self.guesses = dict(guesses)
        self._counted = False

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {'...' if g is None else amount(g)}" for name, g in self.guesses.items())
        return f"your prediction: {said}; run the next cells, then guess.against(out)"

    def against(self, models: Sequence[ModelLike] | ModelLike | Trace) -> None:
        """Prints each guess beside what the simulator says of a run (its Models, or its Trace).

        Counts as progress, once, where the run has its puzzle's size.
        """
        if (why := absent(models)) is not None:
            print(f"{why}. Your prediction waits.")
            return
        if not isinstance(models, Trace):
            models = Trace.of([*models] if isinstance(models, Sequence) else [models])
        rows: list[tuple[str, str, str, str]] = []
        for name, guess in self.guesses.items():
            quantity, fact = QUANTITIES[name], QUANTITIES[name].measure(models)
            said, verdict = ("no guess", "") if guess is None else (amount(guess), quantity.verdict(guess, fact))
            rows.append((quantity.label, said, fact.text, verdict))
        print(_table(rows))
        verdicts = [verdict for *_, verdict in rows if verdict]
        self._count(models, len(verdicts), verdicts.count("right"))

    def _count(self, trace: Trace, made: int, right: int) -> None:
        if self.puzzle is None or self._counted or not made:
            return
        from lib.suite.course.progress import has_size_of, predicted  # here and not above: `import lib` should be quick

        if has_size_of(trace, self.puzzle):
            self._counted = True
            predicted(self.puzzle, made, right)


def _table(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """What was said and what is, in columns."""
    head = ("", "you said", "it is", "")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {said:>{widths[1]}}  {fact:>{widths[2]}}   {verdict}".rstrip()
        for name, said, fact, verdict in (head, *rows)
    ]
    return "\n".join(lines)


def predict(puzzle: str | None = None, /, **guesses: float | EllipsisType) -> Prediction:
    """A prediction of a run, such as predict("ddp", end=..., memory=1_835_008). `...` means no guess yet.

    The quantities are end (time units), memory (elements on the rank with the highest peak), rank (which that is),
    collectives and messages (the most of any rank), idle (percent). ValueError for another, or for what is no number.
    """
    if puzzle is not None and puzzle not in [*PUZZLES]:
        raise ValueError(f"there is no puzzle {puzzle!r}; there are {', '.join(PUZZLES)}")
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
