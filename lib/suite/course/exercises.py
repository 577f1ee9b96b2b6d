"""expect: says of the run of an exercise whether it came out as it should, without an error where it did not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lib.analysis import figures
from lib.errors import graded
from lib.errors.wording import amount, these
from lib.simulator.model import Model
from lib.trace.event import STORES
from lib.trace.trace import Trace, absent, trace_of
from lib.values.operations import COMMUNICATION
from lib.values.values import Value, describe

__all__ = ["expect"]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A value that every rank is to end with. What is None may be anything."""

    store: str
    layer: int | None
    batches: frozenset[int] | None
    whole: bool

    def is_met_by(self, value: Value) -> bool:
        return (
            (self.layer is None or value.layer == self.layer)
            and (self.batches is None or value.place.batches == self.batches)
            and (not self.whole or value.is_complete())
        )

    def __str__(self) -> str:
        parts = ["a whole value" if self.whole else "a value", f"in {self.store}"]
        parts += [] if self.layer is None else [f"of layer {self.layer}"]
        parts += [] if self.batches is None else [f"with {these('batch', self.batches)}"]
        return " ".join(parts)


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
    """Prints whether every rank ends with what was asked for.

    That is a value in `store`, of that layer, with exactly these batches, and `whole`, which is no shard; so many
    elements of `memory` in its stores when it is done; an `end` of the whole run no later than that; and every rank
    `calls` these operations, with no communication beside them. What is not so is an error where that is graded.
    """
    if store is not None and store not in STORES:
        raise ValueError(f"there is no store {store!r}; there are {', '.join(STORES)}")
    if (why := absent(models)) is not None:
        graded.say_absent(models, f"{why}.")
        return
    trace_of(models, "expect takes the Models that simulate returned")
    faults: list[str] = []
    if store is not None:
        wanted = _Wanted(store, layer, None if batches is None else frozenset(batches), whole)
        faults += _of_all(list(_without(models, wanted)))
    if memory is not None:
        faults += _of_all(list(_too_full(models, memory)))
    if asked := [*calls]:
        faults += _of_all(list(_otherwise(models, asked)))
    last = figures.end(Trace.of([*models]))
    if end is not None and last > end:
        faults.append(f"the run ends at {amount(last)}, and it can end at {amount(end)}")
    graded.say("\n".join(f"Not yet: {fault}" for fault in faults) or "Right!", passed=not faults)


def _of_all(faults: Sequence[tuple[int, str]]) -> list[str]:
    """What is wrong on the first of some ranks, and on which others something like it is."""
    if not faults:
        return []
    others = [rank for rank, _ in faults[1:]]
    return [f"{faults[0][1]}" + (f"\n         (and so it is on {these('rank', others)})" if others else "")]


def _without(models: Iterable[Model], wanted: _Wanted) -> Iterator[tuple[int, str]]:
    """The ranks that lack a value, and what they have instead."""
    for model in models:
        held: list[Value] = [*getattr(model, wanted.store).values()]
        if not any(wanted.is_met_by(value) for value in held):
            there = "\n                 ".join(map(describe, held)) or "nothing"
            yield model.rank, f"rank {model.rank} should end with {wanted}\n         it has: {there}"


def _too_full(models: Iterable[Model], memory: float) -> Iterator[tuple[int, str]]:
    """The ranks that hold more than was asked for, or less."""
    for model in models:
        if model.memory() != memory:
            held = f"rank {model.rank} holds {amount(model.memory())} elements in the end"
            there = "\n                 ".join(map(describe, _held(model))) or "nothing"
            yield model.rank, f"{held}, and there should be {amount(memory)}\n         it has: {there}"


def _held(model: Model) -> list[Value]:
    return [value for store in model.storage() for value in store.values()]


def _otherwise(models: Iterable[Model], asked: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The ranks that do not call what they are to call, or communicate in another way."""
    wanted = [op for op in asked if op in COMMUNICATION]
    for model in models:
        done = [event.op for event in model.program.events]
        missing = [op for op in asked if op not in done]
        other = next((op for op in done if op in COMMUNICATION and op not in asked), None)
        if other is not None:
            yield model.rank, f"rank {model.rank} calls {other}, and it is to be done with {' and '.join(wanted)} alone"
        elif missing:
            yield model.rank, f"rank {model.rank} never calls {' or '.join(missing)}"
