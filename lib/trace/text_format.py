"""A schedule as text: one line a rank, one word an operation, and back again.

    llm-training-puzzles 1 layers=2 batches=4 ranks=1
    costs {"model":"unit","forward":1.0,...}
    0| W0@0.1>0,1 +w0 +o1 I:0-3>2 +a2 F0:0-3/2,0>3 +a3 ... B0:0-3/2,8,0>9,10 U0/9,0,1>11,12 E0/11

A word is `operation layer :batches @arguments %group /inputs >outputs`, without the parts that it does not need:

    W load_weights @shard.total    I get_activation    F forward    X loss    B backward    U update
    BI its input half              BW its weight half
    E set_final_weight             P add `+`           C combine    K shard   Z fake_grad   Q a value from elsewhere
    AR all-reduce   AG all-gather   RS reduce-scatter   AA all-to-all   BC broadcast @root
    S3 pass to rank 3              R3 receive from rank 3              =7 wait for event number 7 of the line
    D read @place in the queue of the process's reader

(and all others in the tables of operations and collectives; `@shard.total.1` loads columns of a weight)

`~` after a communication means that it was not awaited at once; `%0.2.4` names its group if that is not all ranks.
`+w0` and `-w0` mean that value 0 enters or leaves the weights (o optimizer states, a activations, g activation
gradients, d weight gradients). There are no times: reading works them out from the costs, and values from the rules.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from lib.errors.exceptions import PuzzleError, TraceError
from lib.record import replace
from lib.trace.event import Event, Program
from lib.trace.json_format import encode, once, set_text
from lib.trace.rebuild import rebuild
from lib.trace.trace import Trace
from lib.trace.validation import TABLES, decode
from lib.values.collectives import COLLECTIVES
from lib.values.operations import COMMUNICATION, MESSAGES, OPERATIONS
from lib.values.placement import Rest
from lib.values.values import KINDS, fields_of

HEADERS = ("costs", "mesh", "padding", "layer_descriptions", "puzzle", "error")
_STORES = "woagd"
_REST = (
    r"(?P<number>-?\d+)?(?::(?P<batches>[\d,-]*))?(?:@(?P<arg>[\d.]+))?"
    r"(?:%(?P<group>[\d.]+))?(?P<later>~)?(?:/(?P<inputs>[\d,]+))?(?:>(?P<outputs>[\d,]+))?"
)
_ELSEWHERE = re.compile(
    r"Q(?P<kind>[0-4])(?P<fields>(?:;[\d,-]*)*)(?P<rest>(;[a-z]+=[\d,-]*/\d+)*)>(?P<output>\d+)", re.ASCII
)
_MOVE = re.compile(r"(?P<sign>[+-])(?P<store>[woagd])(?P<value>\d+)", re.ASCII)
_HEAD = re.compile(r"llm-training-puzzles 1 layers=(\d{1,7}) batches=(\d{1,7}) ranks=(\d{1,7})( sandbox)?", re.ASCII)


def _shows_batches(op: str) -> bool:
    return op in OPERATIONS and OPERATIONS[op].has_batches


def to_text(run: Trace) -> str:
    """Return the text of a run: a heading, its costs, its mesh if it has one, and a line a rank."""
    head = replace(run, programs=(), puzzle=None)
    data = encode(head)
    sandbox = " sandbox" if run.sandbox else ""
    lines = [f"llm-training-puzzles 1 layers={run.layers} batches={run.batches} ranks={run.ranks}{sandbox}"]
    headers = [name for name in HEADERS if data.get(name) is not None]
    lines.extend(f"{name} {json.dumps(data[name], separators=(',', ':'))}" for name in headers)
    everybody, texts = tuple(range(run.ranks)), dict[int, str]()
    lines.extend(f"{program.rank}| {' '.join(_words(program, everybody, texts))}".rstrip() for program in run.programs)
    return "\n".join(lines) + "\n"


def _words(program: Program, everybody: tuple[int, ...], texts: dict[int, str]) -> list[str]:
    words: list[str] = []
    at, moves = 0, program.moves
    for index in range(len(program.events) + 1):
        while at < len(moves) and moves[at][0] <= index:
            _, store, value, change = moves[at]
            words.append(f"{'+' if change > 0 else '-'}{_STORES[store]}{value}")
            at += 1
        if index < len(program.events):
            words.append(_word(program, program.events[index], everybody, texts))
    return words


def _word(program: Program, event: Event, everybody: tuple[int, ...], texts: dict[int, str]) -> str:
    """Return the word of an event. `texts` has the texts of sets by id: these may be long, and are mostly shared."""
    op = event.op
    if op == "foreign":
        value = program.values[event.outputs[0]]
        assert value is not None, "a value from elsewhere is stated"
        fields = map(_field, fields_of(value))
        return f"Q{list(KINDS).index(value.kind)};{';'.join(fields)}>{event.outputs[0]}"
    word = (COLLECTIVES[op] if op in COLLECTIVES else OPERATIONS[op]).word
    if op in MESSAGES:
        word += "" if event.peer is None else str(event.peer)
    elif op == "wait":
        word += str(event.arg[0])
    elif op in COLLECTIVES or OPERATIONS[op].about == "call":
        word += str(event.layer)
    if _shows_batches(op):
        if id(event.batches) not in texts:
            texts[id(event.batches)] = set_text(event.batches)
        word += f":{texts[id(event.batches)]}"
    if event.arg and op != "wait":
        word += "@" + ".".join(map(str, event.arg))
    if event.group and event.group != everybody:
        word += "%" + ".".join(map(str, event.group))
    if op in COMMUNICATION and not event.blocking:
        word += "~"
    for sign, ids in (("/", event.inputs), (">", event.outputs)):
        if ids:
            word += sign + ",".join(map(str, ids))
    return word


def _field(item: Any) -> str:
    if isinstance(item, tuple):
        return ";".join(f"{role}={set_text(pieces)}/{total}" for role, pieces, total in cast("Rest", item))
    return set_text(cast("frozenset[int]", item)) if isinstance(item, frozenset) else str(item)


def from_text(source: str) -> Trace:
    """Return the run that a text describes, its values by the rules and its times by its costs. TraceError if it is
    wrong.

    The text first becomes JSON (see `rows`), so that one reader checks everything that comes from outside.
    """
    lines = [line for line in source.splitlines() if line.strip()]
    head = _HEAD.fullmatch(lines[0].strip()) if lines else None
    if head is None:
        raise TraceError("a schedule begins with a line like: llm-training-puzzles 1 layers=2 batches=4 ranks=4")
    layers, batches, ranks = (int(head[i]) for i in (1, 2, 3))
    empty = encode(Trace(max(layers, 1), max(batches, 1), ()))
    data = {name: item for name, item in empty.items() if name not in TABLES}
    data |= {"version": 1, "sandbox": head[4] is not None}  # a word is a row
    rest = lines[1:]
    while rest and (name := rest[0].split(" ", 1)[0]) in HEADERS:
        try:
            data[name] = json.loads(rest.pop(0)[len(name) :], object_pairs_hook=once)
        except TraceError as error:
            raise TraceError(f"the line of {name}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise TraceError(f"the line of {name} is not JSON: {error}") from None
    if len(rest) != ranks:
        raise TraceError(f"the heading promises {ranks} ranks, the text has {len(rest)} lines of them")
    state = _Reader(ranks)
    data["programs"] = [state.program(rank, line) for rank, line in enumerate(rest)]
    data["groups"] = [*map(list, state.groups)]
    run = decode(data, whole=False)
    try:
        rebuilt = rebuild(run).run
    except PuzzleError as error:
        raise TraceError(f"the schedule breaks a rule: {error}") from None
    for rank, (said, made) in enumerate(zip(run.programs, rebuilt.programs, strict=True)):
        for before, after in zip(said.events, made.events, strict=True):
            # The batches in a word must be those of its values.
            if _shows_batches(before.op) and before.batches != after.batches:
                raise TraceError(
                    f"rank {rank}: {before.op} says batches {set_text(before.batches)!r}, its values have "
                    f"{set_text(after.batches)!r}"
                )
    return rebuilt


class _Reader:
    """Turns words into the JSON form of events. Errors show the line up to the word, as `<-- here`."""

    def __init__(self, ranks: int) -> None:
        self.everybody = list(range(min(ranks, 10**6)))
        self.groups: dict[tuple[int, ...], int] = {}
        # A value that is stated with all its fields has a form of its own (see `elsewhere`).
        stated = [row for row in OPERATIONS.values() if row.rule is not None or row.kind != "local"]
        self.operations = {row.word: row.name for row in (*stated, *COLLECTIVES.values())}
        # The longest first, so that BI is not read as a B that has a strange number.
        words = "|".join(re.escape(word) for word in sorted(self.operations, key=len, reverse=True))
        self.form = re.compile(f"(?P<op>{words}){_REST}", re.ASCII)

    def program(self, rank: int, line: str) -> dict[str, Any]:
        label, bar, body = line.partition("|")
        if not bar or label.strip() != str(rank):
            raise TraceError(f"expected the line of rank {rank}, beginning with '{rank}|'; got {line[:40]!r}")
        events: list[list[Any]] = []
        moves: list[list[int]] = []
        values: dict[int, list[Any] | None] = {}
        words = body.split()
        for at, word in enumerate(words):
            if move := _MOVE.fullmatch(word):
                change = 1 if move["sign"] == "+" else -1
                moves.append([len(events), _STORES.index(move["store"]), int(move["value"]), change])
                continue
            event = self.elsewhere(word, values) or self.event(word)
            if event is None:
                raise TraceError(f"rank {rank}: {' '.join(words[max(0, at - 3) : at + 1])} <-- here: no such word")
            for number in event[4]:
                values.setdefault(number, None)
            events.append(event)
        if sorted(values) != list(range(len(values))):
            raise TraceError(f"rank {rank}: values are numbered 0, 1, 2, ... and each is made once")
        return {"values": [values[i] for i in range(len(values))], "events": events, "moves": moves}

    def elsewhere(self, word: str, values: dict[int, list[Any] | None]) -> list[Any] | None:
        match = _ELSEWHERE.fullmatch(word)
        if match is None:
            return None
        cls, (_, *fields) = list(KINDS.values())[int(match["kind"])], match["fields"].split(";")
        made = [
            field if name in ("batches", "shards") else _integer(field)
            for name, field in zip(cls.__match_args__, fields, strict=False)
        ]
        number = int(match["output"])
        rest: dict[str, list[Any]] = {}
        for part in match["rest"].split(";")[1:]:
            role, _, pieces = part.partition("=")
            items, _, total = pieces.partition("/")
            rest[role] = [items, _integer(total)]
        values[number] = [cls.kind, *made, rest] if rest else [cls.kind, *made]
        return ["foreign", None, "", [], [number], 0, 0, 0, -1, [], -1, None, False]

    def event(self, word: str) -> list[Any] | None:
        match = self.form.fullmatch(word)
        if match is None:
            return None
        op = self.operations[match["op"]]
        arg, members = (list(map(_integer, match[name].split("."))) if match[name] else [] for name in ("arg", "group"))
        inputs, outputs = ([_integer(n) for n in (match[side] or "").split(",") if n] for side in ("inputs", "outputs"))
        layer = None if match["number"] is None else _integer(match["number"])
        talks, group, peer = op in COMMUNICATION, -1, None
        if op in MESSAGES:
            peer, layer = layer, None
        elif op == "wait":
            arg, layer = ([] if layer is None else [layer]), None
        if op in COLLECTIVES:
            group = self.groups.setdefault(tuple(members or self.everybody), len(self.groups))
        elif match["group"] or (match["later"] and not talks):
            return None
        blocking = talks and match["later"] is None
        # Communication gets its start from the costs.
        start = None if talks else 0
        return [op, layer, match["batches"] or "", inputs, outputs, 0, start, 0, -1, arg, group, peer, blocking]


def _integer(text: str) -> int:
    if not text.lstrip("-").isdigit() or len(text) > 8:
        raise TraceError(f"{text[:20]!r} is not a number that a schedule has")
    return int(text)
