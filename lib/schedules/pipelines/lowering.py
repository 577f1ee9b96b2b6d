"""Lowering: an order with more actions in it, made of one with fewer. The language stays the same."""

from __future__ import annotations

from collections import defaultdict, deque

from lib.schedules.pipelines.action import KINDS, Action, Order, parts_of, places

__all__ = ["with_messages"]


def with_messages(order: Order) -> Order:
    """The same order with all messages between ranks: sent as soon as there is something to send, received when it is
    needed. ValueError where an action needs what no rank sends.

    The n-th receive from a rank gets its n-th send. So before a wanted message those are received that come before it
    from the same rank, whatever they are for.
    """
    place = places(order)
    channels: dict[tuple[int, int], deque[Action]] = defaultdict(deque)
    for source, actions in enumerate(order):
        for stage, kind, microbatch, _ in parts_of(actions):
            sent = KINDS[kind].passes
            after = stage + KINDS[sent].towards if sent else stage
            if place.get(after, source) != source:
                channels[source, place[after]].append(Action(after, f"RECV_{sent[-1]}", microbatch))
    return tuple(_with_messages(rank, actions, place, channels) for rank, actions in enumerate(order))


def _with_messages(
    rank: int, actions: tuple[Action, ...], place: dict[int, int], channels: dict[tuple[int, int], deque[Action]]
) -> tuple[Action, ...]:
    found: list[Action] = []
    received: set[Action] = set()
    for action in actions:
        parts = action.parts or (action,)
        for stage, kind, microbatch, _ in parts:
            needed = KINDS[kind].needs
            if not needed:
                continue
            source = place.get(stage + KINDS[needed].towards, rank)
            wanted = Action(stage, needed, microbatch)
            while source != rank and wanted not in received:
                if not channels[source, rank]:
                    raise ValueError(f"rank {rank}: nobody sends what {action} needs, for {wanted}")
                found.append(channels[source, rank].popleft())
                received.add(found[-1])
        found.append(action)
        for stage, kind, microbatch, _ in parts:
            sent = KINDS[kind].passes
            if sent and place.get(stage + KINDS[sent].towards, rank) != rank:
                found.append(Action(stage, sent, microbatch))
    return tuple(found)
