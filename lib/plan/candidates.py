"""Search: try every plan of a grid, time those that fit, and keep those that no other beats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final

from lib.extras import shared_out
from lib.plan.records import Cluster, Plan, Transformer
from lib.plan.resources import memory_of
from lib.plan.timing import step

ROOM: Final = 0.95
"""The share of a GPU's memory that a plan may fill: the closed forms give a lower bound."""
ALIKE: Final = 0.02
"""Plans whose times differ by a smaller share are alike: the constants are no more exact than that."""


@dataclass(frozen=True)
class Candidate:
    """A plan with its time and memory, in seconds and bytes."""

    plan: Plan
    seconds: float
    memory: float


def candidate(model: Transformer, cluster: Cluster, plan: Plan) -> Candidate:
    """Return a plan with its time and memory, by the closed forms."""
    one = step(model, cluster, plan)
    return Candidate(plan, one.seconds, one.memory.total)


@dataclass(frozen=True)
class Found:
    """The result of a search: candidates that fit, fastest first; how many are possible; the `nearest` if none fits."""

    candidates: tuple[Candidate, ...]
    possible: int
    nearest: Candidate | None = None

    def front(self) -> tuple[Candidate, ...]:
        """Return the candidates that no other beats in time and memory, the fastest first."""
        kept: list[Candidate] = []
        for one in self.candidates:
            if not kept or one.memory < kept[-1].memory:
                kept.append(one)
        return tuple(kept)

    def meshes(self, count: int) -> tuple[Candidate, ...]:
        """Return the fastest candidates, one of each mesh."""
        best: dict[tuple[int, ...], Candidate] = {}
        for one in self.candidates:
            best.setdefault((one.plan.tp, one.plan.cp, one.plan.pp, one.plan.ep), one)
            if len(best) == count:
                break
        return tuple(best.values())


def grid(model: Transformer, base: Plan) -> dict[str, Sequence[Any]]:
    """Return the values of each field that a search tries by default: those that could divide evenly."""
    powers = [2**exponent for exponent in range(9)]
    return {
        "tp": [size for size in powers[:5] if model.heads % size == 0],
        "cp": [size for size in powers[:6] if size == 1 or base.sequence >= 2048 * size],
        "pp": [size for size in range(1, min(64, model.layers + 2) + 1) if base.gpus % size == 0],
        "ep": [size for size in powers if size == 1 or (model.experts and model.experts % size == 0)],
        "micro": (1, 2, 4),
        "v": (1, 2, 3, 4, 6, 8),
        "schedule": ("1f1b", "dualpipe") if base.stack.ep_hidden else ("1f1b",),
        "zero": (1, 2, 3),
        "recompute": ("none", "selective", "full"),
    }


def _try(model: Transformer, cluster: Cluster, base: Plan, room: float, axes: Mapping[str, Sequence[Any]]) -> Found:
    """Try all plans of a grid. Only those that fit are timed."""
    limit, possible = room * cluster.memory, 0
    fitting: list[Candidate] = []
    least: tuple[float, Plan] | None = None
    for values in product(*axes.values()):
        plan = replace(base, **dict(zip(axes, values, strict=True)))
        if any(plan.problems(model)):
            continue
        possible += 1
        memory = memory_of(model, plan).total
        if memory <= limit:
            fitting.append(Candidate(plan, step(model, cluster, plan).seconds, memory))
        elif least is None or memory < least[0]:
            least = memory, plan
    nearest = None if fitting or least is None else candidate(model, cluster, least[1])
    return Found(tuple(fitting), possible, nearest)


def search(
    model: Transformer,
    cluster: Cluster,
    base: Plan,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    room: float = ROOM,
    jobs: int | None = None,
    done: Callable[[int, int], None] = lambda so_far, everything: None,
) -> Found:
    """Try all plans of a grid, in `jobs` processes (None: in this one). `axes` has values of fields by name; other
    fields take those of `grid`. `done(so_far, all)` is called as the parts finish.

    >>> from lib.plan import CLUSTERS, MODELS, Plan
    >>> found = search(MODELS["llama3-8b"], CLUSTERS["h100"], Plan(gpus=8, batch=16, sequence=8192))
    >>> best = found.candidates[0]
    >>> print(f"{best.plan.mesh}: {best.seconds:.2f} s")
    dp4 tp2 micro 2 zero1 recompute selective: 2.18 s
    """
    every = grid(model, base) | dict(axes or {})
    first = next(iter(every))
    parts = [every | {first: (value,)} for value in every[first]]
    found: list[Found] = []
    for part in shared_out(partial(_try, model, cluster, base, room), parts, jobs, "a search"):
        found.append(part)
        done(len(found), len(parts))
    candidates = [one for part in found for one in part.candidates]
    candidates.sort(key=lambda one: (one.seconds, one.memory, one.plan.mesh))  # in whatever order processes finish
    nearest = min((part.nearest for part in found if part.nearest), key=lambda one: one.memory, default=None)
    return Found(tuple(candidates), sum(part.possible for part in found), None if candidates else nearest)


def one_step_away(model: Transformer, cluster: Cluster, plan: Plan) -> dict[str, list[Candidate]]:
    """Return, by field, the possible plans with its next smaller and larger value; their memory may not fit. Where a
    size of the mesh changes, data parallelism takes what is left."""
    found: dict[str, list[Candidate]] = {}
    for name, values in grid(model, plan).items():
        mine = getattr(plan, name)
        ordered = list(values) if mine in values else sorted([*values, mine])
        at = ordered.index(mine)
        for value in (*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]):
            other = replace(plan, **{name: value})
            if not any(other.problems(model)):
                found.setdefault(name, []).append(candidate(model, cluster, other))
    return found
