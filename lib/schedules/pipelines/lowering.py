"""Lowering: an order with more actions in it, made of one with fewer. The language stays the same."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import Final

from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    PAIR,
    PASSES,
    WAITS,
    WEIGHTS,
    Action,
    Order,
    parts_of,
    places,
)

__all__ = ["awaited", "compute_only", "posted", "waits_for_room", "with_messages", "with_weights"]


def compute_only(order: Order) -> Order:
    """Only its passes: without messages, gathers and updates, which come at the end where nothing says otherwise."""
    return tuple(tuple(action for action in actions if action.kind in PASSES or action.parts) for actions in order)


def with_messages(order: Order) -> Order:
    """Return the same order with all messages between ranks: sent as soon as there is something to send, received when
    it is needed. ValueError where an action needs what no rank sends.

    The n-th receive from a rank gets its n-th send. So before a wanted message those are received that come before it
    from the same rank, whatever they are for.
    """
    place = places(order)
    channels: dict[tuple[int, int], deque[Action]] = defaultdict(deque)
    for source, actions in enumerate(order):
        for action in actions:
            for other, _, brings in _outputs(action, source, place):
                channels[source, other].append(brings)
    lowered: list[tuple[Action, ...]] = []
    for rank, actions in enumerate(order):
        found: list[Action] = []
        received: set[Action] = set()
        for action in actions:
            for source, wanted in _inputs(action, rank, place):
                while wanted not in received:
                    if not channels[source, rank]:
                        raise ValueError(f"rank {rank}: nobody sends what {action} needs, for {wanted}")
                    found.append(channels[source, rank].popleft())
                    received.add(found[-1])
            found.append(action)
            found.extend(sent for _, sent, _ in _outputs(action, rank, place))
        lowered.append(tuple(found))
    return tuple(lowered)


# -- when messages are awaited --------------------------------------------------------------------------------------


AHEAD: Final = 2
"""How many passes before it is needed a receive is issued: what it brings may travel during one of them, and lies in a
buffer no longer than that."""


def posted(order: Order) -> Order:
    """Return the same order with messages that travel while their ranks compute.

    A receive is issued two passes before it is needed, in the order in which the messages come, and awaited when it is.
    A send is awaited before the next one to the same rank, or at the end. Where ranks could not go on so, receives are
    issued earlier.
    """
    late, ahead, longest = with_messages(order), AHEAD, max(map(len, order), default=0)
    place = places(late)
    while True:
        found = tuple(_posted_on(actions, ahead, place) for actions in late)
        if ahead > longest or not waits_for_room(found):
            return found
        ahead *= 2


def _posted_on(actions: tuple[Action, ...], ahead: int, place: dict[int, int]) -> tuple[Action, ...]:
    found: list[Action] = []
    last: dict[int, Action] = {}
    receives = [number for number, action in enumerate(actions) if action.kind.startswith("RECV")]
    passes = [*accumulate(action.kind in PASSES or action.kind == PAIR for action in actions)]
    next_one = 0
    for number, action in enumerate(actions):
        while next_one < len(receives) and passes[receives[next_one]] < passes[number] + ahead:
            found.append(actions[receives[next_one]])
            next_one += 1
        if action.kind.startswith("RECV"):
            found.append(_wait(action))
            continue
        if action.kind.startswith("SEND"):
            other = place[action.stage + KINDS[action.kind].towards]
            if other in last:
                found.append(_wait(last[other]))
            last[other] = action
        found.append(action)
    return (*found, *map(_wait, last.values()))


def _wait(action: Action) -> Action:
    return Action(action[0], WAITS[action[1]], action[2])


def awaited(order: Order) -> Order:
    """Return the same order with messages that both sides await at once.

    They are received when they are needed. As there is room for one message only between two ranks, some orders could
    not go on so, such as a breadth-first one of many microbatches: then they are received when they arrive.
    """
    late = with_messages(order)
    return late if not waits_for_room(late) else _on_arrival(order) or late


def waits_for_room(order: Order) -> dict[int, Action]:
    """Return the ranks that do not come to the end of an order that has its messages, as there is room for one that is
    not received yet between two ranks, and the action that each is at. No times matter: who can go on can do so
    later."""
    place = places(order)
    lists = [_calls(rank, actions, place) for rank, actions in enumerate(order)]
    at, called = [0] * len(order), [-1] * len(order)
    """Where each rank is, and its last call."""
    calls: defaultdict[_Channel | None, int] = defaultdict(int)
    going, stuck = list(range(len(order))), [False] * len(order)
    while going:
        rank = going.pop()
        todo, stuck[rank] = lists[rank], False
        for k in range(at[rank], len(todo)):
            _, other, call, answer, needed = todo[k]
            if call is not None and k > called[rank]:
                called[rank] = k
                calls[call] += 1
                if stuck[other]:
                    going.append(other)
            if calls[answer] < needed:
                at[rank], stuck[rank] = k, True
                break
        else:
            at[rank] = len(todo)
    return {rank: order[rank][lists[rank][k][0]] for rank, k in enumerate(at) if k < len(lists[rank])}


_Channel = tuple[int, int, bool]
"""The sends, or the receives, from a rank to another."""
_Call = tuple[int, int, _Channel | None, _Channel | None, int]


def _calls(rank: int, actions: tuple[Action, ...], place: dict[int, int]) -> list[_Call]:
    """Return the sends and receives of a rank and its waits: its position, the other rank, the call that it makes, if
    it makes one, and what it waits for: so many calls of the other side. The n-th receive is over when there were n
    sends, and the n-th send when there were n - 1 receives."""
    found: list[_Call] = []
    behind = {(stage, BEGINS[kind], microbatch) for stage, kind, microbatch, _ in actions if kind in BEGINS}
    begun: dict[tuple[int, str, int], tuple[int, _Channel, int]] = {}
    count: defaultdict[_Channel, int] = defaultdict(int)
    for position, (stage, kind, microbatch, _) in enumerate(actions):
        if kind in MESSAGES:
            other, sends = place[stage + KINDS[kind].towards], kind[0] == "S"
            call, answer = (
                ((rank, other, True), (rank, other, False)) if sends else ((other, rank, False), (other, rank, True))
            )
            needed = count[call] + (not sends)
            count[call] += 1
            if (stage, kind, microbatch) in behind:
                begun[stage, kind, microbatch] = other, answer, needed
                found.append((position, other, call, None, 0))
            else:
                found.append((position, other, call, answer, needed))
        elif kind in BEGINS and (work := begun.get((stage, BEGINS[kind], microbatch))) is not None:
            found.append((position, work[0], None, *work[1:]))
    return found


def _on_arrival(order: Order) -> Order | None:
    """Return the same order with messages that are received when they arrive: between two passes, if a forward takes as
    long as a backward, and a message no time. None where that cannot go on."""
    run = _Arrivals(order)
    while run.due:
        run.go_on()
        if not run.due:
            run.make_room()
    over = not any(run.sends) and [*map(len, order)] == run.at
    return tuple(map(tuple, run.found)) if over else None


class _Arrivals:
    """All ranks of an order side by side, with room for one message from one rank to another."""

    def __init__(self, order: Order) -> None:
        ranks = range(len(order))
        self.order, self.place, self.at = order, places(order), [0] * len(order)
        self.found: list[list[Action]] = [[] for _ in ranks]
        self.held: list[set[Action]] = [set() for _ in ranks]
        """What each rank has received."""
        self.busy = [0] * len(order)
        self.due = [(0, rank) for rank in ranks]
        """When which rank may be able to go on."""
        self.sends: list[deque[tuple[int, Action, Action]]] = [deque() for _ in ranks]
        """What each rank has to send before it goes on: to whom, and what it is at both ends."""
        self.coming: list[dict[int, deque[Action]]] = [{} for _ in ranks]
        """For each rank what was sent to it, by source: the first has arrived, a second waits for room."""
        self.arrived: dict[tuple[int, int], int] = {}

    def go_on(self) -> None:
        """Everybody goes as far as they can."""
        while self.due:
            now, rank = heapq.heappop(self.due)
            if now >= self.busy[rank] and self._send(now, rank):
                self._receive(now, rank)
                self._begin(now, rank)

    def make_room(self) -> None:
        """Return who waits for room receives what has arrived before that. What waits for room itself has not."""
        first = [(rank, source) for rank, coming in enumerate(self.coming) for source in coming if coming[source]]
        for rank, source in first:
            if self.sends[rank]:
                last = self.found[rank].pop()
                self._take(self.busy[rank], rank, source)
                self.found[rank].append(last)

    def _send(self, now: int, rank: int) -> bool:
        """Tell whether all that a rank has to send has found room."""
        sends = self.sends[rank]
        while sends:
            other, action, brings = sends[0]
            queue = self.coming[other].setdefault(rank, deque())
            if not self.found[rank] or self.found[rank][-1] is not action:
                self.found[rank].append(action)
                queue.append(brings)
                if len(queue) == 1:
                    self.arrived[rank, other] = now
                    heapq.heappush(self.due, (now, other))
            if len(queue) > 1:
                return False
            sends.popleft()
        return True

    def _receive(self, now: int, rank: int) -> None:
        """A rank takes all that has arrived, in that order."""
        while ready := [source for source, queue in self.coming[rank].items() if queue]:
            self._take(now, rank, min(ready, key=lambda source: (self.arrived[source, rank], source)))

    def _take(self, now: int, rank: int, source: int) -> None:
        """A rank receives a message; the next one from there has room now."""
        queue = self.coming[rank][source]
        self.found[rank].append(queue[0])
        self.held[rank].add(queue.popleft())
        if queue:
            self.arrived[source, rank] = now
            heapq.heappush(self.due, (max(now, self.busy[source]), source))

    def _begin(self, now: int, rank: int) -> None:
        """A rank begins with its next action, if its messages are there."""
        if self.at[rank] == len(self.order[rank]):
            return
        action = self.order[rank][self.at[rank]]
        if any(wanted not in self.held[rank] for _, wanted in _inputs(action, rank, self.place)):
            return
        self.at[rank] += 1
        self.found[rank].append(action)
        self.sends[rank].extend(_outputs(action, rank, self.place))
        self.busy[rank] = now + sum(TICKS.get(kind, 0) for _, kind, _, _ in parts_of((action,)))
        heapq.heappush(self.due, (self.busy[rank], rank))


TICKS = {"F": 2, "B": 2, "I": 1, "W": 1}
"""How long passes take, compared with each other."""


def _inputs(action: Action, rank: int, place: dict[int, int]) -> Iterator[tuple[int, Action]]:
    """Yield the messages that an action needs, each with the rank that it comes from."""
    for stage, kind, microbatch, _ in action.parts or (action,):
        if needed := KINDS[kind].needs:
            source = place.get(stage + KINDS[needed].towards, rank)
            if source != rank:
                yield source, Action(stage, needed, microbatch)


def _outputs(action: Action, rank: int, place: dict[int, int]) -> Iterator[tuple[int, Action, Action]]:
    """Yield the messages that an action is followed by: to whom, the send, and the receive there."""
    for stage, kind, microbatch, _ in action.parts or (action,):
        if sent := KINDS[kind].passes:
            after = stage + KINDS[sent].towards
            if place.get(after, rank) != rank:
                yield place[after], Action(stage, sent, microbatch), Action(after, f"RECV_{sent[-1]}", microbatch)


# -- weights ----------------------------------------------------------------------------------------------------


def with_weights(order: Order, *, keep: int | None = None, ahead: int = 0) -> Order:
    """Return the same order where each rank has only a shard of its weights: they are gathered (UNSHARD) before the
    passes that need them, freed (RESHARD) after, and the gradients of a stage reduced (REDUCE_GRAD) after its last
    backward.

    A rank has `keep` stages whole at most, and frees the one that it needs again last. Without a number it gathers each
    stage once for its forwards and once for its backwards, or once for all where these mingle. A gather is issued
    `ahead` actions before the pass that needs it, or as many of these as `keep` has room. ValueError where a rank needs
    more stages at once than it keeps, or the order has gathers already.
    """
    if keep is not None and keep < 1:
        raise ValueError(f"a rank keeps at least the stage that it works on; got keep={keep}")
    if ahead < 0:
        raise ValueError(f"a gather is issued before it is needed; got ahead={ahead}")
    return tuple(_with_weights(rank, actions, keep, ahead) for rank, actions in enumerate(order))


def _with_weights(rank: int, actions: tuple[Action, ...], keep: int | None, ahead: int) -> tuple[Action, ...]:
    uses: defaultdict[int, list[int]] = defaultdict(list)
    """Where each stage is needed."""
    directions: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
    for position, action in enumerate(actions):
        if action.kind in WEIGHTS:
            raise ValueError(f"rank {rank}, position {position}: {action}, and the order is to have no gathers yet")
        for stage, kind, _, _ in action.parts or (action,):
            if kind in PASSES:
                uses[stage].append(position)
                directions[stage, kind != "F"].append(position)
    if keep is None:
        spans = [span for stage in uses for span in _by_direction(stage, directions)]
    else:
        spans = _kept(rank, uses, keep)
    before: defaultdict[int, list[Action]] = defaultdict(list)
    """What comes before the action at a position."""
    whole = Counter(position for first, last, _ in spans for position in range(first, last + 1))
    freed: dict[int, int] = {}
    gathers: list[tuple[int, int]] = []
    for first, last, stage in sorted(spans):
        earliest = max(first - ahead, freed.get(stage, 0))
        begin = first
        while begin > earliest and (keep is None or whole[begin - 1] < keep):
            begin -= 1
            whole[begin] += 1
        gathers.append((begin, stage))
        freed[stage] = last + 1
        before[last + 1].append(Action(stage, "RESHARD"))
    for begin, stage in gathers:  # after what makes room for it, and before what may take time
        before[begin].append(Action(stage, "UNSHARD"))
    for (stage, backward), positions in directions.items():
        if backward:
            before[positions[-1] + 1].append(Action(stage, "REDUCE_GRAD"))
    found: list[Action] = []
    for position, action in enumerate(actions):
        found += *before[position], action
    return *found, *before[len(actions)]


Span = tuple[int, int, int]
"""From which to which position a stage is whole."""


def _by_direction(stage: int, directions: dict[tuple[int, bool], list[int]]) -> list[Span]:
    """Once for the forwards and once for the backwards, or once where one begins before the other is over."""
    spans = [(found[0], found[-1], stage) for back in (False, True) if (found := directions.get((stage, back)))]
    if len(spans) == 2 and spans[1][0] <= spans[0][1]:
        return [(spans[0][0], max(spans[0][1], spans[1][1]), stage)]
    return spans


def _kept(rank: int, uses: dict[int, list[int]], keep: int) -> list[Span]:
    """Return so many stages at a time: the one goes that is needed again last (Belady 1966)."""
    needed: defaultdict[int, list[int]] = defaultdict(list)
    for stage, positions in uses.items():
        for position in positions:
            needed[position].append(stage)
    next_use = {stage: deque(positions) for stage, positions in uses.items()}
    whole: dict[int, Span] = {}
    spans: list[Span] = []
    for position in sorted(needed):
        stages = needed[position]
        if len(set(stages)) > keep:
            raise ValueError(f"rank {rank}, position {position} needs {len(set(stages))} stages at once; keep={keep}")
        for stage in stages:
            next_use[stage].popleft()
        for stage in stages:
            if stage not in whole and len(whole) >= keep:
                others = [other for other in whole if other not in stages]
                last = max(others, key=lambda other: (next_use[other][0] if next_use[other] else inf, other))
                spans.append(whole.pop(last))
            first = whole[stage][0] if stage in whole else position
            whole[stage] = first, position, stage
    return [*spans, *whole.values()]
