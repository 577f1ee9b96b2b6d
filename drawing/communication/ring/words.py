"""The steps of a ring in words: what each did, what each rank has after it, and what has been sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from drawing.communication.exchange import Exchange
from drawing.communication.ring.rounds import Rounds
from lib.errors.wording import amount, counted, these
from lib.values.dims import DIMS
from lib.values.laws import gather, reduce

__all__ = ["holdings", "phase", "step_words", "title"]


def title(one: Exchange, steps: Rounds) -> str:
    """What goes round."""
    way = "round a ring of" if len(steps.sizes) > 1 else "along a chain of"
    return f"{one.title.capitalize()} {way} {counted(len(one.seats), 'rank')}: {one.subject}"


def phase(steps: Rounds, step: int) -> list[str]:
    """What stands in the middle of the ring: the number of the step, and what happens in it."""
    if not step:
        return ["before", f"{counted(len(steps.steps), 'round')} to go"]
    adds = steps.steps[step - 1][0].adds
    return [f"round {step} of {len(steps.steps)}", "adding up" if adds else "passing on"]


def step_words(one: Exchange, steps: Rounds, step: int) -> str:
    """What a step did, and what has been sent so far."""
    count = len(steps.steps)
    if not step:
        return f"Before the first of {counted(count, 'round')}: {_start(one, steps)}."
    did = f"Round {step} of {count}: {_did(one, steps, step)}"
    return " ".join([did, *_reached(steps, step), _sent(one, steps, step)])


def _start(one: Exchange, steps: Rounds) -> str:
    """What the ranks have before the first step."""
    value = one.seats[0].brought[0]
    adds = one.row is not None and one.row.law is reduce
    if one.row is not None and one.row.law is gather:
        own = next((DIMS[role].plural for role, _, _ in value.place.rest if not DIMS[role].partial), None)
        return f"each rank has its own {own or ('shard' if value.place.sharded else 'batches')}, which is one piece"
    if not adds:
        return f"rank {one.seats[one.root].rank} alone has it"
    cut = f", cut into {len(steps.sizes)} pieces" if len(steps.sizes) > 1 else ""
    return f"each rank has its own {value.kind}{cut}"


def _did(one: Exchange, steps: Rounds, step: int) -> str:
    hop = steps.steps[step - 1][0]
    if len(steps.sizes) == 1:
        then = "which adds its own" if hop.adds else "which keeps a copy"
        return f"rank {one.seats[hop.source].rank} passes it to rank {one.seats[hop.target].rank}, {then}."
    if hop.adds:
        return "each rank passes one piece to the next rank, which adds its own to it."
    which = "its own piece" if step == steps.turn + 1 else "the piece that it got last"
    which = "its finished piece" if step == steps.turn + 1 and steps.turn else which
    return f"each rank passes {which} to the next rank, which keeps a copy."


def _reached(steps: Rounds, step: int) -> Iterator[str]:
    """What is special about the state after a step."""
    count, turn = len(steps.steps), steps.turn
    if step == turn < count:
        yield "Now each rank has one piece of the finished sum: that was a reduce-scatter. An all-gather follows."
    elif step == count and len(steps.sizes) > 1:
        yield "Now each rank has one shard of the sum." if turn == count else "Now every rank has all of it."


def _sent(one: Exchange, steps: Rounds, step: int) -> str:
    members = range(len(one.seats))
    done = [steps.sent(member, step) for member in members]
    total = [steps.sent(member) for member in members]
    if min(done) == max(done) and min(total) == max(total):
        return f"Sent so far by each rank: {_figure(done[0])} of {_figure(total[0])} elements."
    return f"Sent so far by all ranks together: {_figure(sum(done))} of {_figure(sum(total))} elements."


def _figure(number: int | Fraction) -> str:
    return amount(round(number, 1))


def holdings(one: Exchange, steps: Rounds, labels: Mapping[int, int], step: int) -> str:
    """What each rank has after a step."""
    found: list[str] = []
    for seat, pieces in zip(one.seats, steps.states[step], strict=True):
        words = [_piece(one, labels, piece, pieces[piece]) for piece in labels if piece in pieces]
        found.append(f"Rank {seat.rank} has {', '.join(words) or 'nothing'}.")
    return " ".join(found)


def _piece(one: Exchange, labels: Mapping[int, int], piece: int, members: frozenset[int]) -> str:
    name = f"piece {labels[piece]}" if len(labels) > 1 else "it"
    if one.row is None or one.row.law is not reduce:
        return name
    if len(members) == len(one.seats):
        return f"{name} (the whole sum)"
    return f"{name} (of {these('rank', [one.seats[member].rank for member in members])})"
