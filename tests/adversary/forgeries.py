"""Dishonest edits of a Trace as it is handed in, as JSON data: one thing changed, so that it looks better than it was.

Some edits give another honest Trace (a wait a little later, a value deleted earlier). Then its figures have to be those
of what it says that it does now, and the oracle says which they are.
"""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

Data = dict[str, Any]
Forgery = Callable[[Data, Random], Any]

OP, LAYER, BATCHES, INPUTS, OUTPUTS, ISSUED, START, LENGTH, PLACE, ARG, GROUP, PEER, BLOCKING = range(13)
TALK = ("pass_to", "receive", "allreduce", "allgather", "scatterreduce", "alltoall", "broadcast", "halo")
LIKE = {
    "allreduce": ["allgather", "scatterreduce", "broadcast"],
    "allgather": ["allreduce", "scatterreduce"],
    "scatterreduce": ["allreduce", "allgather"],
    "add": ["combine"],
    "combine": ["add"],
    "fake_grad": ["backward", "backward_weight", "foreign", "get_activation"],
    "load_weights": ["foreign", "get_activation", "update"],
    "get_activation": ["fake_grad", "forward", "foreign", "loss"],
    "backward": ["fake_grad", "update", "load_weights", "backward_input", "backward_weight"],
    "backward_input": ["backward", "backward_weight", "loss"],
    "backward_weight": ["backward", "backward_input", "fake_grad", "add"],
    "forward": ["get_activation", "loss", "combine"],
    "update": ["load_weights", "backward"],
    "pass_to": ["receive", "wait", "set_final_weight"],
    "receive": ["pass_to", "get_activation", "load_weights", "foreign"],
    "shard": ["combine", "foreign"],
    "wait": ["loss", "set_final_weight"],
    "loss": ["get_activation", "fake_grad", "foreign"],
    "set_final_weight": ["wait", "shard"],
    "foreign": ["fake_grad"],
    "alltoall": ["allgather"],
    "broadcast": ["allreduce", "allgather"],
    "halo": ["alltoall", "allgather"],
    "cut": ["shard", "combine", "foreign"],
}


def _program(data: Data, random: Random) -> dict[str, Any]:
    return random.choice([program for program in data["programs"] if program["events"]])


def _event(data: Data, random: Random, *ops: str) -> list[Any] | None:
    found = [e for program in data["programs"] for e in program["events"] if e[OP] in ops or not ops]
    return random.choice(found) if found else None


def _sets(random: Random, most: int) -> str:
    return ",".join(str(n) for n in sorted(random.sample(range(most), random.randint(0, most))))


def time(data: Data, random: Random) -> None:
    event = _event(data, random)
    assert event is not None
    event[random.choice([ISSUED, START, LENGTH])] = random.choice([0, 1, 10**8, 10**12])


def batches(data: Data, random: Random) -> None:
    event = _event(data, random)
    assert event is not None
    event[BATCHES] = _sets(random, data["batches"])


def source_batches(data: Data, random: Random) -> None:
    event = _event(data, random, "get_activation", "fake_grad")
    if event is not None:
        event[BATCHES] = _sets(random, data["batches"])


def layer(data: Data, random: Random) -> None:
    event = _event(data, random)
    assert event is not None
    event[LAYER] = random.choice([None, *range(-1, data["layers"] + 1)])


def inputs(data: Data, random: Random) -> None:
    """Another value goes in: the next one, the one before, any one, one less, one more."""
    program = _program(data, random)
    events = [e for e in program["events"] if e[INPUTS]]
    if not events or not program["values"]:
        return
    event = random.choice(events)
    place = random.randrange(len(event[INPUTS]))
    other = random.randrange(len(program["values"]))
    match random.randrange(6):
        case 0:
            event[INPUTS].pop(place)
        case 1:
            event[INPUTS].insert(place, other)
        case 2:
            random.shuffle(event[INPUTS])
        case _:
            kind = program["values"][event[INPUTS][place]][0]
            alike = [n for n, value in enumerate(program["values"]) if value is not None and value[0] == kind]
            event[INPUTS][place] = random.choice(alike if random.random() < 0.8 else [other])


