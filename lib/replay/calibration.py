"""Calibration: costs of the simulator fitted to what replays measured, and how well they predict another schedule.

The unit stays the median forward of one batch. A computation costs its median; communication follows the alpha-beta
model of `Links`, fitted by least squares over all collectives and messages: rounds x (n - 1) x (latency + S / n x beta)
for n members and a whole tensor of S elements. What overlaps, or shares a processor, is not in such a model: how far
off it is, is measured on schedules that it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lib.analysis.figures import end
from lib.cluster.costs import Links
from lib.replay.result import ReplayResult
from lib.trace.event import Event, Program
from lib.trace.order import brought_to, meetings
from lib.trace.retiming import retime
from lib.trace.trace import Trace
from lib.values.collectives import COLLECTIVES
from lib.values.kinds.kind import PRICED
from lib.values.laws import total_elements
from lib.values.layers import Shape
from lib.values.operations import COMPUTE, OPERATIONS
from lib.values.values import Activation, ActivationGrad

__all__ = ["Calibration", "PredictedStep", "calibrate"]


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """A schedule's step as measured and as predicted, in seconds. `fitted`: the costs were fitted to it."""

    ranks: int
    measured: float
    predicted: float
    uncalibrated: float
    fitted: bool

    @property
    def error(self) -> float:
        """How far off the prediction is: 0.1 is ten per cent too long."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted costs (in time units of `unit` seconds), and their predictions."""

    costs: Links
    unit: float
    predictions: tuple[PredictedStep, ...]

    def text(self) -> str:
        """The costs and the predictions in words."""
        c = self.costs
        lines = [
            f"Fitted costs, in time units of {1e3 * self.unit:.3f} ms: "
            f"forward {c.forward:.3g}, backward {c.backward:.3g}, update {c.update:.3g}, loss {c.loss:.3g},",
            f"a batch of activations over a link {c.p2p:.3g}, latency of a message {c.latency:.3g}.",
        ]
        for one in self.predictions:
            which = "fitted on" if one.fitted else "not fitted on"
            lines.append(
                f"A schedule of {one.ranks} ranks ({which}): measured {1e3 * one.measured:.2f} ms, predicted "
                f"{1e3 * one.predicted:.2f} ms ({one.error:+.0%}); with the Trace's own costs "
                f"{1e3 * one.uncalibrated:.2f} ms"
            )
        return "\n".join(lines)


def calibrate(fit: Sequence[ReplayResult], others: Sequence[ReplayResult] = ()) -> Calibration:
    """Fits costs to some replays, and predicts these and others. All must have the same sizes, dtype and transport."""
    unit = median(result.unit for result in fit)
    compute: dict[str, list[float]] = {}
    rows: list[tuple[float, float, float]] = []
    for result in fit:
        moved = _moved(result.measured)
        for program, lengths in zip(result.measured.programs, result.lengths, strict=True):
            for number, (event, length) in enumerate(zip(program.events, lengths, strict=True)):
                seconds = length / unit
                if event.op in COMPUTE and isinstance(cost := OPERATIONS[event.op].cost, str):
                    compute.setdefault(cost, []).append(seconds / _batches(result.simulated.shape, program, event))
                elif event.blocking and event.op in COLLECTIVES and len(event.group) > 1:
                    rows.append((*moved[program.rank, number], seconds))
                elif event.blocking and event.op == "receive":
                    rows.append((1.0, _elements(program, event.outputs), seconds))
    latency, beta = _least_squares(rows)
    medians = {op: median(found) for op, found in compute.items()}
    costs = Links(**medians, p2p=beta * PRICED.batch, latency=latency, host_size=None, cards=None)
    predictions = [_predict(result, costs, unit, True) for result in fit]
    predictions += [_predict(result, costs, unit, False) for result in others]
    return Calibration(costs, unit, tuple(predictions))


def _predict(result: ReplayResult, costs: Links, unit: float, fitted: bool) -> PredictedStep:
    predicted = end(retime(result.simulated, costs)) * unit
    return PredictedStep(result.simulated.ranks, result.median, predicted, end(result.simulated) * unit, fitted)


def _batches(shape: Shape, program: Program, event: Event) -> float:
    """How often the price of an operation counts: by batches, and by the size of its layer and of its part of that."""
    row, values = OPERATIONS[event.op], program.values_of(event.inputs)
    found = values[0] if values else None
    batches = len(found.batches) if isinstance(found, Activation | ActivationGrad) else 1
    return float(row.work(shape, event.layer, batches, values)) or 1


def _moved(trace: Trace) -> dict[tuple[int, int], tuple[float, float]]:
    """Messages and elements on the critical path of each collective, by rank and event, as `Links` counts them."""
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for members in meetings(trace):
        row, brought, root = brought_to(trace, members)
        path = float(row.messages(len(members))), float(row.busiest(row.paced(brought, root), len(members)))
        found.update(dict.fromkeys(members, path))
    return found


def _elements(program: Program, ids: Sequence[int]) -> float:
    return float(total_elements(value for number in ids if (value := program.values[number]) is not None))


def _least_squares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Latency and beta, neither of them negative, that explain the times of so many messages and elements best."""
    mm = sum(m * m for m, _, _ in rows)
    me = sum(m * e for m, e, _ in rows)
    ee = sum(e * e for _, e, _ in rows)
    mt = sum(m * t for m, _, t in rows)
    et = sum(e * t for _, e, t in rows)
    determinant = mm * ee - me * me
    if determinant > 1e-9 * mm * ee:
        latency = (mt * ee - et * me) / determinant
        beta = (et * mm - mt * me) / determinant
        if latency >= 0 and beta >= 0:
            return latency, beta
    # One of them alone, the one that explains more: what is left is t.t - (x.t)^2 / x.x.
    if mm and (not ee or mt * mt / mm > et * et / ee * (1 + 1e-9)):
        return mt / mm, 0.0
    return 0.0, et / ee if ee else 0.0
