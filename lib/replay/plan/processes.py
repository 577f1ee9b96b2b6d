"""Which process plays which ranks."""

from __future__ import annotations

from lib.replay.errors import WrongWorld
from lib.replay.options import ReplayOptions
from lib.trace.trace import Trace

__all__ = ["processes_of"]


def processes_of(trace: Trace, options: ReplayOptions) -> tuple[tuple[int, ...], ...]:
    """The ranks of each process: as the options ask, else as the Trace's mesh has it, else one each. Where each process
    has one, rank r is process r."""
    ranks = trace.ranks
    owned = trace.mesh.processes if trace.mesh is not None else tuple((rank,) for rank in range(ranks))
    wanted = len(owned) if options.processes is None else options.processes
    if ranks % wanted and wanted != len(owned):
        raise WrongWorld(f"{ranks} ranks do not divide into {wanted} processes of as many each")
    if wanted == ranks or wanted != len(owned):
        each = ranks // wanted
        owned = tuple(tuple(range(first, first + each)) for first in range(0, ranks, each))
    if wanted != ranks:
        _must_share(options, ranks)
    return owned


def _must_share(options: ReplayOptions, ranks: int) -> None:
    """WrongWorld where ranks cannot share a process."""
    alone = f"processes={ranks} gives each rank a process of its own"
    if options.against:
        raise WrongWorld(f"{', '.join(options.against)} cannot have several ranks in a process: {alone}")
    if options.transport == "nccl":
        raise WrongWorld(f"nccl needs {ranks} processes, one for each GPU: {alone}")
