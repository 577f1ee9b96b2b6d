"""What a puzzle requires, at its own size and at others, and how one student's function did there.

A goal at the puzzle's own size is a multiple of what our reference takes: that factor is its slack. At another size the
goal is the same slack times what the reference takes there, for time, memory and sent elements separately. As our
reference reaches every goal, no goal is below what is possible at that size.

The first goal, which a hidden size must reach to pass, is more generous. Other schedules scale in other ways: one that
holds all batches at once needs more than ours as batches grow. So take each solution of ours that reaches the first
goal at the puzzle's own size (the reference, and those in solutions/alternatives/): at another size the goal is never
less than what any of them takes there, plus a quarter. A hidden size is there to find answers that are right at one
size only, and the puzzle's own size to measure how good they are.

A function is run in isolation, and judged here. A run sends back a Trace, or answers: data that anybody may have
made, and `check` trusts none of it. A Trace counts only at exactly the size, mesh and costs that were asked for, which
`Isolation` and `check` both verify. Hidden sizes are run if the function finished at its own size, right or wrong.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from lib.checker.hidden_sizes import bare
from lib.checker.judging import check_data
from lib.checker.verdict import FunctionVerdict, check
from lib.cluster.costs import as_written
from lib.cluster.mesh import Mesh
from lib.errors.exceptions import PuzzleError
from lib.errors.wording import counted, message_of
from lib.puzzles.puzzle import AtSize, Goal, Puzzle, Task
from lib.puzzles.records import PUZZLES
from lib.suite.course.solutions import alternatives, run_of_file
from lib.suite.grade.gradebook import Result, Schedule, Score, schedule_of
from lib.suite.isolation.isolation import Isolation
from lib.suite.isolation.messages import MORE, Limits, Sent
from lib.suite.submissions.function_check import judge_of, wrong_answer
from lib.suite.submissions.load import extract
from lib.suite.submissions.locations import reference
from lib.suite.submissions.source import Source, SourceError
from lib.suite.submissions.table import SEED, Answer, Given, first_failure
from lib.trace.trace import Trace

LEEWAY: Final = Fraction(5, 4)  # how much more the first goal allows than what our own solutions take there
MOST: Final = 20  # hidden sizes of one puzzle: each costs a run for every student


class Unfit(ValueError):
    """A size at which our own reference is not correct, so that it cannot be required. Says why."""


class Figures(NamedTuple):
    """Time in time units, memory in elements on the rank with the highest peak, elements sent by the rank that sends
    most; and the number of events on all ranks."""

    time: float = 0.0
    memory: float = 0.0
    sent: float = 0.0
    events: int = 0


@cache
def own_ways(puzzle: str) -> tuple[Path, ...]:
    """Return the files of our solutions that reach the first goal of a puzzle, the reference first."""
    record = PUZZLES[puzzle]
    others = [path for path in alternatives(puzzle) if check(run_of_file(path, puzzle), record).passed]
    return (reference(puzzle), *others)


@cache
def figures_at(puzzle: str, size: AtSize) -> tuple[Figures, ...]:
    """Return what each of `own_ways` takes at a size, if it is correct there. Unfit where the reference is not."""
    record = bare(PUZZLES[puzzle], **size.given())
    found = (_figures(path, record) for path in own_ways(puzzle))
    if isinstance(first := next(found), str):  # before the others are run
        raise Unfit(f"our own solution of {puzzle} is not correct at {record.size.words()}: {first}")
    return (first, *(figures for figures in found if isinstance(figures, Figures)))


def record_at(puzzle: str, size: AtSize) -> Puzzle:
    """Return the record of a puzzle at another size, with its goals there. Unfit where our reference is not correct."""
    record, at = PUZZLES[puzzle], bare(PUZZLES[puzzle], **size.given())
    own, there = figures_at(puzzle, AtSize(*record.size, record.mesh))[0], figures_at(puzzle, size)

    def limit(goal: Goal, name: str, here: float) -> float:
        """Return what a goal allows there, given what it allows `here`."""
        mine, known = as_written(getattr(own, name)), [as_written(getattr(way, name)) for way in there]
        scaled = as_written(here) / mine * known[0] if mine else as_written(here)
        if goal is record.goals[0]:
            scaled = LEEWAY * max(scaled, *known)
        digits = 100 if name == "time" else 1  # rounded up: no one misses a goal by less than a picture shows
        return math.ceil(scaled * digits) / digits

    goals: list[Goal] = []
    for goal in record.goals:
        sent = record.sent if goal.sent is None else goal.sent
        most = None if sent is None else limit(goal, "sent", sent)
        goals.append(Goal(goal.name, limit(goal, "time", goal.time), limit(goal, "memory", goal.memory), sent=most))
    return replace(at, goals=tuple(goals))


def _figures(path: Path, record: Puzzle) -> Figures | str:
    """Return what one of our solutions takes, or one line that says why it is not correct there."""
    try:
        trace = run_of_file(path, record.id, **AtSize(*record.size, record.mesh, record.costs).given())
    except (PuzzleError, ValueError, LookupError, ArithmeticError) as error:
        return str(error).partition("\n")[0]
    verdict = check(trace, record)
    if not verdict.passed:  # a run that leaves a rank out does not count, however correct
        return (verdict.faults or verdict.notes or ("it does not count",))[0].partition("\n")[0]
    events = sum(len(program.events) for program in trace.programs)
    return Figures(verdict.time, verdict.memory, verdict.sent, events)


def draw_sizes(puzzle: str, count: int, seed: int | str) -> tuple[AtSize, ...]:
    """Draw `count` different sizes of a puzzle, the same for the same seed; fewer if no more can be found.

    They are near the puzzle's own size and unlike it. A size is kept if all solutions of ours that reach the first goal
    are correct there, so that no more is asked than the puzzle says; if whatever divides evenly at its own size and at
    its record's hidden ones does so there, too; and if a run is quick.
    """
    record = PUZZLES[puzzle]
    own = AtSize(*record.size, record.mesh)
    most = 3 * figures_at(puzzle, own)[0].events  # grading is to be quick
    # If something does not divide at a hidden size of the record, it divides at the puzzle's own by accident.
    needed = _divides(own).intersection(*map(_divides, record.hidden))
    found: list[AtSize] = []
    tried = set[AtSize]()
    for size in _candidates(record, Random(f"{seed}:{puzzle}")):
        if len(found) == count or len(tried) == 80:
            break
        uneven = size.mesh is not None and len(set(map(len, size.mesh.processes))) > 1
        if size in tried or uneven or not needed <= _divides(size):
            continue
        tried.add(size)
        try:
            ways = figures_at(puzzle, size)
        except Unfit:
            continue
        if len(ways) == len(own_ways(puzzle)) and ways[0].events <= most:
            found.append(size)
    return tuple(found)


def _candidates(record: Puzzle, random: Random) -> Iterator[AtSize]:

    def near(number: int) -> int:
        """From half to one and a half times a number, and a little more for small ones."""
        return random.randint((number + 1) // 2, number + number // 2 + 1)

    def mesh_near(mesh: Mesh) -> Mesh:
        """A mesh of the same axes with other sizes. Hosts and processes as large as an axis stay as large as it;
        devices in an order of their own are shuffled."""
        axes = {axis: max(min(size, 2), near(size)) for axis, size in mesh.axes.items()}
        order = list(range(math.prod(axes.values())))
        if mesh.ranks != tuple(range(len(mesh))):
            random.shuffle(order)
        shared: dict[str, int | None] = {}
        for name in ("host_size", "processes"):
            number = mesh.to_json().get(name)
            along = next((axis for axis in reversed(list(mesh.axes)) if mesh.axes[axis] == number), None)
            shared[name] = axes[along] if along is not None else number if isinstance(number, int) else None
        return Mesh(axes, ranks=order, **shared)

    for _ in range(4000):  # then there are no more to find
        try:
            mesh = None if record.mesh is None else mesh_near(record.mesh)
        except ValueError:  # the devices do not fill such hosts or processes
            continue
        ranks = len(mesh) if mesh is not None else near(record.ranks) if record.ranks > 1 else 1
        fixed = record.has_its_own_layers
        layers, batches = record.layers if fixed else near(record.layers), near(record.batches)
        if random.random() < 0.5 and record.batches % record.ranks == 0:  # else it would seldom divide evenly
            batches = ranks * (record.batches // record.ranks)
        size = AtSize(ranks, layers, batches, mesh)
        if sum(mine != other for mine, other in zip(record.size, size, strict=False)) >= (1 if fixed else 2):
            yield size


def _divides(size: AtSize) -> set[tuple[str, str]]:
    """Return which of layers and batches are divisible by the ranks, and by each axis of the mesh, at a size."""
    parts = {"ranks": size.ranks} | ({} if size.mesh is None else dict(size.mesh.axes))
    wholes = {"layers": size.layers, "batches": size.batches}
    return {(whole, part) for whole in wholes for part, count in parts.items() if wholes[whole] % count == 0}


# -- one function --------------------------------------------------------------------------------------------------

INPUTS: Final = 200  # most random inputs in a hidden set of a plain function


@dataclass(frozen=True, slots=True)
class Required:
    """The requirements of one puzzle: the goal `need` (None: correct is enough), and its records at `hidden` sizes; for
    a plain function, `seeds` of sets of random inputs. `events` are the numbers of events our own solution records, at
    the puzzle's size and at the others, and `key` is unique to these requirements."""

    record: Puzzle
    need: str | None
    hidden: tuple[Puzzle, ...] = ()
    events: tuple[int, ...] = ()
    seeds: tuple[str, ...] = ()
    key: str = ""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The hidden sizes in words."""
        if self.record.is_function:
            draws = counted(min(self.record.draws, INPUTS), "random input", ",")
            return tuple(f"{draws} (set {number})" for number in range(1, len(self.seeds) + 1))
        costs = self.record.costs
        return tuple(Task(at).size() + ("" if at.costs == costs else "; other costs") for at in self.hidden)


class Judged(NamedTuple):
    """A score, without the file, and the schedule at the puzzle's own size, if any."""

    score: Score
    schedule: Schedule | None = None


