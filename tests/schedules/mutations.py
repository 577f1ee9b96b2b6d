"""Orders for properties: random legal ones, and ones that were changed in a single place."""

from collections.abc import Sequence
from random import Random

from lib.schedules.pipelines.action import KINDS, MESSAGES, PAIR, PASSES, Action, Order, places
from lib.schedules.pipelines.lowering import posted, with_messages


def random_order(random: Random, place: Sequence[int], batches: int) -> Order:
    """One of all legal orders: whatever can be done next may be. Stages are on the ranks of `place`, and each decides
    whether its backward is in one or in halves; sometimes a forward and a backward are one action."""
    halves = [random.random() < 0.5 for _ in place]
    todo: dict[Action, list[Action]] = {}
    for m in range(batches):
        for stage in range(len(place)):
            forward, first = Action(stage, "F", m), Action(stage, "I" if halves[stage] else "B", m)
            todo[forward] = [Action(stage - 1, "F", m)] if stage else []
            todo[first] = [forward]
            if stage + 1 < len(place):
                todo[first].append(Action(stage + 1, "I" if halves[stage + 1] else "B", m))
            if halves[stage]:
                todo[Action(stage, "W", m)] = [first]
    rows: list[list[Action]] = [[] for _ in range(max(place) + 1)]
    while todo:
        ready = [action for action, needs in todo.items() if not any(need in todo for need in needs)]
        action = random.choice(ready)
        rank = place[action.stage]
        backwards = [one for one in ready if one.kind in "BI" and place[one.stage] == rank]
        del todo[action]
        if action.kind == "F" and backwards and random.random() < 0.4:
            del todo[other := random.choice(backwards)]
            action = Action(action.stage, PAIR, action.microbatch, (action, other))
        rows[rank].append(action)
    return tuple(map(tuple, rows))


def with_waits(order: Order) -> Order:
    """All receives are begun at the start, and awaited where they are needed; sends are awaited at the end."""
    rows: list[tuple[Action, ...]] = []
    for actions in with_messages(order):
        receives = [action for action in actions if action.kind.startswith("RECV")]
        sends = [action._replace(kind=f"WAIT_{action.kind}") for action in actions if action.kind.startswith("SEND")]
        waits = [action._replace(kind=f"WAIT_{action.kind}") if action in receives else action for action in actions]
        rows.append((*receives, *waits, *sends))
    return tuple(rows)


def with_some_waits(random: Random, order: Order) -> Order:
    """Some messages are awaited at once, and others where they are needed."""
    rows: list[tuple[Action, ...]] = []
    for actions in posted(order):
        at_once = {action for action in actions if action.kind in MESSAGES and random.random() < 0.3}
        waits = {action._replace(kind=f"WAIT_{action.kind}") for action in at_once}
        rows.append(tuple(action for action in actions if action not in waits))
    return tuple(rows)


def mutated(random: Random, order: Order) -> tuple[Order, set[int]]:
    """The order with one change, and the ranks that it is in."""
    rows = [list(actions) for actions in order]
    rank = random.choice([rank for rank, row in enumerate(rows) if row])
    row, at = rows[rank], random.randrange(len(rows[rank]))
    changed = {rank}
    match random.choice(("swap", "move", "drop", "double", "microbatch", "kind", "stage", "rank")):
        case "swap":
            other = random.randrange(len(row))
            row[at], row[other] = row[other], row[at]
        case "move":
            action = row.pop(at)
            row.insert(random.randrange(len(row) + 1), action)
        case "drop":
            del row[at]
        case "double":
            row.insert(random.randrange(len(row) + 1), row[at])
        case "rank":
            other = random.randrange(len(rows))
            action = row.pop(at)
            rows[other].insert(random.randrange(len(rows[other]) + 1), action)
            changed.add(other)
        case what:
            row[at] = _changed(random, order, row[at], what)
    return tuple(map(tuple, rows)), changed


def _changed(random: Random, order: Order, action: Action, what: str) -> Action:
    """Another microbatch, kind or stage. Of a pair one part changes."""
    if action.parts:
        parts = list(action.parts)
        part = random.randrange(2)
        parts[part] = _changed(random, order, parts[part], what)
        return Action(parts[0].stage, PAIR, parts[0].microbatch, tuple(parts))
    if what == "stage":
        return action._replace(stage=random.randrange(len(places(order)) + 1))
    if what == "microbatch" and action.microbatch >= 0:
        return action._replace(microbatch=max(0, action.microbatch + random.choice((-2, -1, 1, 2))))
    kinds = {one.kind for actions in order for one in actions if not one.parts} | PASSES
    if kinds & MESSAGES:
        kinds |= MESSAGES
    kind = random.choice(sorted(kinds))
    number = -1 if not KINDS[kind].per_batch else max(0, action.microbatch)
    return Action(action.stage, kind, number)
