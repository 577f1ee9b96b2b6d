"""Replays a Trace on this machine, in this process, and compares."""

from __future__ import annotations

from lib import Trace
from lib.replay import replay


def replayed(trace: Trace, optimizer: str = "sgd") -> None:
    """That a replay gives the numbers of ordinary training, and never holds more than simulated.

    Shards of an uneven cut are less than an element larger than their share. What communication holds besides is not
    compared: what has been sent and not been received is still with its sender.
    """
    result = replay(trace, transport="local", optimizer=optimizer, hidden=12, length=4)
    assert result.ok, result.text()
    assert all(error.relative <= 1e-12 for error in result.errors)
    for one, program in zip(result.ranks, trace.programs, strict=True):
        rounding = 16 * len(program.values)
        for event, simulated, measured in one.by_event:
            assert measured <= simulated + rounding, (one.rank, event)
        assert abs(one.sent - one.simulated_sent) <= rounding