class _Asked(NamedTuple):
    """The question to one run, at the size of a record; `size` is set if that is not the puzzle's own. `need` is the
    goal to reach, `events` the number our own solution records, and `name` is unique to the question."""

    record: Puzzle
    words: str
    need: str | None = None
    events: int = 0
    name: str = ""
    size: AtSize | None = None

    def result(self, state: str, text: str) -> Result:
        """A result in words; a size that the student may not know is named first."""
        # Addresses in memory differ from run to run.
        text = re.sub(r"\b0x[0-9a-fA-F]{6,}\b", "0x...", text if self.size is None else f"At {self.words}: {text}")
        return Result(self.words, state, message=text if len(text) <= 6000 else text[:6000] + MORE)

    def unanswered(self, sent: Sent) -> Result:
        """The result of a function that did not finish."""
        if sent.outcome == "unsolved":
            return self.result("unsolved", f"{self.record.id} is not solved: it still holds its stub.")
        return self.result("failed", sent.text)

    def unjudged(self, error: Exception) -> Result:
        """The result of a function whose data the judge cannot cope with."""
        why = f"({type(error).__name__}: {message_of(error)})"
        return self.result("failed", f"what {self.record.id} sent back cannot be judged {why}")


def judge_source(source: Source, required: Required, isolation: Isolation, limits: Limits) -> Judged:
    """Judge the function of one puzzle in a source. Nothing that the source does makes this raise."""
    puzzle, hints = required.record.id, required.record.hints
    opened = re.compile(rf"""\bhint\(\s*["']{re.escape(puzzle)}["']\s*,\s*(\d{{1,3}})\s*\)""")
    texts = [text for _, text in source.cells if "hint(" in text]
    numbers = [min(int(number), len(hints)) for text in texts for number in opened.findall(text)]
    ran, key = _ran_here.setdefault(isolation, {}), _code_of(source, required, limits)
    if key not in ran:
        keep_latest(ran, key, _judged(source, required, isolation, limits))
    judged = ran[key]
    return judged._replace(score=replace(judged.score, hints=max(numbers, default=None)))


