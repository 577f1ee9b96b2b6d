"""Requests to a limited process, and what it sends back.

A request is a pickle, as only our own processes send one. What comes back is untrusted, and read only here, as data.
It is two lines of JSON. The first is the Trace (null if there is none), without places in the source: equal schedules
give equal lines, and a line that was read before is not read again. The second is the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from lib.errors.source_lines import Place
from lib.puzzles.puzzle import AtSize
from lib.puzzles.records import PUZZLES
from lib.suite.submissions.load import Extract
from lib.suite.submissions.table import Answer, Given, decode, encode
from lib.trace.trace import Trace

QUESTIONS: Final = 16
"""The most requests that one child answers; its processor time is this many times that of one."""
MAX_TEXT = 20_000
MAX_PRINTED = 4000  # characters kept of a function's output
MORE = "\n(and more)"
KNOWN = 2**20  # most bytes of a schedule whose Trace is cached


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a process: `seconds` of real time for the function; `memory`, in bytes; `written`, bytes of each
    file it writes; `sent`, bytes it may send back; `processes`, processes and threads of its user at once; `files`,
    files open at once."""

    seconds: float = 10.0
    memory: int = 3 * 2**29
    written: int = 16 * 2**20
    sent: int = 16 * 2**20
    processes: int = 4096
    files: int = 256


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a process: to run a function at a size (None: the puzzle's), or to answer inputs.

    The function is in a `file`, or already extracted from one (`extract`). `size` has what differs from the puzzle's.

    For grading, `solutions` are the sources of our own functions that the puzzle builds on, by puzzle, and `schedules`
    the code of our schedules, by module: no other answer of ours is available.
    `lines`: the message of a mistake shows the line that fixes it, not only the idea.
    """

    puzzle: str
    limits: Limits
    file: str = ""
    extract: Extract | None = None
    solutions: Mapping[str, str] | None = None
    schedules: Mapping[str, bytes] | None = None
    size: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: Sequence[Given] | None = None
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """The validated answer of a process. `text` says why it failed; a failed run has the Trace up to there, if any.
    `schedule` is a digest of the bytes sent as a Trace, and so is equal for equal schedules."""

    outcome: str
    text: str = ""
    printed: str = ""
    trace: Trace | None = None
    answers: tuple[Answer, ...] = ()
    schedule: str = ""


class Kept(io.TextIOBase):
    """Keeps the beginning of the output, and drops the rest."""

    text, room = "", MAX_PRINTED

    def write(self, text: str, /) -> int:
        if self.room >= 0:
            self.text += text[: self.room] + (MORE if len(text) > self.room else "")
            self.room -= len(text)
        return len(text)


# -- out ------------------------------------------------------------------------------------------------------------


def written(sent: Sent, printed: str) -> bytes:
    """Return the bytes that a process sends: see above."""
    from lib.trace.json_format import Numbers
    from lib.trace.json_format import encode as json_of

    data = None if sent.trace is None else json_of(sent.trace, lines=False)
    rest: dict[str, Any] = {
        "outcome": sent.outcome,
        "text": sent.text[:MAX_TEXT],
        "printed": "" if sent.outcome == "unsolved" else printed,
        "answers": [[encode(answer.value), *(text[:MAX_TEXT] for text in answer[1:])] for answer in sent.answers],
        "places": [],
        "lines": [],
    }
    if sent.trace is not None:  # its places go in a list, and each rank's events have their indices in it
        numbers = Numbers()
        for program in sent.trace.programs:
            rest["lines"].append(numbers.column([event.source for event in program.events], sent.trace.line))
        rest["places"] = [*map(list, numbers.items)]
    return "\n".join(json.dumps(one, separators=(",", ":")) for one in (data, rest)).encode()


# -- in -------------------------------------------------------------------------------------------------------------


FIELDS: Final = ("outcome", "text", "printed", "answers", "places", "lines")
OUTCOMES: Final = ("trace", "answers", "unsolved", "source", "failed")
"""It ran; it answered; it is still the stub; the file is unusable; anything else."""


def read(content: bytes, request: Request) -> Sent | None:
    """Return what a process has sent, if it is valid. It ran a student's code, and so may have sent anything."""
    from lib.trace.json_format import parse

    first, newline, second = content.partition(b"\n")
    try:
        rest: dict[str, Any] = parse(second) if newline else {}
        outcome, text, printed, told, places, lines = (rest[name] for name in FIELDS)
        if len(rest) != len(FIELDS) or outcome not in OUTCOMES:
            return None
        if outcome == ("trace" if request.inputs is not None else "answers"):
            return None
        text, printed = _text(text), _text(printed, MAX_PRINTED + len(MORE))
        digest, trace = "", None
        if first != b"null":
            digest, read_trace = sha256(first).hexdigest(), _trace_in if len(first) <= KNOWN else _trace_in.__wrapped__
            trace = _with_places(read_trace(first), places, lines)
        if outcome == "trace" and (trace is None or trace.error is not None):
            return None
        answers = tuple(Answer(decode(value), *map(_text, [raised, why, at])) for value, raised, why, at in told)
        if outcome == "answers" and len(answers) != (asked := len(request.inputs or ())):
            return Sent("failed", f"{request.puzzle} gave {len(answers)} answers to {asked} inputs", printed)
        return Sent(outcome, text, printed, trace, answers, digest)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError):  # a TraceError is a ValueError
        return None


