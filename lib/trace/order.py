"""Who meets whom in a run: collectives by their number in their group, messages in order for each pair of ranks.

The one place that matches what the programs of several ranks do together, as it stands in them: no time is asked.
`walk` goes through a run step by step by the same rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lib.trace.event import Event, Program
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES, Collective
from lib.values.rules import Member, bring
from lib.values.values import Value

__all__ = ["Communicators", "Passage", "awaited_at_once", "brought_to", "meetings", "member", "messages"]


class Communicators:
    """Numbers process groups. Groups of the same ranks have one number, in whatever order they name them: the same
    links carry what they send, one collective after the other.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, ...], int]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def __call__(self, group: tuple[int, ...]) -> int:
        """The number of a group."""
        known = self._known.get(id(group))
        if known is None:
            number = self._numbers.setdefault(tuple(sorted(group)), len(self._numbers))
            # The group is kept, so that no other one gets its id. Equal groups of many ranks are one object mostly, and
            # a hash of all its ranks for each event would cost more than everything else.
            known = self._known[id(group)] = (group, number)
        return known[1]


def awaited_at_once(run: Trace, program: Program, number: int) -> bool:
    """Whether a rank waits for a communication where it is called, and does nothing else meanwhile.

    A run that failed stopped before it could be told so of the last one: of that it is assumed.
    """
    last = run.error is not None and number == len(program.events) - 1
    return last or program.events[number].blocking


class Passage(NamedTuple):
    """A message: who sent it in which of its events, to whom, and in which event it was received (None: in none)."""

    source: int
    sent: int
    target: int
    received: int | None


def messages(run: Trace) -> list[Passage]:
    """All messages of a run, in the order of their senders' programs. Matched once, and kept with the Trace."""
    return run.once(messages, lambda: _messages(run))


def _messages(run: Trace) -> list[Passage]:
    received: dict[tuple[int, int], list[int]] = defaultdict(list)
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "receive" and event.peer is not None and event.start is not None:
                received[event.peer, program.rank].append(number)
    count: dict[tuple[int, int], int] = defaultdict(int)
    found: list[Passage] = []
    for program in run.programs:
        for number, event in enumerate(program.events):
            if event.op == "pass_to" and event.peer is not None:
                pair = program.rank, event.peer
                taken, place = received.get(pair, ()), count[pair]
                count[pair] = place + 1
                found.append(Passage(program.rank, number, event.peer, taken[place] if place < len(taken) else None))
    return found


def meetings(run: Trace) -> list[list[tuple[int, int]]]:
    """The collectives that took place: for each the rank and the event of its members, in the order of the group.
    Matched once, and kept with the Trace."""
    return run.once(meetings, lambda: list(_meetings(run)))


def _meetings(run: Trace) -> Iterator[list[tuple[int, int]]]:
    communicator = Communicators()
    joined: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for program in run.programs:
        count: dict[int, int] = defaultdict(int)
        for number, event in enumerate(program.events):
            if event.op in COLLECTIVES:
                group = communicator(event.group)
                joined[group, count[group]].append((program.rank, number))
                count[group] += 1
    for members in joined.values():
        rank, number = members[0]
        event = run.programs[rank].events[number]
        if len(members) == len(event.group) and event.start is not None:
            numbers = dict(members)
            yield [(rank, numbers[rank]) for rank in event.group]


def brought_to(run: Trace, members: Sequence[tuple[int, int]]) -> tuple[Collective, list[Any], int]:
    """What members bring to a collective (see `Collective`), in the order of the group, and the place of its root."""
    rank, number = members[0]
    event = run.programs[rank].events[number]
    row = COLLECTIVES[event.op]
    values = [run.programs[rank].values_of(run.programs[rank].events[number].inputs) for rank, number in members]
    return row, row.brought(values), event.arg[0] if event.arg else 0


def member(rank: int, event: Event, values: list[Value], members: int) -> Member:
    """One member's part in a collective of so many, or the RuleError of what it may not bring."""
    row = COLLECTIVES[event.op]
    value: Any = values if row.many else next(iter(values), None)
    bring(row, value, event.layer, members)
    return Member(rank, event.op, event.layer, value, event.arg[0] if row.rooted else 0, event.group)