# Results by what a run is given: if students hand in the same function, it is run once, whatever else their files
# and comments say.
_ran_here: WeakKeyDictionary[Isolation, dict[object, Judged]] = WeakKeyDictionary()


def _code_of(source: Source, required: Required, limits: Limits) -> object:
    """Return a key for what a run of a source is given: the code extracted from it, and the requirements."""
    with suppress(SourceError):
        return sha256(pickle.dumps(extract(source, required.record.id))).digest(), required.key, limits
    return source, required.key, limits


def _judged(source: Source, required: Required, isolation: Isolation, limits: Limits) -> Judged:
    """Run the function of one puzzle at its own size and at the hidden ones, which can only worsen the result."""
    record, words = required.record, _own_words(required.record)
    hidden: list[Result] = []
    schedule: Schedule | None = None
    with isolation.one_after_another():
        if record.is_function:
            ask = partial(isolation.answers, source, record.id, limits=limits)
            own, ended = _answered(_Asked(record, words), ask)
            for seed, elsewhere in zip(required.seeds, required.sizes, strict=True) if ended else ():
                hidden.append(_answered(_Asked(record, elsewhere), ask, seed)[0])
        else:
            run = partial(isolation.run, source, record.id, limits=limits)
            own, sent = _ran(_Asked(record, words, required.need, required.events[0], f"{required.key} own"), run)
            for number, at in enumerate(required.hidden if sent is not None and sent.outcome == "trace" else ()):
                need = None if required.need is None else at.goals[0].name
                name, size = f"{required.key} {number}", AtSize(*at.size, at.mesh, at.costs)
                asked = _Asked(at, required.sizes[number], need, required.events[number + 1], name, size)
                hidden.append(_ran(asked, run)[0])
            if sent is not None and sent.trace is not None:
                schedule = _schedules.get(sent.schedule) or schedule_of(sent.trace)
                if len(schedule.packed) <= 2**18:
                    keep_latest(_schedules, sent.schedule, schedule)
                own = replace(own, schedule=schedule.digest)
    elsewhere, state = {result.state for result in hidden}, own.state
    if own.correct:
        state = "partly" if elsewhere & {"failed", "unsolved"} else "missed" if "missed" in elsewhere else state
    return Judged(Score(record.id, state, own, tuple(hidden), source=source.normalised(record.id)), schedule)