def _text(value: Any, most: int = MAX_TEXT) -> str:
    """A text that every terminal and file accepts: a lone surrogate, which UTF-8 does not allow, becomes "?".
    ValueError if it is not text, or too long."""
    if not isinstance(value, str) or len(value) > most:
        raise ValueError("this is not text")
    return value.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=64)
def _trace_in(content: bytes) -> Trace:
    """Read a Trace. Equal bytes give the same one, from any sender."""
    from lib.trace.json_format import parse
    from lib.trace.validation import decode as trace_from  # not above: only a schedule needs it

    return trace_from(parse(content))


def _with_places(trace: Trace, places: Any, lines: Any) -> Trace:
    """The run with each event's line. ValueError or TypeError if these are not valid places."""
    from lib.trace.json_format import with_places

    if len(places) > 100_000:
        raise ValueError("these are not places")
    known: list[Place | None] = []
    for file, line, function, text in places:
        if type(line) is not int:
            raise ValueError("this is not a place")
        known.append(Place(_text(file), line, _text(function), _text(text)))
    known.append(None)  # -1 means none
    located: list[list[Place | None]] = []
    for program, numbers in zip(trace.programs, lines, strict=True):
        fit = all(type(number) is int and -1 <= number < len(places) for number in numbers)
        if len(numbers) != len(program.events) or not fit:
            raise ValueError("these are not places of its events")
        located.append([known[number] for number in numbers])
    return with_places(trace, located)


# -- asked ---------------------------------------------------------------------------------------------------------


def asked_for(trace: Trace, puzzle: str, size: AtSize | None = None) -> str | None:
    """Say why a Trace is not of the requested run; None if it is. Whether it is a correct step is not checked
    here."""
    from lib.checker.judging import wrong_size  # not above: a process that runs a function never judges it

    record = PUZZLES[puzzle]
    if size is not None:
        mesh = record.mesh if size.mesh is None and size.ranks == record.ranks else size.mesh
        record = replace(record, **size._replace(mesh=mesh).given())
    faults = wrong_size(trace, record)
    theirs, ours = (one and one.to_json() for one in (trace.mesh, record.mesh))
    if (trace.costs, theirs, trace.puzzle, trace.sandbox) != (record.costs, ours, puzzle, False):
        faults.append("it says that it has other costs or another mesh, or is of another puzzle or of a sandbox")
    if not faults:
        return None
    first = faults[0].partition("\n")[0]
    return (
        f"what came back is not the run of {puzzle} that was asked for: {first}\n"
        f"  fix:      let {puzzle} use the Model that it is given, and nothing else of the simulator"
    )
