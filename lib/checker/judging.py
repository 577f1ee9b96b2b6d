"""The verdict: is a Trace one correct training step, and how good is it?

The run is rebuilt from scratch (see rebuild) and timed anew: no time and no value is taken from the Trace on trust.
Correct means: for every layer the final weights of all ranks together are complete; each descends from
loaded weights by exactly one update, whose gradient has every batch exactly once; those gradients come from backward
of activations that come from forward of inputs, all with the weights as loaded; and nothing on the way was forged,
made up or loaded twice.

Most of that is checked elsewhere. That a gradient has every batch exactly once is a rule of the update
(`rules.update`), and that no batch is in a sum twice is the law of sums (`laws.reduce`); `rebuild` applies both again
to each operation, and notes what is dishonest. The results are left for this room. docs/architecture.md follows one
all-reduce through all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lib.analysis import figures
from lib.checker.faults import fault_of, finals, maker_of, places, remark, unready, words_of
from lib.checker.verdict import Verdict
from lib.errors import fixes
from lib.errors.exceptions import PuzzleError, TraceError
from lib.errors.wording import counted, more, with_article
from lib.record import replace
from lib.trace.event import STORE, STORES, Program
from lib.trace.lifetimes import by_twin, never_awaited
from lib.trace.order import messages, operations_in
from lib.trace.rebuild import Rebuilt, rebuild
from lib.trace.trace import ModelLike, Trace, trace_of, without_collector
from lib.values.operations import READS

if TYPE_CHECKING:
    from lib.cluster.mesh import Mesh
    from lib.puzzles.puzzle import Goal, Puzzle

PRETENDED = "this Model is a sandbox, so made-up gradients were accepted; with a Dist they are not."
Found = tuple[float, float, float]  # what goals limit: a run's end, its peak, the most that any rank sends

# The modules with words on puzzles and goals (`notes`, `records`) are imported where they are needed.


@without_collector()
def check_data(trace: Trace, record: Puzzle) -> Verdict:
    """Return the verdict on a run of a puzzle. The run is plain data, such as freshly decoded JSON that no other code
    has touched since."""
    # A goal without a limit on what is sent has the puzzle's.
    goals = [goal._replace(sent=record.sent) if goal.sent is None else goal for goal in record.goals]
    return judge(trace, record, goals)


@without_collector()
def counts(models: Sequence[ModelLike], record: Puzzle) -> bool:
    """Check that a run is correct and makes its puzzle no easier, without the figures of a verdict, which take time."""
    # Not as plain data, which takes a third longer: a forger only deceives himself here, as the grader judges data.
    try:
        faults, rebuilt = _rebuilt(trace_of(models, ""), record, False, timed=False)  # 10 % faster; no rule asks when
        return rebuilt is not None and not faults and not unready(rebuilt) and not _easier(rebuilt.run, record, rebuilt)
    except Exception:  # of any class: a foreign object may raise anything
        return False  # a verdict on the run as plain data says what is wrong


def judge(trace: Trace, record: Puzzle | None, goals: Sequence[Goal], sandbox: bool = False) -> Verdict:
    """Rebuild a run, time it with the costs of the puzzle, and say what is wrong with it and how good it is. Nothing
    cached on the Trace is used: it may have been changed."""
    faults, rebuilt = _rebuilt(trace, record, sandbox, timed=True)
    # A run that breaks a rule keeps the figures that it states. They reach no goal, as it has a fault.
    timed = trace if rebuilt is None else rebuilt.run
    # Only a run without faults is asked whether the next step could follow: the others would be told the same twice.
    # Without a puzzle this is only a remark, as one step by itself is correct without a next one.
    stale = unready(rebuilt, sandbox) if rebuilt is not None and not faults else []
    faults += stale if record is not None else []
    hidden = figures.hidden(timed)
    flaws = [] if rebuilt is None or not sandbox else [flaw for _, _, flaw in rebuilt.finals.values()]
    remarks = [PRETENDED] if any(flaw is not None and flaw.pretended for flaw in flaws) else []
    remarks += fed(timed)
    remarks += forgotten(timed, hidden, judged=len(goals) > 1 and not faults)
    remarks += stale if record is None else []
    end, (elements, _, _, most) = figures.end(timed), figures.highest(timed)
    # Counting what is sent takes a pass over all collectives, so it is done only where it matters.
    limited = any(goal.sent is not None for goal in goals)
    sent = 0.0 if record is None or (faults and not limited) else figures.most_sent(timed)
    # Exact up to here, for sums of fractions; a goal is compared with the number that is printed.
    memory = float(elements)
    counting, notes = len(goals), list[str]()
    if record is not None or any(not goal.allows(end, memory) for goal in goals):
        counting, notes = _against(trace, timed, record, goals, (end, memory, sent), None if faults else rebuilt)
    # A variable's value counts only until its last use: what to delete, and when, would no longer be a puzzle.
    counting = min(counting, 1) if hidden and record is not None else counting
    return Verdict(
        correct=not faults,
        time=end,
        printed=figures.printed(timed),
        memory=memory,
        rank=most,
        faults=tuple(faults),
        notes=(*remarks, *notes),
        goals=tuple(goal._replace(reached=goal.allows(end, memory) and n < counting) for n, goal in enumerate(goals)),
        puzzle=None if record is None else record.id,
        sent=sent,
    )


def _rebuilt(trace: Trace, record: Puzzle | None, sandbox: bool, *, timed: bool) -> tuple[list[str], Rebuilt | None]:
    """Return what is wrong with a run, and the rebuilt run, or None if it cannot be rebuilt."""
    faults = [] if record is None else wrong_size(trace, record)
    rebuilt: Rebuilt | None = None
    try:
        # A copy of the costs: what the run cached in them may have been tampered with.
        rebuilt = rebuild(trace if record is None else replace(trace, costs=replace(record.costs)), timed=timed)
    except (PuzzleError, TraceError) as error:
        faults.append(fault_of(error))
    if trace.error is not None:  # it ended early, so the reason for that is told, not what its final weights lack
        faults.insert(0, "the run did not end: " + trace.error.replace("\n", "\n  "))
    elif rebuilt is not None:
        faults.extend(finals(trace, rebuilt, sandbox))
    return faults, rebuilt


def _against(
    trace: Trace, timed: Trace, record: Puzzle | None, goals: Sequence[Goal], found: Found, rebuilt: Rebuilt | None
) -> tuple[int, list[str]]:
    """Compare a run with goals: how many of them count for it, from the easiest on, and why it misses the first of the
    others. `rebuilt` is None for an incorrect run, for which the reason does not matter."""
    from lib.checker import lateness, notes

    (end, memory, sent), said = found, list[str]()
    # A limit on what is sent applies to its goal and all harder ones.
    over = next((n for n, goal in enumerate(goals) if goal.sent is not None and sent > goal.sent), len(goals))
    if record is not None and trace.costs != record.costs:
        said.append(remark("other_costs", mine=figures.end(trace), judged=end))
    if rebuilt is None:
        return over, said
    fixes.keep()  # from here on fix() shows the fix of a note
    # The easiest goal that is missed: a student is told the next step, not all that lie ahead.
    missed = next((goal for goal in goals if not goal.allows(end, memory)), None)
    asks = () if record is None else record.asks
    if over < len(goals) and all(goal.allows(end, memory) for goal in goals[:over]):
        said.append(notes.over_sent(timed, sent, goals[over], alone=over > 0))
    if missed is not None and end > missed.time:
        said.append(lateness.over_time(timed, end, missed.name, missed.time, asks))
    if missed is not None and memory > missed.memory:
        said.append(notes.over_memory(timed, figures.peak(timed), missed.name, missed.memory, asks))
    if record is None:
        return over, said
    said += [odd] if (odd := notes.other_layer(timed)) is not None else []
    easier = _easier(timed, record, rebuilt)
    return 0 if easier else over, said + easier


def _easier(run: Trace, record: Puzzle, rebuilt: Rebuilt) -> list[str]:
    """Say what makes a puzzle easier than intended: work left out, or one rank with a batch that a domain shares."""
    from lib.checker import notes

    reasons = [notes.left_out(run, rebuilt.flaws.keys()), notes.undivided(run, record.domain)]
    return [reason for reason in reasons if reason is not None]


def forgotten(run: Trace, hidden: Sequence[tuple[int, figures.Alive]], judged: bool = False) -> Iterator[str]:
    """Yield remarks on oversights that are not wrong: values `hidden` outside the stores, values in the store of
    another kind, messages never received, communication never awaited. A failed run is told only of hidden values.
    `judged`: there are several goals, of which only the first counts with hidden values."""
    if hidden:
        from lib.checker import notes  # here and not above: few runs need it

        yield notes.outside(run, hidden, judged)
    if run.error is not None:
        return
    strays = by_twin(run, lambda rank: _strays(run.programs[rank]))
    passed = [(message.source, message.sent) for message in messages(run) if message.received is None]
    left = [(rank, number) for rank, mine in enumerate(never_awaited(run)) for number in mine]
    lost, unawaited = ([(rank, run.programs[rank].events[n]) for rank, n in some] for some in (passed, left))
    if misplaced := [(rank, number, store) for rank, mine in enumerate(strays) for number, store in mine]:
        makers = [(rank, maker_of(run.programs[rank], number)) for rank, number, _ in misplaced]
        rank, number, store = misplaced[0]
        (value,) = run.programs[rank].values_of([number])
        told = {"kind": with_article(value.kind), "store": STORES[store], "better": STORE[type(value)]}
        yield remark("misplaced", where=places(makers), rank=rank, more=more(makers, "value"), **told)
    if lost:
        rank, event = lost[0]
        yield remark("not_received", where=places(lost), rank=rank, peer=event.peer, more=more(lost, "message"))
    if unawaited:
        rank, event = unawaited[0]
        yield remark("not_awaited", where=places(unawaited), rank=rank, op=event.op, more=more(unawaited, "call"))


def _strays(program: Program) -> list[tuple[int, int]]:
    """Return the values that a rank puts into the store of another kind, and the number of that store."""
    own = [None if value is None else STORE[type(value)] for value in program.values]
    entered = [(number, store) for _, store, number, change in program.moves if change > 0]
    # A set: a value may enter a store many times, but is told once.
    return sorted({(number, store) for number, store in entered if STORES[store] != own[number] is not None})


def fed(trace: Trace) -> Iterator[str]:
    """Yield how much was read and copied, if the run uses a reader."""
    if trace.error is None and not READS.isdisjoint(operations_in(trace)):
        from lib.analysis.feeding import words

        yield f"{words(trace)}."


def wrong_size(trace: Trace, record: Puzzle) -> list[str]:
    """Say in what a run differs from a record's size, machines and layers."""
    tell = partial(words_of, puzzle=record.id)
    size = record.size
    sizes = zip(size._fields, size.of(trace), size, strict=True)
    found = [tell("other_size", name=name, mine=mine, own=own) for name, mine, own in sizes if mine != own]
    if _machines(trace.mesh, trace.ranks) != _machines(record.mesh, trace.ranks):
        found.append(tell("other_machines"))
    if trace.padding:
        found.append(tell("padded", batches=counted(trace.padding, "batch")))
    if trace.descriptions != record.described(trace.layers):
        found.append(tell("other_layers"))
    return [fault_of(PuzzleError(**words._asdict())) for words in found]


def _machines(mesh: Mesh | None, ranks: int) -> list[tuple[int, int]]:
    """Return the host and the process of each rank."""
    # A run without a mesh is timed as if all ranks were on one host, each its own process.
    if mesh is None or len(mesh) != ranks:
        return [(0, rank) for rank in range(ranks)]
    return [(mesh.host(rank), mesh.process(rank)) for rank in range(ranks)]