def outputs(data: Data, random: Random) -> None:
    program = _program(data, random)
    event = random.choice(program["events"])
    if event[OUTPUTS] and random.random() < 0.5:
        event[OUTPUTS].pop(random.randrange(len(event[OUTPUTS])))
    elif len(event[OUTPUTS]) > 1 and random.random() < 0.5:
        event[OUTPUTS].reverse()
    else:
        event[OUTPUTS].append(random.randrange(len(program["values"]) + 1))


def operation(data: Data, random: Random) -> None:
    event = _event(data, random)
    assert event is not None
    event[OP] = random.choice(LIKE[event[OP]])


def argument(data: Data, random: Random) -> None:
    event = _event(data, random, "load_weights", "shard", "cut", "broadcast", "wait")
    if event is None or not event[ARG]:
        return
    place = random.randrange(len(event[ARG]))
    event[ARG][place] = max(0, event[ARG][place] + random.choice([-2, -1, 1, 2]))


def group(data: Data, random: Random) -> None:
    event = _event(data, random, *TALK[2:])
    if event is None:
        return
    ranks = list(range(len(data["programs"])))
    random.shuffle(ranks)
    data["groups"].append(ranks[: random.randint(1, len(ranks))] if random.random() < 0.5 else ranks)
    event[GROUP] = random.choice([len(data["groups"]) - 1, random.randrange(len(data["groups"]))])


def peer(data: Data, random: Random) -> None:
    event = _event(data, random, "pass_to", "receive")
    if event is not None:
        event[PEER] = random.choice([None, *range(len(data["programs"]))])


def blocking(data: Data, random: Random) -> None:
    """Who waited did not wait, though there was the result; or waits at once, and once more."""
    event = _event(data, random, *TALK)
    if event is not None:
        event[BLOCKING] = not event[BLOCKING]


def parts(data: Data, random: Random) -> None:
    """A weight is cut along the other dim, or another part of it is loaded; or a value says that it is another part."""
    if random.random() < 0.7:
        event = _event(data, random, "load_weights")
        if event is not None:
            shard, total, *columns = event[ARG]
            shard = random.choice([shard, shard, *range(total)])
            event[ARG] = (
                [shard, total, *([] if columns else [1])] if random.random() < 0.5 else [shard, total, *columns]
            )
        return
    values = [v for program in data["programs"] for v in program["values"] if v is not None]
    value = random.choice(values)
    if isinstance(value[-1], dict):
        value.pop()
    else:
        value.append({random.choice(["out", "features", "terms"]): [random.choice(["0", "1", "0-1"]), 2]})


def _cut(program: dict[str, Any], at: int) -> list[Any]:
    """Takes an event out; what names later ones names them still."""
    event = program["events"].pop(at)
    for other in program["events"]:
        if other[OP] == "wait" and other[ARG] and other[ARG][0] > at:
            other[ARG] = [other[ARG][0] - 1]
    for move in program["moves"]:
        move[0] -= move[0] > at
    return event


def _insert(program: dict[str, Any], at: int, event: list[Any]) -> None:
    for other in program["events"]:
        if other[OP] == "wait" and other[ARG] and other[ARG][0] >= at:
            other[ARG] = [other[ARG][0] + 1]
    for move in program["moves"]:
        move[0] += move[0] > at
    program["events"].insert(at, event)


def removed(data: Data, random: Random) -> None:
    program = _program(data, random)
    _cut(program, random.randrange(len(program["events"])))


def elsewhere(data: Data, random: Random) -> None:
    """An event earlier or later than it was."""
    program = _program(data, random)
    at = random.randrange(len(program["events"]))
    event = program["events"][at]
    waits = [e for e in program["events"] if e[OP] == "wait" and e[ARG] == [at]]
    _cut(program, at)
    to = random.randint(max(0, at - 4), min(len(program["events"]), at + 4))
    _insert(program, to, event)
    for wait in waits:
        wait[ARG] = [to]


