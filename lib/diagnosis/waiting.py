"""Waiting ranks: what each of them waits for, in words, and what would let it go on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from lib.diagnosis.collectives import ALONG_LAYERS
from lib.diagnosis.running import World
from lib.errors.source_lines import Place, resolve
from lib.errors.wording import listed, these
from lib.trace.event import Event, Program
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION

__all__ = ["States", "Waits", "wants"]

ONE_BY_ONE = 8
"""Ranks that have a line each; of more, those in the same state have one together."""
SHOWN = 16
"""Lines about ranks; those without one are counted."""


def describe(subject: Any, rank: int, whom: str | None = None) -> str:
    """Tell what a rank waits for. `whom` is what to call the other rank of a message, where that is not its number."""
    match subject.kind:
        case "collective":
            call, group = subject.member(rank), subject.group
            ranks = zip(group.communicator.ranks, subject.members, strict=True)
            came, left = [r for r, member in ranks if member is not None], subject.awaits(rank)
            whose = f" of group {listed(group.ranks)}" if group.partial else ""
            called = f"{COLLECTIVES[call.op].title} #{subject.number + 1}{whose}, layer {call.layer}"
            return f"waits in {called}: {these('rank', came)} came, {these('rank', left)} did not"
        case "pass":
            whom = whom or f"rank {subject.event.peer}"
            return f"waits for room to pass to {whom}, which has not received the last message yet"
        case "receive":
            whom = whom or ("any rank" if subject.source is None else f"rank {subject.source}")
            return f"waits to receive from {whom}"
        case "read":
            return f"waits for the reader of its process, for {these('batch', subject.batches)}"
        case _:
            return f"waits for {subject.thing}"


def wants(subject: Any, rank: int) -> str:
    """Tell what would let a rank go on."""
    match subject.kind:
        case "collective":
            call = subject.member(rank)
            return f"{these('rank', subject.awaits(rank))} to call model.{call.op}(..., {call.layer}) as well"
        case "pass":
            return f"rank {subject.event.peer} to call model.receive({rank})"
        case "receive":
            sender = "a rank" if subject.source is None else f"rank {subject.source}"
            return f"{sender} to call model.pass_to({rank}, ...)"
        case "read":
            return f"the reader of rank {rank}'s process to read {these('batch', subject.batches)}"
        case _:
            return f"another task to end what rank {rank} waits for: {subject.thing}"


class Waits(dict[int, Any]):
    """The waits of all parked ranks, in the order of ranks: the subject of each.

    Ten thousand ranks may wait in one meeting, or each for any rank: what concerns all of them is worked out once.
    """

    def __init__(self, dist: World) -> None:
        super().__init__()
        for rank, signal in dist.engine.parked():
            self.setdefault(rank, signal.subject)  # a rank with several tasks may wait for several things
        self._lists: dict[int, list[int]] = {}
        self._first = list(islice(self, 2))
        wild = [rank for rank, subject in self.items() if _is_wild(subject)]
        others = [r for r in range(dist.ranks) if r not in self]
        self.over: set[int] = set(others) if wild else set()
        """Ranks that somebody waits for and that wait for nobody."""
        for rank in {id(subject): rank for rank, subject in self.items() if not _is_wild(subject)}.values():
            self.over.update(r for r in self.awaits(rank) if r not in self)
        self._over_in: dict[int, bool] = {}
        self._following: dict[int, int | None] = {}

    def awaits(self, rank: int) -> list[int]:
        """The ranks that a rank waits for."""
        subject = self[rank]
        if subject.kind != "collective":
            return subject.awaits(rank)
        if id(subject) not in self._lists:
            self._lists[id(subject)] = subject.awaits(rank)
        return self._lists[id(subject)]

    def awaits_over(self, rank: int) -> bool:
        """Tell whether a rank waits for one that waits for nobody."""
        subject = self[rank]
        if _is_wild(subject):
            return bool(self.over)
        if id(subject) not in self._over_in:
            self._over_in[id(subject)] = any(r in self.over for r in self.awaits(rank))
        return self._over_in[id(subject)]

    def following(self, rank: int) -> int | None:
        """The first of the ranks that a rank waits for that waits itself."""
        if _is_wild(self[rank]):
            return next((r for r in self._first if r != rank), None)
        subject = id(self[rank])
        if subject not in self._following:
            self._following[subject] = next((r for r in self.awaits(rank) if r in self), None)
        return self._following[subject]


def _is_wild(subject: Any) -> bool:
    """Tell whether it is a receive from any rank."""
    return subject.kind == "receive" and subject.source is None


class States:
    """The states of the ranks of a run, in words: one line a rank, or of many ranks one line a state."""

    def __init__(self, dist: World, waits: Waits) -> None:
        self.dist = dist
        self.waits = waits
        self.shown: list[int] = []
        """The ranks that wait and have a line."""
        self._places: dict[Any, Place | None] = {}
        self._meetings: dict[int, str] = {}

    def lines(self) -> list[str]:
        """The lines, of those that wait first of all, since they say more than those that are through."""
        ranks = range(self.dist.ranks)
        if len(ranks) <= ONE_BY_ONE:
            self.shown = list(self.waits)
            return [f"{self.called([rank])} {self.state(rank)}" for rank in ranks]
        groups = self.groups()
        first = sorted(groups, key=lambda item: (item[1][0] not in self.waits, item[1][0]))[:SHOWN]
        first.sort(key=lambda item: item[1][0])
        self.shown = sorted(rank for _, members in first for rank in members if rank in self.waits)
        lines = [f"{self.called(members)} {state if len(members) == 1 else _plural(state)}" for state, members in first]
        left = len(ranks) - sum(len(members) for _, members in first)
        return [*lines, f"and {left} more ranks"] if left else lines

    def called(self, members: Sequence[int]) -> str:
        """Ranks by their numbers, with the coordinates that they share in a mesh: "ranks 4, 8, 12 (stage 0)"."""
        place = "" if self.dist.mesh is None else self.dist.mesh.shared(members)
        return these("rank", members) + (f" ({place})" if place else "")

    def groups(self) -> list[tuple[str, list[int]]]:
        """Ranks by their state: those that wait for one and the same, and those that wait for their neighbour."""
        alike: dict[str, list[int]] = {}
        for rank in range(self.dist.ranks):
            alike.setdefault(self.state(rank), []).append(rank)
        single = {members[0]: state for state, members in alike.items() if len(members) == 1}
        found = [(state, members) for state, members in alike.items() if len(members) > 1]
        beside: dict[str, list[int]] = {}
        for rank, state in single.items():
            whom = self.neighbour(rank)
            beside.setdefault(state if whom is None else self.state(rank, whom), []).append(rank)
        for state, members in beside.items():
            found.append((single[members[0]] if len(members) == 1 else state, members))
        return found

    def state(self, rank: int, whom: str | None = None) -> str:
        """Tell what one rank is doing. `whom` is what to call the rank that it waits for."""
        if rank in self.waits:
            subject = self.waits[rank]
            if subject.kind == "collective":
                if id(subject) not in self._meetings:
                    self._meetings[id(subject)] = describe(subject, rank)
                said = self._meetings[id(subject)]
            else:
                said = describe(subject, rank, whom)
            found = self.place(rank)
            return said + ("" if found is None else f" (line {found.line})")
        if rank not in self.dist.models:
            return (
                f"does not exist: Model(rank={rank}, dist=dist) was never made"
                if self.dist.ranks <= ONE_BY_ONE
                else NOBODY
            )
        if rank in self.dist.engine.finished:
            return "has finished"
        program = self.dist.models[rank].program  # no task is known to step this rank any more
        return "has finished" if program.events or program.moves else "has not begun, or is over"

    def place(self, rank: int) -> Place | None:
        """The line in which a rank waits."""
        if self.waits[rank].kind == "elsewhere":
            return self.waits[rank].where
        source = _last(self.dist.models[rank].program).source
        if source not in self._places:
            self._places[source] = source if source is None or isinstance(source, Place) else resolve(*source)
        return self._places[source]

    def neighbour(self, rank: int) -> str | None:
        """Name the rank that a rank waits for by its direction, where it stands beside it: "the stage before"."""
        subject = self.waits.get(rank)
        if subject is None or subject.kind not in ("receive", "pass") or _is_wild(subject):
            return None
        (peer,) = subject.awaits(rank)
        if self.dist.mesh is not None:
            here, there = self.dist.mesh.coordinates(rank), self.dist.mesh.coordinates(peer)
            axes = [axis for axis in here if here[axis] != there[axis]]
            step = there[axes[0]] - here[axes[0]] if len(axes) == 1 else 0
            if abs(step) == 1:
                word = "stage" if axes[0] in ALONG_LAYERS else "rank"
                along = "" if axes[0] in ALONG_LAYERS or len(here) == 1 else f" along {axes[0]!r}"
                return f"the {word} {'before' if step < 0 else 'after'}{along}"
        if abs(peer - rank) == 1:
            return f"the rank {'before' if peer < rank else 'after'}"
        return None


NOBODY = "does not exist: its Model was never made"


def _plural(state: str) -> str:
    """Put the state of one rank as that of several: "waits to receive" -> "wait to receive"."""
    for one, many in (
        ("waits ", "wait "),
        ("has finished", "have finished"),
        ("has not begun, or is over", "have not begun, or are over"),
        (NOBODY, "do not exist: their Models were never made"),
    ):
        if state.startswith(one):
            return many + state.removeprefix(one)
    return state


def _last(program: Program) -> Event:
    """The communication that a parked rank is in: the first that has not happened, else its last one."""
    communication = [e for e in program.events if e.op in COMMUNICATION]
    return next((e for e in communication if e.start is None), communication[-1])
