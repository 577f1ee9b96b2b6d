"""Deadlocks and other ways a run ends: the state of every rank, the cycle of waiting, and the likely reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any

from lib.diagnosis import Advice, Line, because, line
from lib.diagnosis.groups import ALONG_LAYERS, stage_axis
from lib.diagnosis.provenance import layers_of, line_of, maker, named
from lib.diagnosis.python_errors import asleep, failed, waiting_at
from lib.errors import fixes
from lib.errors.exceptions import DeadlockError, PuzzleError, RankFailed
from lib.errors.source_lines import Place, resolve
from lib.errors.wording import counted, listed, these
from lib.trace.event import place_of
from lib.values.collectives import COLLECTIVES
from lib.values.operations import BY_INPUT, COMMUNICATION, COMPUTE
from lib.values.values import Activation, ActivationGrad

if TYPE_CHECKING:
    from lib.simulator.dist import Dist

__all__ = ["on_failed", "on_spinning", "on_stuck", "rank_failed"]

MOST_IN_RING = 16
"""The most ranks of a ring that a message names."""
ONE_BY_ONE = 8
"""The most ranks that get a line each; if there are more, ranks in the same state share one."""
SHOWN = 16
"""The most lines about ranks; ranks without one are counted."""
NEVER_MADE = "does not exist: its Model was never made"
OF_SEVERAL = {
    **{"waits ": "wait ", "has finished": "have finished", "has not begun, or is over": "have not begun, or are over"},
    NEVER_MADE: "do not exist: their Models were never made",
}


# -- a rank that failed -------------------------------------------------------------------------------------------


def rank_failed(dist: Dist, rank: int | None, error: BaseException | None) -> RankFailed:
    """Return the error of a run in which one rank raised: for that rank, and for those that wait for it."""
    if error is None or not isinstance(error, PuzzleError):
        found = failed(rank, error or RuntimeError("a rank stopped"))
        found.named = None if dist.mesh is None or rank is None else dist.mesh.named(rank)
        return found
    who = "another rank" if error.rank is None else error.named or f"rank {error.rank}"
    what = f"{who} failed, so no rank can go on: {error.what}"
    return RankFailed(what, expected=error.expected, got=error.got, fix=error.fix, where=error.where, idea=error.idea)


def on_failed(dist: Dist, rank: int, error: BaseException) -> None:
    """Record that a rank's asyncio task raised, with a note on the error that says what it means."""
    if isinstance(error, PuzzleError) or (dist.failure is not None and dist.failure.rank != rank):
        return
    if dist.failure is None:
        dist.failure = rank_failed(dist, rank, error)
        dist.failure.trace = dist.so_far(str(dist.failure))
    error.add_note(str(dist.failure))
    with suppress(AttributeError):  # an error with slots cannot hold it
        error.trace = dist.failure.trace  # type: ignore[attr-defined]  # for notebooks to draw


def on_spinning(dist: Dist, rank: int, task: Any, turns: int) -> PuzzleError | None:
    """Return the error that ends an asyncio task which polls forever; None for a task that is not the rank's alone,
    such as the one in which a notebook runs its cells."""
    model, frame = dist.models.get(rank), getattr(task.get_coro(), "cr_frame", None)
    if model is None or frame is None or not any(value is model for value in frame.f_locals.values()):
        return None
    error = asleep(rank, waiting_at(task.get_coro()), turns)
    error.trace = dist.so_far(str(error))
    return error


# -- no rank can go on --------------------------------------------------------------------------------------------


def on_stuck(dist: Dist) -> Callable[[], PuzzleError] | None:
    """Return a function that makes the error for each waiting rank; None while some task may still move by itself."""
    tasks: dict[int, Any] = dist.driver.tasks
    if tasks and _may_still_move(dist, dist.driver):
        return None
    waits = Waits(dist)
    over = [(rank, task) for rank, task in sorted(tasks.items()) if task.done() and not task.cancelled()]
    raised = next(((rank, error) for rank, task in over if (error := task.exception()) is not None), None)
    failure = dist.failure
    made: list[PuzzleError] = []

    def make() -> PuzzleError:
        if made:  # each task gets its own error and traceback; the text is made once
            return copy(made[0])
        if failure is not None or raised is not None:
            found: PuzzleError = rank_failed(dist, *(raised or (None, failure)))
        else:
            # A collective whose members disagree explains more than the deadlock that it causes.
            subjects = {id(subject): subject for subject in waits.values() if hasattr(subject, "disagreement")}
            errors = (subject.disagreement() for subject in subjects.values())
            found = next((error for error in errors if error is not None), None) or _deadlock(dist, waits)
        found.trace = dist.so_far(str(found))
        dist.failure = found
        fixes.keep(found)
        made.append(found)
        return found

    return make


