"""Judging: is a plan good enough for a goal, and are the closed forms true to published runs?

A plan is told first what is impossible, then what does not fit, then what is too slow, and why.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any, Final, NamedTuple, cast

from lib.errors.wording import written
from lib.files import packaged, table
from lib.plan.candidates import ROOM, candidate
from lib.plan.records import CHOSEN, CLUSTERS, GIB, MODELS, STACKS, Cluster, Plan, Transformer
from lib.plan.timing import Step, step, step_in_order

PARTS: Final[Mapping[str, str]] = table("lib.plan", "words")["parts"]
METRICS: Final[Mapping[str, str]] = table("lib.plan", "words")["metrics"]


class Task(NamedTuple):
    """A run to plan: the names of a model, a GPU and a software stack, and the sizes."""

    model: str
    gpu: str
    gpus: int
    batch: int
    sequence: int = 2048
    stack: str = "usual"

    @property
    def shape(self) -> Transformer:
        """The model."""
        return MODELS[self.model]

    @property
    def cluster(self) -> Cluster:
        """The machine."""
        return CLUSTERS[self.gpu]

    def words(self) -> str:
        """Return the run in words: "gpt3-175b on 64 a100, 64 sequences of 2,048 tokens"."""
        return f"{self.model} on {self.gpus:,} {self.gpu}, {self.batch:,} sequences of {self.sequence:,} tokens"


@dataclass(frozen=True)
class Judged:
    """The judgement of a plan: its faults, in sentences; and its step, where it is possible."""

    plan: Plan | None
    step: Step | None
    faults: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def plan_of(task: Task, answer: object) -> Plan:
    """Return the plan of an answer: a Plan, or a dict of fields that differ from the defaults. ValueError otherwise."""
    base = Plan(task.gpus, task.batch, task.sequence, stack=STACKS[task.stack])
    if isinstance(answer, Plan):
        answer = answer.as_answer()
    if not isinstance(answer, Mapping):
        raise ValueError(f"a plan is a dict of {', '.join(CHOSEN)}; {type(answer).__name__} came")
    told = cast("Mapping[Any, Any]", answer)
    if unknown := [name for name in told if name not in CHOSEN]:
        raise ValueError(
            f"a plan says {', '.join(CHOSEN)}, and not {written(unknown[0])[:60]}; dp is what is left of the GPUs"
        )
    if type(told.get("sp", True)) is not bool:
        raise ValueError(f"sp is True or False; got {written(told['sp'])[:60]}")
    return replace(base, **told)


def judge(task: Task, answer: object, allowed: float = float("inf"), room: float | None = None) -> Judged:
    """Judge an answer: is it possible, does it fit into `room` bytes of a GPU (95 percent of its memory by default),
    and does its step take at most the `allowed` seconds?"""
    try:
        plan = plan_of(task, answer)
    except ValueError as wrong:
        return Judged(None, None, (f"{wrong}.",))
    if problems := "; ".join(plan.problems(task.shape)):
        return Judged(plan, None, (f"{problems}.",))
    warnings = tuple(plan.warnings(task.cluster))
    room = ROOM * task.cluster.memory if room is None else room
    one, faults = step_in_order(task.shape, task.cluster, plan), tuple[str, ...]()
    if one.memory.total > room:
        faults = (_too_large(task, plan, one, room),)
    elif one.seconds > allowed:
        faults = (_too_slow(one, allowed),)
    return Judged(plan, one, faults, warnings)


def _too_large(task: Task, plan: Plan, one: Step, room: float) -> str:
    """Say what a plan holds, and which keys help when changed alone: those that fit, fastest first, or else those that
    save most. No values and no times: these are what the puzzle asks for."""
    memory = one.memory
    changes: Sequence[tuple[str, Any]] = (
        *((("sp", True),) if plan.tp > 1 and not plan.sp else ()),
        *(("recompute", how) for how in ("selective", "full") if plan.recompute != how),
        *(("zero", stage) for stage in range(plan.zero + 1, 4)),
        *((("micro", plan.micro // 2),) if plan.micro > 1 else ()),
        *((name, 2 * getattr(plan, name)) for name in ("tp", "cp", "pp")),
        *(("ep", factor * plan.ep) for factor in (2, 4, 8) if task.shape.experts),
    )
    tried: list[tuple[bool, float, str]] = []
    for name, value in changes:
        other = replace(plan, **{name: value})
        if not any(other.problems(task.shape)):
            there = candidate(task.shape, task.cluster, other)
            fits = there.memory <= room
            if there.memory < memory.total:
                tried.append((not fits, there.seconds if fits else there.memory, name))
    helps, none_fits = "", min(tried, default=(True,))[0]
    if best := list(dict.fromkeys(name for misses, _, name in sorted(tried) if misses == none_fits)):
        which = "None alone makes it fit; what saves most" if none_fits else "Each alone can make it fit, fastest first"
        helps = f" {which}: {', '.join(best[:3])}."
    size, largest = max(zip(memory, memory._fields, strict=True))
    return f"{memory.total / GIB:.1f} GiB do not fit into {room / GIB:.1f}, {size / GIB:.1f} of it {largest}.{helps}"


def _too_slow(one: Step, allowed: float) -> str:
    """Say what a step spends beyond the computation that every plan has."""
    parts = sorted(((one.parts[name], words) for name, words in PARTS.items() if one.parts.get(name)), reverse=True)
    named = ", ".join(f"{words} {time:.2f} s ({time / one.seconds:.0%})" for time, words in parts[:3])
    return (
        f"a step takes {one.seconds:.2f} s, and the goal allows {allowed:g}. {one.parts['compute']:.2f} s of it are "
        f"computation; then {named}."
    )


# -- predicted beside published -------------------------------------------------------------------------------------

SIZES: Final = ("gpus", "batch", "sequence", "tp", "cp", "pp", "ep", "micro", "v", "zero")


class RunSet(NamedTuple):
    """Published runs that belong together: their `source`, the constants `fitted` to them, the mean error in percent
    that is promised for held-out runs, and why nothing is promised where the model `fails`."""

    name: str
    title: str
    source: str
    fitted: str = ""
    promise: float | None = None
    fails: str = ""

    @property
    def kind(self) -> str:
        """The role of the runs for the closed forms: "fitted", "held out", or "fails" where the model does."""
        return "fitted" if self.fitted else "fails" if self.fails else "held out"


class Published(NamedTuple):
    """One run: its set, the names of its model and cluster, its model and plan, and the value reached in a metric."""

    set: str
    model_name: str
    cluster_name: str
    model: Transformer
    plan: Plan
    metric: str
    value: float


@cache
def sets() -> dict[str, RunSet]:
    """Return the sets by name, in display order."""
    return {name: RunSet(name, **data) for name, data in table("lib.plan", "sets").items()}


@cache
def published() -> tuple[Published, ...]:
    """Return all runs, set by set."""
    lines = packaged("lib.plan", "published.csv").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return tuple(sorted(map(_published, rows), key=lambda run: list(sets()).index(run.set)))


def _published(row: Mapping[str, str]) -> Published:
    told: dict[str, Any] = {name: int(row[name]) for name in SIZES}
    told |= {name: row[name] for name in ("schedule", "recompute")}
    plan = Plan(**told, sp=row["sp"] == "yes", stack=STACKS[row["stack"]])
    names, model = (row["set"], row["model"], row["cluster"]), _model(row["model"])
    return Published(*names, model, plan, row["metric"], float(row["value"]))


def _model(name: str) -> Transformer:
    """Return a record, or a GPT named by its layers, width and heads: `gpt-30-3072-32`."""
    if name in MODELS:
        return MODELS[name]
    layers, hidden, heads = map(int, name.split("-")[1:])
    return Transformer(layers, hidden, heads, 4 * hidden, vocab=51200, dropout=True)


def error(run: Published, clusters: Mapping[str, Cluster] = CLUSTERS) -> float:
    """Return the relative error of the predicted step time, whatever the metric: 0.1 is a tenth too long."""
    cluster = clusters[run.cluster_name]
    one = step(run.model, cluster, run.plan)
    reached = {"seconds": one.seconds, "tok": one.tokens, "mfu": one.mfu, "tflops_hw": one.hfu * cluster.flops / 1e12}
    ratio = reached[run.metric] / run.value
    return (ratio if run.metric == "seconds" else 1 / ratio) - 1


def mean_error(runs: list[Published], clusters: Mapping[str, Cluster] = CLUSTERS) -> float:
    """Return the mean absolute error of runs, in percent."""
    return 100 * mean(abs(error(run, clusters)) for run in runs)
