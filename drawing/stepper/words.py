"""What the page says of an event: which part of a tensor it is about, and in an exchange who gives what to whom."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from lib.analysis.dependencies import slowed
from lib.analysis.event_words import event_words
from lib.errors.wording import numbered, ranges
from lib.trace.order import meetings
from lib.trace.trace import Program, Trace, kept
from lib.values.collectives import COLLECTIVES
from lib.values.dims import DIMS
from lib.values.placement import Place
from lib.values.values import Activation, ActivationGrad, Value

__all__ = ["Gift", "gifts", "words_of"]

FEW: Final = 2
"""Gifts for each member of an exchange that are told and drawn one by one; of more there would be a thicket."""


class Gift(NamedTuple):
    """What one member of an exchange gives another: rank and event of the one and of the other."""

    source: int
    sent: int
    target: int
    received: int
    value: Value


@kept
def gifts(run: Trace) -> list[Gift]:
    """Who gives what to whom in each exchange of lists, such as an exchange of halos, in which few have anything for
    each other. What is empty, or stays where it is, is no gift."""
    found: list[Gift] = []
    for members in meetings(run):
        rank, number = members[0]
        row, given = COLLECTIVES[run.programs[rank].events[number].op], list[Gift]()
        for place, (source, sent) in enumerate(members) if row.many and not row.bucket else ():
            program = run.programs[source]
            targets = range(len(members)) if row.origins is None else row.origins(place, len(members), 0)
            for at, value in zip(targets, program.values_of(program.events[sent].inputs), strict=False):
                if at != place and value.elements():
                    given.append(Gift(source, sent, *members[at], value))
        found += given if len(given) <= FEW * len(members) else []
    return found


@kept
def _told(run: Trace) -> dict[tuple[int, int], str]:
    """By rank and event of an exchange, what the rank gives and gets."""
    gives, gets = (defaultdict[tuple[int, int], list[str]](list) for _ in range(2))
    for source, sent, target, received, value in gifts(run):
        words = _part(value.place) or str(value)
        words = f"the gradient of {words}" if isinstance(value, ActivationGrad) else words
        gives[source, sent].append(f"{words} to rank {target}")
        gets[target, received].append(f"{words} from rank {source}")
    found = {at: f"gives {', '.join(words)}" for at, words in gives.items()}
    for at, words in gets.items():
        found[at] = f"{found[at]}; gets " if at in found else "gets "
        found[at] += ", ".join(words)
    return found


def words_of(trace: Trace, program: Program, number: int) -> str:
    """An event in words, and why it was slow."""
    event = program.events[number]
    if event.op == "wait" and event.arg:
        return f"wait for {_about(trace, program, event.arg[0])}"
    why = slowed(trace, program.rank, number)
    return _about(trace, program, number) + (f"; {why}" if why else "")


def _about(trace: Trace, program: Program, number: int) -> str:
    """An event in words, with who is given what in it, or with the part of an activation that it is about."""
    event = program.events[number]
    words = event_words(event, trace.ranks)
    if (told := _told(trace).get((program.rank, number))) is not None:
        return f"{words}: {told}"
    values = program.values_of(event.outputs) or program.values_of(event.inputs)
    parts = {_part(value.place) for value in values if isinstance(value, Activation | ActivationGrad)}
    return ", ".join([words, *filter(None, parts)]) if len(parts) == 1 else words


def _part(place: Place) -> str:
    """Which part of an activation, in words, but for its batches: "rows 4-11"."""
    words: list[str] = []
    for role, pieces, grid in place.rest:
        kind = DIMS[role]
        if not pieces and not kind.partial:
            words.append(f"no {kind.plural}")
        elif not kind.partial:
            words.append(numbered(kind.noun, pieces) if kind.counted else f"{kind.plural} {ranges(pieces)} of {grid}")
    return ", ".join(words)