def _may_still_move(dist: Dist, driver: Any) -> bool:
    """Tell whether a rank that is not parked has an unfinished task, which sleeps or awaits something of its own."""
    engine, tasks = dist.engine, driver.tasks
    parked = {rank for rank, _ in engine.parked()}
    waiting = {tasks[rank] for rank in parked if rank in tasks}  # one task may step several ranks
    holders: dict[int, Any] | None = None
    moving = False
    for rank, model in dist.models.items():
        if rank in parked or rank in engine.finished:
            continue
        if (task := tasks.get(rank)) is None:
            holders = _holders() if holders is None else holders
            task = holders.get(id(model))
            if task is not None:
                driver.adopt(rank, task)
        moving = moving or (task is not None and task not in waiting and not task.done())
    return moving


def _holders() -> dict[int, Any]:
    """Return the tasks of the loop, by the id of each object in their functions' variables."""
    import asyncio

    found: dict[int, Any] = {}
    for task in asyncio.all_tasks():
        if (frame := getattr(task.get_coro(), "cr_frame", None)) is not None:
            found.update((id(value), task) for value in frame.f_locals.values())
    return found


def _deadlock(dist: Dist, waits: Waits) -> DeadlockError:
    cycle, what = waits.cycle(), "deadlock: no rank can go on"
    if cycle:
        ring = [str(rank) for rank in [*cycle, cycle[0]]]
        if len(ring) > MOST_IN_RING:
            ring[MOST_IN_RING // 2 : -2] = ["..."]
        what = f"deadlock: these ranks wait for each other: {' -> '.join(ring)}"
    first = cycle[0] if cycle else next((rank for rank in waits if waits.awaits_over(rank)), next(iter(waits)))
    states = _States(dist, waits)
    advice, wanted = next(_goes_nowhere(dist, waits), None), None
    if advice is None:  # else the wait itself is the mistake, and nothing should end it
        advice, (_, wanted) = next(_reasons(dist, waits, cycle)), _told(waits[first], first)
    idea, fix = advice if isinstance(advice, Line) else (None, advice)
    error = DeadlockError(what, expected=wanted, got="\n".join(states.lines()), fix=fix, idea=idea)
    error.where += [(rank, place) for rank in states.shown if (place := states.place(rank)) is not None]
    return error


# -- what the ranks wait for --------------------------------------------------------------------------------------


def _told(subject: Any, rank: int, whom: str | None = None) -> tuple[str, str]:
    """Say what a rank waits for, and what would let it go on. `whom`: what to call the other rank, if not by number."""
    match subject.kind:
        case "collective":
            call, group = subject.member(rank), subject.group
            ranks = zip(group.communicator.ranks, subject.members, strict=True)
            came = these("rank", [r for r, member in ranks if member is not None])
            left = these("rank", subject.awaits(rank))
            whose = f" of group {listed(group.ranks)}" if group.partial else ""
            called = f"{COLLECTIVES[call.op].title} #{subject.number + 1}{whose}, layer {call.layer}"
            wanted = f"{left} to call model.{call.op}(..., {call.layer}) as well"
            return f"waits in {called}: {came} came, {left} did not", wanted
        case "pass":
            peer = f"rank {subject.event.peer}"
            said = f"waits for room to pass to {whom or peer}, which has not received the last message yet"
            return said, f"{peer} to call model.receive({rank})"
        case "receive":
            source, sender = "any rank", "a rank"
            if subject.source is not None:
                source = sender = f"rank {subject.source}"
            return f"waits to receive from {whom or source}", f"{sender} to call model.pass_to({rank}, ...)"
        case "read":
            batches = these("batch", subject.batches)
            said = f"waits for the reader of its process, for {batches}"
            return said, f"the reader of rank {rank}'s process to read {batches}"
        case _:
            thing = subject.thing
            return f"waits for {thing}", f"another task to end what rank {rank} waits for: {thing}"


class Waits(dict[int, Any]):
    """The waits of all parked ranks, in order of rank: the subject of each.

    Ten thousand ranks may wait in one meeting, or for any rank: what they have in common is worked out once.
    """

    def __init__(self, dist: Dist) -> None:
        super().__init__()
        for rank, signal in dist.engine.parked():
            self.setdefault(rank, signal.subject)  # a rank with several tasks may wait for several things
        self._first = list(islice(self, 2))
        one_each = {id(subject): (rank, subject) for rank, subject in self.items() if not _is_wild(subject)}
        self._awaited: dict[int, list[int]] = {key: subject.awaits(rank) for key, (rank, subject) in one_each.items()}
        self.over = {rank for awaited in self._awaited.values() for rank in awaited if rank not in self}
        """Ranks that are waited for, but do not wait themselves."""
        if any(_is_wild(subject) for subject in self.values()):
            self.over.update(rank for rank in range(dist.ranks) if rank not in self)
        awaited = self._awaited.items()
        self._awaits_over = {key: not self.over.isdisjoint(ranks) for key, ranks in awaited}
        self._following = {key: next((rank for rank in ranks if rank in self), None) for key, ranks in awaited}

    def awaits(self, rank: int) -> list[int]:
        """Return the ranks that a rank waits for."""
        subject = self[rank]
        return subject.awaits(rank) if _is_wild(subject) else self._awaited[id(subject)]

    def awaits_over(self, rank: int) -> bool:
        """Tell whether a rank waits for one that does not wait itself."""
        return self._awaits_over.get(id(self[rank]), bool(self.over))  # a receive from any rank: is there such a rank?

    def following(self, rank: int) -> int | None:
        """Return the first rank that a rank waits for and that waits itself."""
        if _is_wild(self[rank]):
            return next((r for r in self._first if r != rank), None)
        return self._following[id(self[rank])]

    def cycle(self) -> list[int]:
        """Return ranks that wait for each other in a ring, from the lowest on; empty if there is no ring."""
        seen: set[int] = set()
        for first in self:
            path: dict[int, int] = {}
            rank: int | None = first
            while rank is not None and rank not in seen:
                if rank in path:
                    return list(path)[path[rank] :]
                path[rank] = len(path)
                rank = self.following(rank)
            seen.update(path)  # no ring from here
        return []


def _is_wild(subject: Any) -> bool:
    """Tell whether the wait is a receive from any rank."""
    return subject.kind == "receive" and subject.source is None


class _States:
    """The states of a run's ranks in words: one line per rank, or per state if there are many ranks."""

    def __init__(self, dist: Dist, waits: Waits) -> None:
        self.dist, self.waits = dist, waits
        self.shown: list[int] = []
        """Waiting ranks that have a line."""
        self._places: dict[Any, Place | None] = {}
        self._meetings: dict[int, str] = {}

    def lines(self) -> list[str]:
        """Return the lines; if not all fit, waiting ranks have priority, since they say more than finished ones."""
        ranks = range(self.dist.ranks)
        if len(ranks) <= ONE_BY_ONE:
            self.shown = list(self.waits)
            return [f"{self._called([rank])} {self._state(rank)}" for rank in ranks]
        groups = self._groups()
        first = sorted(groups, key=lambda item: (item[1][0] not in self.waits, item[1][0]))[:SHOWN]
        first.sort(key=lambda item: item[1][0])
        self.shown = sorted(rank for _, members in first for rank in members if rank in self.waits)
        lines = [f"{self._called(some)} {state if len(some) == 1 else _plural(state)}" for state, some in first]
        left = len(ranks) - sum(len(members) for _, members in first)
        return [*lines, f"and {left} more ranks"] if left else lines

    def _called(self, members: Sequence[int]) -> str:
        """Name ranks by number, with the mesh coordinates that they share: "ranks 4, 8, 12 (stage 0)"."""
        place = "" if self.dist.mesh is None else self.dist.mesh.shared(members)
        return these("rank", members) + (f" ({place})" if place else "")

    def _groups(self) -> list[tuple[str, list[int]]]:
        """Group ranks by state: those that wait for the same thing, and those that wait for their neighbour."""
        alike: dict[str, list[int]] = defaultdict(list)
        for rank in range(self.dist.ranks):
            alike[self._state(rank)].append(rank)
        single = {members[0]: state for state, members in alike.items() if len(members) == 1}
        beside: dict[str, list[int]] = defaultdict(list)
        for rank, state in single.items():
            whom = self._neighbour(rank)
            beside[state if whom is None else self._state(rank, whom)].append(rank)
        found = [(state, members) for state, members in alike.items() if len(members) > 1]
        return found + [(single[some[0]] if len(some) == 1 else state, some) for state, some in beside.items()]

    def _state(self, rank: int, whom: str | None = None) -> str:
        """Say what one rank is doing. `whom`: what to call the rank that it waits for."""
        dist = self.dist
        if rank in self.waits:
            subject = self.waits[rank]
            if (said := self._meetings.get(id(subject))) is None:
                said, _ = _told(subject, rank, whom)
                if subject.kind == "collective":
                    self._meetings[id(subject)] = said
            found = self.place(rank)
            return said + ("" if found is None else f" (line {found.line})")
        if rank not in dist.models:
            made = f"does not exist: Model(rank={rank}, dist=dist) was never made"
            return made if dist.ranks <= ONE_BY_ONE else NEVER_MADE
        program = dist.models[rank].program  # no known task steps this rank any more
        begun = rank in dist.engine.finished or program.events or program.moves
        return "has finished" if begun else "has not begun, or is over"

    def place(self, rank: int) -> Place | None:
        """Return the line in which a rank waits."""
        if self.waits[rank].kind == "elsewhere":
            return self.waits[rank].where
        # It waits in its first communication that has not started, else in its last one.
        communication = [e for e in self.dist.models[rank].program.events if e.op in COMMUNICATION]
        source = next((e for e in communication if e.start is None), communication[-1]).source
        if source not in self._places:
            self._places[source] = source if source is None or isinstance(source, Place) else resolve(*source)
        return self._places[source]

    def _neighbour(self, rank: int) -> str | None:
        """Name the rank that a rank waits for by direction, if it is a neighbour: "the stage before"."""
        subject, mesh = self.waits.get(rank), self.dist.mesh
        if subject is None or subject.kind not in ("receive", "pass") or _is_wild(subject):
            return None
        (peer,) = subject.awaits(rank)
        if mesh is not None:
            here, there = mesh.coordinates(rank), mesh.coordinates(peer)
            axis, *others = [axis for axis in here if here[axis] != there[axis]]
            if not others and abs(there[axis] - here[axis]) == 1:
                word = "stage" if axis in ALONG_LAYERS else "rank"
                along = "" if axis in ALONG_LAYERS or len(here) == 1 else f" along {axis!r}"
                return f"the {word} {'before' if there[axis] < here[axis] else 'after'}{along}"
        return f"the rank {'before' if peer < rank else 'after'}" if abs(peer - rank) == 1 else None


def _plural(state: str) -> str:
    """Turn the state of one rank into the plural: "waits to receive" -> "wait to receive"."""
    one = next((one for one in OF_SEVERAL if state.startswith(one)), "")
    return OF_SEVERAL.get(one, "") + state.removeprefix(one)


# -- the likely reason --------------------------------------------------------------------------------------------


def _reasons(dist: Dist, waits: Waits, cycle: list[int]) -> Iterator[Advice]:
    """Yield what to do about each likely reason that ranks wait; the first is told."""
    if absent := [r for r in sorted(waits.over) if r not in dist.models]:
        yield f"start all {dist.ranks} ranks: {these('rank', absent)} missing; Dist({dist.ranks}) needs as many Models"
    yield from _outside(dist, waits)
    yield from _astray(dist, waits)
    for rank, subject in waits.items():
        if subject.kind == "elsewhere":
            yield because("waits_elsewhere", rank=rank, thing=subject.thing)
    yield from _left_alone(waits)
    yield from _kept_back(dist, waits, cycle)
    kinds = {waits[rank].kind for rank in cycle}
    if kinds == {"receive"} and (place := place_of(waits[cycle[0]].event)) and "receive" not in place.text:
        last = {rank: e for rank in cycle for e in dist.models[rank].program.events if e.op in COMPUTE}
        did = (f"rank {r} has done {e.op} of layer {e.layer} ({these('batch', e.batches)});\n" for r, e in last.items())
        yield f"{''.join(did)}each waits for a pass that the other has not come to: look at the order of the passes"
    yield from _too_few_ahead(dist, waits, cycle)
    ops = {event.op for rank in cycle for event in dist.models[rank].program.events}
    if kinds == {"receive"} and "load_weights" in ops and "get_activation" not in ops:
        yield because("nobody_begins", rank=cycle[0])
    if kinds == {"receive"}:
        one_line = len({place_of(waits[r].event) for r in cycle}) == 1
        for rank in cycle:
            every = zip(dist.models[rank].program.events, dist.models[rank].program.rows, strict=True)
            before = [event for event, row in every if row is not waits[rank].call]
            again = any(event.op == "receive" and place_of(event) == place_of(waits[rank].event) for event in before)
            done = {event.op for event in before}
            if not again and "loss" in done and (one_line or not done & BY_INPUT):
                why = f"rank {rank} has the last layer, and its gradients begin with its own loss"
                come = "no rank passes it one" if one_line else f"all that rank {waits[rank].source} passed has come"
                yield f"{why}:\nleave out the receive there, as {come}"
        yield f"each of them receives before it passes: let one of them, such as rank {cycle[0]}, pass first"
    if kinds == {"pass"}:
        yield from _too_far_ahead(dist, waits, cycle)
        yield "one message at a time fits between two ranks: receive it before passing the next"
    yield "follow the cycle: one of these calls has to come earlier, or is missing on one rank"


def _goes_nowhere(dist: Dist, waits: Waits) -> Iterator[Advice]:
    """A rank passes the output of the last layer, or the gradient of the data, though no rank needs it."""
    for rank, subject in waits.items():
        event = subject.event if subject.kind == "pass" else None
        for value in () if event is None else dist.models[rank].program.values_of(event.inputs):
            why = ""
            if isinstance(value, Activation) and value.layer == value.layers:
                why = f"rank {rank} has the last layer, and its output goes to loss:"
            elif isinstance(value, ActivationGrad) and value.layer < 0:
                why = f"rank {rank} has the first layer, and the gradient of the data goes nowhere:"
            if why:
                yield f"{why}\nleave out pass_to there, as rank {subject.event.peer} never receives it"


def _outside(dist: Dist, waits: Waits) -> Iterator[Advice]:
    """In a mesh with stages, a rank waits for one that is not in its pipeline, or is at the other end."""
    mesh, axis = dist.mesh, stage_axis(dist.mesh)
    for rank, subject in waits.items():
        receives = subject.kind == "receive"
        peer = subject.source if receives else subject.event.peer if subject.kind == "pass" else None
        if mesh is None or axis is None or peer is None:
            continue
        here, there = mesh.coordinates(rank), mesh.coordinates(peer)
        stage = here[axis]
        ops = {event.op for event in dist.models[rank].program.events}
        back = "forward" not in ops if receives else bool(ops & BY_INPUT)
        end = 0 if back else mesh.axes[axis] - 1
        together = here | {axis: 0} == there | {axis: 0}
        if together and (stage != end or abs(there[axis] - stage) == 1):
            continue
        if stage == end:
            word, instead = ("before", "it takes data with get_activation") if back else ("after", "it calls loss")
            instead = "it passes no gradient on" if back and not receives else instead
            yield f"rank {rank} is at {axis} {stage}: there is no {axis} {word} it; {instead}"
        group = listed(mesh.group(rank, axis))[1:-1]
        word, sign = ("before", "-") if back else ("after", "+")
        where = {"group": group, "axis": axis, "word": word, "sign": sign}
        yield line(dist.models[rank].program, "group", "out_of_its_pipeline", rank=rank, peer=peer, **where)


def _astray(dist: Dist, waits: Waits) -> Iterator[Advice]:
    """A message went to a rank other than the one that waits for it."""
    full = {rank for rank, subject in waits.items() if subject.kind == "pass"}
    receivers = {subject.source: rank for rank, subject in waits.items() if subject.kind == "receive"}
    unread = dist.messages.unread()
    pairs = {(source, target) for source, target, _ in unread}
    for source, target, event in unread:
        wanted, values = receivers.get(source), dist.models[source].program.values_of(event.inputs)
        moved = [value.layer for value in values if isinstance(value, Activation | ActivationGrad)]
        if full & {source, target} or wanted in (None, target) or _layers(dist, target) & {*moved}:
            continue  # it is on its way to the right rank, only too slowly
        if (source, wanted) not in pairs:
            yield because("passed_astray", source=source, target=target, line=line_of(event), wanted=wanted)


def _layers(dist: Dist, rank: int) -> set[int]:
    """Return the layers of which a rank has weights."""
    return layers_of(dist.models[rank].program) if rank in dist.models else set()


def _kept_back(dist: Dist, waits: Waits, cycle: list[int]) -> Iterator[Advice]:
    """A rank has what another one waits for, and has not passed it."""
    for rank in cycle:
        source = waits[rank].source if waits[rank].kind == "receive" else None
        if source is None or source not in waits:
            continue
        program, wanted = dist.models[source].program, _layers(dist, rank) - _layers(dist, source)
        passed = {number for event in program.events if event.op == "pass_to" for number in event.inputs}
        for number, value in enumerate(program.values):
            kept = isinstance(value, Activation | ActivationGrad) and number not in passed and value.layer in wanted
            made = maker(value) if kept else None
            if made is not None and made.op in COMPUTE:
                yield because("kept_back", source=source, made=named(made), rank=rank, value=value)


def _too_few_ahead(dist: Dist, waits: Waits, cycle: list[int]) -> Iterator[Advice]:
    """A stage waits for a gradient, and the stage after it for more microbatches before it gives one."""
    if [waits[rank].kind for rank in cycle] != ["receive"] * 2:
        return
    early, late = sorted(cycle, key=lambda rank: sorted(_layers(dist, rank)))
    ops = [[event.op for event in dist.models[rank].program.events] for rank in (early, late)]
    passed, went_back = ops[0].count("pass_to"), "loss" in ops[1] or not BY_INPUT.isdisjoint(ops[0] + ops[1])
    back = "grad" in getattr(place_of(dist.models[early].program.events[-1]), "text", "")
    if _layers(dist, early) and not went_back and (passed or back) and passed == ops[1].count("receive") - 1:
        what, more = (counted(passed, "activation"), "one more") if passed else ("nothing", "one")
        yield because("too_few_ahead", early=early, what=what, late=late, more=more)


def _too_far_ahead(dist: Dist, waits: Waits, cycle: list[int]) -> Iterator[Advice]:
    """A stage passes one more activation, the next one a gradient, and neither has room for the other's message."""
    early, late = sorted(cycle, key=lambda rank: sorted(_layers(dist, rank)))[:2]
    ahead, back = (dist.models[rank].program for rank in (early, late))
    kinds = [isinstance(p.values[n], Activation) for p in (ahead, back) for n in waits[p.rank].event.inputs]
    if kinds == [True, False] and any(event.op in BY_INPUT for event in back.events):
        passed = counted(sum(event.op == "pass_to" for event in ahead.events), "microbatch")
        yield because("too_far_ahead", early=early, passed=passed, late=late)


def _left_alone(waits: Waits) -> Iterator[Advice]:
    """A rank waits for ranks that have finished."""
    for rank in (rank for rank in waits if waits.awaits_over(rank)):
        subject = waits[rank]
        gone = these("rank", waits.over.intersection(waits.awaits(rank)))
        if subject.kind == "collective":
            yield because("never_called", gone=gone)
        elif subject.kind == "pass":
            yield f"{gone} has finished: receive there what rank {rank} passes, or do not pass it"
        elif subject.source is None:
            yield f"all others have finished: rank {rank} receives more messages than are passed to it"
        yield because("sender_has_finished", source=subject.source, rank=rank)
