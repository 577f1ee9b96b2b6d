"""Predicted beside published: runs that were measured and printed, and how far from them the closed forms are."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from statistics import mean
from typing import Any, Final, NamedTuple

from lib.files import packaged
from lib.plan.records import CLUSTERS, MODELS, STACKS, Cluster, Plan, Transformer, read_toml
from lib.plan.timing import Step, step

SIZES: Final = ("gpus", "batch", "sequence", "tp", "cp", "pp", "ep", "micro", "v", "zero")
METRICS: Final = {
    "seconds": "s a step",
    "tok": "tokens/s a GPU",
    "mfu": "of the peak",
    "tflops_hw": "TFLOP/s a GPU, recomputation counted",
}
"""What a run was published as, in words."""


class RunSet(NamedTuple):
    """Published runs that belong together: their `source`, which constants were `fitted` to them, which mean error in
    percent is promised of those that were not, and why nothing is where the model `fails`."""

    name: str
    title: str
    source: str
    fitted: str = ""
    promise: float | None = None
    fails: str = ""

    @property
    def kind(self) -> str:
        """What the runs are to the closed forms: "fitted", "held out", or where the model "fails"."""
        return "fitted" if self.fitted else "fails" if self.fails else "held out"


class Published(NamedTuple):
    """One run: its set, the names and records of its model and cluster, its plan, and what it reached by a metric."""

    set: str
    model_name: str
    cluster_name: str
    model: Transformer
    plan: Plan
    metric: str
    value: float


@cache
def sets() -> dict[str, RunSet]:
    """Return the sets by name, in the order in which they are shown."""
    return {name: RunSet(name, **data) for name, data in read_toml("sets").items()}


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
    """Return a record, or a GPT of so many layers, so wide and with so many heads, `gpt-30-3072-32`."""
    if name in MODELS:
        return MODELS[name]
    layers, hidden, heads = map(int, name.split("-")[1:])
    return Transformer(layers, hidden, heads, 4 * hidden, vocab=51200, dropout=True)


def measured(one: Step, metric: str, cluster: Cluster) -> float:
    """Return a step by the metric of a published run."""
    recomputed = one.hfu * cluster.flops / 1e12
    return {"seconds": one.seconds, "tok": one.tokens, "mfu": one.mfu, "tflops_hw": recomputed}[metric]


def error(run: Published, clusters: Mapping[str, Cluster] = CLUSTERS) -> float:
    """Return how much longer the predicted step is than the published one, as a share of that: 0.1 is too slow by a
    tenth, whatever the metric."""
    cluster = clusters[run.cluster_name]
    ratio = measured(step(run.model, cluster, run.plan), run.metric, cluster) / run.value
    return (ratio if run.metric == "seconds" else 1 / ratio) - 1


def mean_error(runs: list[Published], clusters: Mapping[str, Cluster] = CLUSTERS) -> float:
    """Return the mean of the errors of runs without their signs, in percent."""
    return 100 * mean(abs(error(run, clusters)) for run in runs)
