"""Plan a run: which parallelism a model needs on a cluster, in closed forms: bytes, seconds, and a search."""

from lib.plan.memory import Memory, memory_of
from lib.plan.records import CLUSTERS, GIB, MODELS, STACKS, Cluster, Plan, Stack, Transformer
from lib.plan.search import Found, search
from lib.plan.timing import Step, step

__all__ = [
    "CLUSTERS",
    "GIB",
    "MODELS",
    "STACKS",
    "Cluster",
    "Found",
    "Memory",
    "Plan",
    "Stack",
    "Step",
    "Transformer",
    "memory_of",
    "search",
    "step",
]
