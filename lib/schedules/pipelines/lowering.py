"""Lowering: an order with more actions in it, made of one with fewer. The language stays the same."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import accumulate

from lib.schedules.pipelines.action import (
    BEGINS,
    KINDS,
    MESSAGES,
    OTHER_END,
    PAIR,
    PASSES,
    RECEIVES,
    SENDS,
    WAITS,
    WEIGHTS,
    Action,
    Clock,
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
    place, channels = places(order), defaultdict[tuple[int, int], deque[Action]](deque)
    for source, actions in enumerate(order):
        for other, _, brings in (out for action in actions for out in _outputs(action, source, place)):
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
            found += action, *(sent for _, sent, _ in _outputs(action, rank, place))
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
                yield place[after], Action(stage, sent, microbatch), Action(after, OTHER_END[sent], microbatch)


# -- when messages are awaited --------------------------------------------------------------------------------------


def posted(order: Order) -> Order:
    """Return the same order with messages that travel while their ranks compute.

    A receive is issued two passes before it is needed, in the order in which the messages come, and awaited when it is.
    A send is awaited before the next one to the same rank, or at the end. Where ranks could not go on so, receives are
    issued earlier.
    """
    late, longest, place = with_messages(order), max(map(len, order), default=0), places(order)
    ahead = 2  # what it brings may travel during one of them, and lies in a buffer no longer than that
    while waits_for_room(found := tuple(_posted_on(one, ahead, place) for one in late), place) and ahead <= longest:
        ahead *= 2
    return found


def _posted_on(actions: tuple[Action, ...], ahead: int, place: dict[int, int]) -> tuple[Action, ...]:
    found: list[Action] = []
    last: dict[int, Action] = {}
    """The wait for the last send to each rank."""
    passes = [*accumulate(action.kind in PASSES or action.kind == PAIR for action in actions)]
    receives = deque((passes[k], action) for k, action in enumerate(actions) if action.kind in RECEIVES)
    for action, number in zip(actions, passes, strict=True):
        while receives and receives[0][0] < number + ahead:
            found.append(receives.popleft()[1])
        stage, kind, microbatch, _ = action
        if kind in MESSAGES:
            wait = Action(stage, WAITS[kind], microbatch)
            if kind not in SENDS:
                found.append(wait)
                continue
            other = place[stage + KINDS[kind].towards]
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


def waits_for_room(order: Order, place: Mapping[int, int] | None = None) -> dict[int, Action]:
    """Return the ranks that do not come to the end of an order that has its messages, as there is room for one that is
    not received yet between two ranks, and the action that each is at. `place` is where its stages are, if that is
    known."""
    talks = tuple(tuple(one for one in actions if one.kind in MESSAGES or one.kind in BEGINS) for actions in order)
    clock = Clock(talks, places(order) if place is None else place)
    return {rank: clock.at(rank) for rank in sorted(clock.run())}


class _Arrivals:
    """All ranks of an order side by side, with room for one message from one rank to another, each received when it
    arrives: between two passes, if a forward takes as long as a backward, and a message no time."""

    def __init__(self, order: Order) -> None:
        ranks = range(len(order))
        self.order, self.place, self.at, self.busy = order, places(order), [0] * len(order), [0] * len(order)
        self.due = [(0, rank) for rank in ranks]  # when which rank may be able to go on
        self.found: list[list[Action]] = [[] for _ in ranks]
        self.held: list[set[Action]] = [set() for _ in ranks]  # what each has received
        # What each rank has to send before it goes on: to whom, and what it is at both ends.
        self.sends: list[deque[tuple[int, Action, Action]]] = [deque() for _ in ranks]
        # For each rank what was sent to it, by source: the first has arrived, a second waits for room.
        self.coming: list[defaultdict[int, deque[Action]]] = [defaultdict(deque) for _ in ranks]
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
        sends, found = self.sends[rank], self.found[rank]
        while sends:
            other, action, brings = sends[0]
            queue = self.coming[other][rank]
            if found[-1] is not action:  # else it has waited for room
                found.append(action)
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
            took = {"F": 2, "B": 2, "I": 1, "W": 1}  # compared with each other
            self.busy[rank] = now + sum(took.get(kind, 0) for _, kind, _, _ in parts_of((action,)))
            heapq.heappush(self.due, (self.busy[rank], rank))


# -- weights ----------------------------------------------------------------------------------------------------


def with_weights(order: Order) -> Order:
    """Return the same order where each rank has only a shard of its weights, and a stage whole only while it works on
    it: gathered (UNSHARD) before its first pass after those of another stage, freed (RESHARD) before the next other
    one, its gradients reduced (REDUCE_GRAD) after its last backward. ValueError where the order has gathers already."""
    lowered: list[tuple[Action, ...]] = []
    for rank, actions in enumerate(order):
        backwards = Counter(one.stage for one in parts_of(actions) if one.kind in ("B", "W"))
        found: list[Action] = []
        whole, over = list[int](), list[Action]()
        for position, action in enumerate(actions):
            if action.kind in WEIGHTS:
                raise ValueError(f"rank {rank}, position {position}: {action}, and the order is to have no gathers yet")
            stages = [*dict.fromkeys(one.stage for one in parts_of([action]) if one.kind in PASSES)] or whole
            found += [Action(stage, "RESHARD") for stage in whole if stage not in stages]
            found += [Action(stage, "UNSHARD") for stage in stages if stage not in whole]
            # A gather goes before the sums of what is over, which would keep it waiting.
            found += [*over, action]
            done = Counter(one.stage for one in parts_of([action]) if one.kind in ("B", "W"))
            backwards -= done
            over = [Action(stage, "REDUCE_GRAD") for stage in done if stage not in backwards]
            whole = stages
        lowered.append((*found, *(Action(stage, "RESHARD") for stage in whole), *over))
    return tuple(lowered)