def wait_elsewhere(data: Data, random: Random) -> None:
    programs = [p for p in data["programs"] if any(e[OP] == "wait" for e in p["events"])]
    if not programs:
        return
    program = random.choice(programs)
    at = random.choice([n for n, e in enumerate(program["events"]) if e[OP] == "wait"])
    if random.random() < 0.2:
        _cut(program, at)
    else:
        _insert(program, random.randint(0, len(program["events"]) - 1), _cut(program, at))


def repeated(data: Data, random: Random) -> None:
    """An event twice, with results of its own; perhaps used in the place of the first ones."""
    program = _program(data, random)
    at = random.randrange(len(program["events"]))
    event = copy.deepcopy(program["events"][at])
    new: dict[int, int] = {}
    for number in event[OUTPUTS]:
        new[number] = len(program["values"])
        program["values"].append(copy.deepcopy(program["values"][number]))
    event[OUTPUTS] = [new[number] for number in event[OUTPUTS]]
    _insert(program, at + 1, event)
    later = [e for e in program["events"][at + 2 :] if set(e[INPUTS]) & set(new)]
    if later and random.random() < 0.8:
        user = random.choice(later)
        user[INPUTS] = [new.get(number, number) for number in user[INPUTS]]


def swapped_programs(data: Data, random: Random) -> None:
    programs = data["programs"]
    one, other = random.randrange(len(programs)), random.randrange(len(programs))
    programs[one], programs[other] = programs[other], programs[one]


def moves(data: Data, random: Random) -> None:
    """A value that never was in a store, or left it sooner, or twice, or is another one."""
    programs = [p for p in data["programs"] if p["moves"]]
    if not programs:
        return
    program = random.choice(programs)
    at = random.randrange(len(program["moves"]))
    move = program["moves"][at]
    match random.randrange(6):
        case 0:
            program["moves"].pop(at)
        case 1:
            program["moves"] = [other for other in program["moves"] if other[2] != move[2]]
        case 2:
            move[0] = max(0, min(len(program["events"]), move[0] + random.choice([-2, -1, 1, 2])))
            program["moves"].sort(key=lambda one: one[0])
        case 3:
            move[3] = -move[3]
        case 4:
            move[2] = random.randrange(len(program["values"]))
        case _:
            program["moves"].clear()


def values(data: Data, random: Random) -> None:
    """A value is smaller than it was, or another one."""
    program = _program(data, random)
    if not program["values"]:
        return
    value = random.choice(program["values"])
    place = random.randrange(len(value))
    if isinstance(value[place], int):
        value[place] = random.choice([0, 1, 2, 1000])
    elif place:
        value[place] = random.choice(["", "0", "0-1"])
    else:
        value[:] = copy.deepcopy(random.choice(program["values"]))


def from_elsewhere(data: Data, random: Random) -> None:
    """What was made is a value that came from nowhere."""
    program = _program(data, random)
    events = [e for e in program["events"] if len(e[OUTPUTS]) == 1 and e[OP] not in TALK]
    if events:
        event = random.choice(events)
        event[OP], event[INPUTS], event[ARG] = "foreign", [], []


def heading(data: Data, random: Random) -> None:
    match random.randrange(7):
        case 0:
            data["sandbox"] = True
        case 1:
            data["costs"] = {name: 0 if isinstance(c, int | float) else c for name, c in data["costs"].items()}
            data["costs"]["model"] = "unit"
            data["costs"] = {n: c for n, c in data["costs"].items() if n not in ("host_size", "ratio", "latency")}
        case 2:
            data["layers"] = max(1, data["layers"] - 1)
        case 3:
            data["batches"] = max(1, data["batches"] - 1)
        case 4:
            data["programs"].pop() if len(data["programs"]) > 1 else None
        case 5:
            data["mesh"] = None
        case _:
            data["error"] = "it did not end"


FORGERIES: dict[str, Forgery] = {
    forgery.__name__.replace("_", " "): forgery
    for forgery in (
        *(time, batches, source_batches, layer, inputs, outputs, operation, argument, parts, group, peer, blocking),
        *(removed, elsewhere, wait_elsewhere, repeated, swapped_programs, moves, values, from_elsewhere, heading),
    )
}
