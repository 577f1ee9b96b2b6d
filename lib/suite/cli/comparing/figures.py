"""The figures by which runs are compared and sorted: one row each, and everything that shows figures reads the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lib.analysis.figures import bubbles, end, most_sent, peak
from lib.analysis.shares import counts
from lib.errors.wording import amount, exact
from lib.trace.trace import Trace

__all__ = ["FIGURES", "Figure", "best", "figures_of"]


class Figure(NamedTuple):
    """A figure of a run: what it is called, in a word or two and in a sentence; how it is measured, and written.

    Less is better where it is `judged`: then the best of several runs is marked.
    """

    title: str
    means: str
    of: Callable[[Trace], float]
    words: Callable[[float], str] = amount
    judged: bool = True


def _memory(trace: Trace) -> float:
    return float(peak(trace).elements)


def _bubble(trace: Trace) -> float:
    return bubbles(trace).makespan


def _collectives(trace: Trace) -> float:
    return sum(counts(trace).collectives.values())


def _messages(trace: Trace) -> float:
    return counts(trace).messages


FIGURES: Final[Mapping[str, Figure]] = {
    "time": Figure("time", "when the last rank is done, in time units", end, exact),
    "memory": Figure("memory", "elements on the rank with the highest peak", _memory),
    "sent": Figure("sent per rank", "elements that the rank sends that sends most", most_sent),
    "bubble": Figure("bubble", "share of the ranks' time in which nothing is computed", _bubble, "{:.1%}".format),
    "collectives": Figure("collectives", "collectives of the rank that joins most", _collectives, judged=False),
    "messages": Figure("messages", "messages of the rank that passes most", _messages, judged=False),
}


def figures_of(trace: Trace) -> dict[str, float]:
    """All figures of a run, by the names of their rows."""
    return {name: figure.of(trace) for name, figure in FIGURES.items()}


def best(rows: Sequence[Mapping[str, float] | None]) -> dict[str, float]:
    """The lowest of each figure that is judged, where not all runs have the same. None is a run that does not count."""
    found: dict[str, float] = {}
    for name, figure in FIGURES.items():
        every = [round(row[name], 9) for row in rows if row is not None]
        if figure.judged and every and min(every) < max(every):
            found[name] = min(every)
    return found
