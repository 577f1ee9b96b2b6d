"""Lowering: an order with more actions in it, made of one with fewer. The language stays the same."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any, Final

from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    PAIR,
    PASSES,
    RECEIVES,
    SENDS,
    WAITS,
    WEIGHTS,
    Action,
    Order,
    parts_of,
    places,
)


def compute_only(order: Order) -> Order:
    """Return only its passes: without messages, gathers and updates, which come at the end where nothing says
    otherwise."""
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
    """The wait for the last send to each rank."""
    passes = [*accumulate(action.kind in PASSES or action.kind == PAIR for action in actions)]
    receives = deque((passes[k], action) for k, action in enumerate(actions) if action.kind in RECEIVES)
    for action, number in zip(actions, passes, strict=True):
        while receives and receives[0][0] < number + ahead:
            found.append(receives.popleft()[1])
        if action.kind in MESSAGES:
            wait = Action(action.stage, WAITS[action.kind], action.microbatch)
            if action.kind not in SENDS:
                found.append(wait)
                continue
            other = place[action.stage + KINDS[action.kind].towards]
            if other in last:
                found.append(last[other])
            last[other] = wait
        found.append(action)
    return *found, *last.values()


def awaited(order: Order) -> Order:
    """Return the same order with messages that both sides await at once.

    They are received when they are needed. As there is room for one message only between two ranks, some orders could
    not go on so, such as a breadth-first one of many microbatches: then they are received when they arrive.
    """
    late = with_messages(order)
    return late if not waits_for_room(late) else _Arrivals(order).run() or late


Call = tuple[int, bool, Hashable]
"""Where a rank is in its order, and what it makes there or, with True, awaits."""


def held_up(todo: Sequence[Sequence[Call]]) -> dict[int, tuple[int, Any]]:
    """Return the ranks that never come to the end of what they make and await, with where they are and what they await.
    No times matter: who can go on can do so later."""
    made: set[Hashable] = set()
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    at, going = [0] * len(todo), [*range(len(todo))]
    held: dict[int, tuple[int, Any]] = {}
    while going:
        rank = going.pop()
        held.pop(rank, None)
        calls = todo[rank]
        for number in range(at[rank], len(calls)):
            position, awaits, key = calls[number]
            if not awaits:
                made.add(key)
                going += waiting.pop(key, ())
            elif key not in made:
                waiting[key].append(rank)
                at[rank], held[rank] = number, (position, key)
                break
    return held


def waits_for_room(order: Order) -> dict[int, Action]:
    """Return the ranks that do not come to the end of an order that has its messages, as there is room for one that is
    not received yet between two ranks, and the action that each is at."""
    place, count = places(order), defaultdict[tuple[int, int, bool], int](int)
    towards = {kind: KINDS[kind].towards for kind in WAITS}
    todo: list[list[Call]] = []
    for rank, actions in enumerate(order):
        waits = {action[:3] for action in actions if action.kind in BEGINS}
        calls: list[Call] = []
        answers: dict[tuple[int, str, int], tuple[int, int, bool, int]] = {}
        """What each message is over with: the n-th receive when there were n sends, the n-th send when there were n - 1
        receives."""
        for position, (stage, kind, microbatch, _) in enumerate(actions):
            wait = stage, WAITS.get(kind, kind), microbatch
            if kind in towards:
                other, sends = place[stage + towards[kind]], kind in SENDS
                channel = (rank, other, True) if sends else (other, rank, False)
                number = count[channel]
                count[channel] += 1
                calls.append((position, False, (*channel, number)))
                answers[wait] = channel[0], channel[1], not sends, number - sends
                if wait in waits:
                    continue
            answer = answers.get(wait)
            if answer is not None and answer[3] >= 0:
                calls.append((position, True, answer))
        todo.append(calls)
    return {rank: order[rank][position] for rank, (position, _) in sorted(held_up(todo).items())}


class _Arrivals:
    """All ranks of an order side by side, with room for one message from one rank to another, each received when it
    arrives: between two passes, if a forward takes as long as a backward, and a message no time."""

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
        self.coming: list[defaultdict[int, deque[Action]]] = [defaultdict(deque) for _ in ranks]
        """For each rank what was sent to it, by source: the first has arrived, a second waits for room."""
        self.arrived: dict[tuple[int, int], int] = {}

    def run(self) -> Order | None:
        """Return the order with its messages; None where it cannot go on."""
        while self.due:
            while self.due:
                now, rank = heapq.heappop(self.due)
                if now >= self.busy[rank] and self.send(now, rank):
                    self.go_on(now, rank)
            there = [(rank, source) for rank, coming in enumerate(self.coming) for source in coming if coming[source]]
            for rank, source in there:
                if self.sends[rank]:  # to make room, it receives what came before what waits for room itself
                    last = self.found[rank].pop()
                    self.take(self.busy[rank], rank, source)
                    self.found[rank].append(last)
        over = not any(self.sends) and [*map(len, self.order)] == self.at
        return tuple(map(tuple, self.found)) if over else None

    def send(self, now: int, rank: int) -> bool:
        """Tell whether all that a rank has to send has found room."""
        sends = self.sends[rank]
        while sends:
            other, action, brings = sends[0]
            queue = self.coming[other][rank]
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

    def take(self, now: int, rank: int, source: int) -> None:
        """Let a rank receive a message; the next one from there has room now."""
        queue = self.coming[rank][source]
        self.found[rank].append(queue[0])
        self.held[rank].add(queue.popleft())
        if queue:
            self.arrived[source, rank] = now
            heapq.heappush(self.due, (max(now, self.busy[source]), source))

    def go_on(self, now: int, rank: int) -> None:
        """Let a rank take all that has arrived, in that order, and begin its next action, if its messages are there."""
        while ready := [source for source, queue in self.coming[rank].items() if queue]:
            self.take(now, rank, min(ready, key=lambda source: (self.arrived[source, rank], source)))
        if self.at[rank] == len(self.order[rank]):
            return
        action = self.order[rank][self.at[rank]]
        if all(wanted in self.held[rank] for _, wanted in _inputs(action, rank, self.place)):
            self.at[rank] += 1
            self.found[rank].append(action)
            self.sends[rank].extend(_outputs(action, rank, self.place))
            self.busy[rank] = now + sum(TICKS.get(kind, 0) for _, kind, _, _ in parts_of((action,)))
            heapq.heappush(self.due, (self.busy[rank], rank))


TICKS = {"F": 2, "B": 2, "I": 1, "W": 1}
"""How long passes take, compared with each other."""


# -- weights ----------------------------------------------------------------------------------------------------

Span = tuple[int, int, int]
"""From which to which position a stage is whole."""


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
    lowered: list[tuple[Action, ...]] = []
    for rank, actions in enumerate(order):
        uses: defaultdict[int, list[int]] = defaultdict(list)
        """Where each stage is needed."""
        ends: dict[tuple[int, bool], tuple[int, int]] = {}
        """Where its first and its last pass are, forward and backward."""
        for position, action in enumerate(actions):
            if action.kind in WEIGHTS:
                raise ValueError(f"rank {rank}, position {position}: {action}, and the order is to have no gathers yet")
            for stage, kind, _, _ in action.parts or (action,):
                if kind in PASSES:
                    uses[stage].append(position)
                    key = stage, kind != "F"
                    ends[key] = ends.get(key, (position,))[0], position
        before: defaultdict[int, list[Action]] = defaultdict(list)
        """What comes before the action at a position."""
        spans = [*_by_direction(uses, ends)] if keep is None else _kept(rank, uses, keep)
        gathers: list[tuple[int, int]] = []
        whole = Counter(position for first, end, _ in spans for position in range(first, end + 1))
        freed: dict[int, int] = {}
        for begin, end, stage in sorted(spans):
            earliest, first = max(begin - ahead, freed.get(stage, 0)), begin
            while first > earliest and (keep is None or whole[first - 1] < keep):
                first -= 1
                whole[first] += 1
            gathers.append((first, stage))
            freed[stage] = end + 1
            before[end + 1].append(Action(stage, "RESHARD"))
        for first, stage in gathers:  # after what makes room for it, and before what may take time
            before[first].append(Action(stage, "UNSHARD"))
        for (stage, backward), (_, last) in ends.items():
            if backward:
                before[last + 1].append(Action(stage, "REDUCE_GRAD"))
        found = [one for position, action in enumerate(actions) for one in (*before[position], action)]
        lowered.append((*found, *before[len(actions)]))
    return tuple(lowered)


def _by_direction(stages: Iterable[int], ends: Mapping[tuple[int, bool], tuple[int, int]]) -> Iterator[Span]:
    """Yield when stages are whole that are so once for the forwards and once for the backwards, or once where one
    begins before the other is over."""
    for stage in stages:
        forward, backward = ends.get((stage, False)), ends.get((stage, True))
        if forward and backward and backward[0] <= forward[1]:
            yield forward[0], max(forward[1], backward[1]), stage
        else:
            yield from ((*both, stage) for both in (forward, backward) if both)


def _kept(rank: int, uses: dict[int, list[int]], keep: int) -> list[Span]:
    """Return when stages are whole of which a rank has so many at a time: the one goes that is needed again last
    (Belady 1966)."""
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