def reference_result(required: Required) -> tuple[Result, Schedule] | None:
    """Return the result of our own solution at the puzzle's size, and its schedule; None for a plain function."""
    record = required.record
    if record.is_function:
        return None
    trace = run_of_file(reference(record.id), record.id)
    schedule = schedule_of(trace)
    own = _checked(trace, _Asked(record, _own_words(record), required.need))[0]
    return replace(own, schedule=schedule.digest), schedule


def _own_words(record: Puzzle) -> str:
    if record.is_function:
        return f"{counted(len(record.table), 'given input')} and {counted(record.draws, 'random one', ',')}"
    return Task(record).size()


# Results of `check` by a Trace's bytes and the question: many students find the same schedule, and the same bytes get
# the same result. Only results that name no line of the source are shared.
_verdicts: dict[tuple[str, str], Result] = {}
_schedules: dict[str, Schedule] = {}  # of Traces, by their bytes


def keep_latest(known: dict[Any, Any], key: object, value: object) -> None:
    """Remember something; if there is too much, forget the oldest."""
    known[key] = value
    if len(known) > 2048:
        del known[next(iter(known))]


def _ran(asked: _Asked, run: Callable[..., Sent]) -> tuple[Result, Sent | None]:
    """Return the result of a run, and what was sent, if that is worth keeping."""
    sent = run(size=asked.size)
    trace, key = sent.trace, (sent.schedule, asked.name)
    programs = () if trace is None else trace.programs
    events, moves = (sum(map(len, part)) for part in ([p.events for p in programs], [p.moves for p in programs]))
    most = 20 * asked.events + 20
    if events > most or moves > 5 * most:  # no answer needs more, and a check would take minutes
        done = counted(events, "operation", ",") if events > most else f"{moves:,} changes of its stores"
        why = f"{asked.record.id} records {done}, and our own solution {asked.events:,} operations"
        return asked.result("failed", why + "\n  fix:      look for a loop that does the same again and again"), None
    if sent.outcome != "trace" or trace is None:
        return asked.unanswered(sent), sent
    if key not in _verdicts:
        try:
            result, is_clear = _checked(trace, asked)
        except Exception as error:
            return asked.unjudged(error), sent
        if not is_clear:
            return result, sent
        keep_latest(_verdicts, key, result)
    return _verdicts[key], sent


def _answered(asked: _Asked, ask: Callable[..., Sent], seed: str | None = None) -> tuple[Result, bool]:
    """Ask a plain function its record's inputs, or a seed's; return the result and whether it finished."""
    record = asked.record

    def answers(inputs: Sequence[Given]) -> Sequence[Answer]:
        sent = ask(inputs)
        if sent.outcome != "answers":
            raise _Silent(sent)
        return sent.answers

    # The table belongs to the puzzle; other inputs are drawn for each seed.
    told = (record.table, record.draws) if seed is None else ((), min(record.draws, INPUTS))
    try:
        count, failure = first_failure(
            *told, judge_of(record.id, reference(record.id)), answers, SEED if seed is None else seed
        )
        faults = () if failure is None else (str(wrong_answer(record.id, failure, record.fix)),)
        verdict = FunctionVerdict(record.id, count, faults)
        return asked.result("passed" if verdict.correct else "failed", verdict.text()), True
    except _Silent as silent:
        return asked.unanswered(silent.sent), False
    except Exception as error:
        return asked.unjudged(error), True


class _Silent(Exception):
    """A function did not answer; holds what came instead."""

    def __init__(self, sent: Sent) -> None:
        super().__init__(sent.outcome)
        self.sent = sent


def _checked(trace: Trace, asked: _Asked) -> tuple[Result, bool]:
    """Return the result of `check` for a Trace, and whether it says nothing about the source."""
    verdict = check_data(trace, asked.record)
    if not verdict.correct:
        return asked.result("failed", replace(verdict, goals=()).text()), False  # no goal can be near yet
    goals = tuple(goal.name for goal in verdict.goals if goal.reached)
    state = "passed" if asked.need is None or asked.need in goals else "missed"
    figures = {"time": verdict.time, "memory": verdict.memory, "sent": verdict.sent, "rank": verdict.rank}
    return replace(asked.result(state, verdict.text()), goals=goals, **figures), not verdict.notes
