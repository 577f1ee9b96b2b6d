"""Every schedule with a name on torch's own pipeline executor: four processes, gradients as of one.

Orders go there as the CSV that torch reads: passes alone, which torch lowers itself, and with our messages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib.schedules.formats.torch_csv import encode
from lib.schedules.pipelines.action import KINDS, Action, Order, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from tests.support.profiles import sample
from tests.support.worlds import MEET, world

torch: Any = pytest.importorskip("torch", reason="torch's executor needs torch")
if not hasattr(os, "fork") or sys.platform != "linux":
    pytest.skip("ranks are forked", allow_module_level=True)

from lib.replay.rank.libraries import preload  # noqa: E402

RANKS, LAYERS, BATCHES, ROWS, HIDDEN = 4, 8, 8, 4, 16
FORMATS = {"compute_only": False, "compute_comms": True}
EXACT = 1e-12
NAMES = sample(SCHEDULES)


def right_before_use(order: Order) -> Order:
    """Messages as one would put them in who does not know the trap: each receive right before what it is for."""
    place = places(order)
    found: list[list[Action]] = [[] for _ in order]
    for rank, actions in enumerate(order):
        for action in actions:
            row = KINDS[action.kind]
            for needed in filter(None, [row.needs]):
                if place.get(action.stage + KINDS[needed].towards, rank) != rank:
                    found[rank].append(action._replace(kind=needed))
            found[rank].append(action)
            for sent in filter(None, [row.passes]):
                if place.get(action.stage + KINDS[sent].towards, rank) != rank:
                    found[rank].append(action._replace(kind=sent))
    return tuple(map(tuple, found))


def initial() -> tuple[list[Any], Any, Any]:
    """Weights, data and target: the same in every process."""
    draw = torch.Generator().manual_seed(0)
    size = BATCHES * ROWS, HIDDEN
    weights = [torch.randn(HIDDEN, HIDDEN, generator=draw, dtype=torch.float64) / 4 for _ in range(LAYERS)]
    return weights, *(torch.randn(*size, generator=draw, dtype=torch.float64) for _ in range(2))


def loss(y: Any, target: Any) -> Any:
    return (y - target).square().sum() / (BATCHES * ROWS)


def truth() -> list[Any]:
    """The gradients of one process."""
    from lib.replay.layers.layers import model

    weights, x, target = initial()
    whole = model(weights)
    loss(whole(x), target).backward()
    return [layer.weight.grad for layer in whole]


def off(rank: int, order: Order, form: str, path: Path, true: list[Any]) -> float:
    """How far the gradients of this rank are from the truth, as a part of the largest entry."""
    from torch.distributed import pipelining
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    from lib.replay.layers.layers import model

    weights, x, target = initial()
    place = places(order)
    each = LAYERS // len(place)
    output = torch.empty(ROWS, HIDDEN, dtype=torch.float64, device="meta").requires_grad_()
    mine = {stage: model(weights[stage * each : (stage + 1) * each]) for stage in place if place[stage] == rank}
    stages = [
        pipelining.PipelineStage(
            module,
            stage,
            len(place),
            torch.device("cpu"),
            input_args=(output if stage else output.detach(),),
            output_args=(output,),
        )
        for stage, module in mine.items()
    ]
    runtime: Any = _PipelineScheduleRuntime(stages, BATCHES, loss_fn=loss, scale_grads=False)
    runtime._load_csv(str(path), format=form)
    runtime.step(*((x,) if 0 in mine else ()), target=target if len(place) - 1 in mine else None)
    pairs = [
        (layer.weight.grad, true[stage * each + i]) for stage, module in mine.items() for i, layer in enumerate(module)
    ]
    return max(float((found - right).abs().max() / right.abs().max()) for found, right in pairs)


class Case(NamedTuple):
    """An order in a file, and the format that it has there."""

    name: str
    order: Order
    form: str
    path: Path


def cases(folder: Path) -> Iterator[Case]:
    """All of NAMES in both formats; and the trap."""
    for name in NAMES:
        order = SCHEDULES[name].make(RANKS, BATCHES)
        for form, comms in FORMATS.items():
            path = folder / f"{name}.{form}.csv"
            path.write_text(encode(order, comms=comms).text)
            yield Case(f"{name} {form}", order, form, path)
    order = SCHEDULES["zb_v"].make(RANKS, BATCHES)
    path = folder / "trap.csv"
    path.write_text("\n".join(",".join(map(str, actions)) for actions in right_before_use(order)))
    yield Case("the trap", order, "compute_comms", path)


def be(rank: int, folder: Path, every: list[Case]) -> dict[str, float]:
    """The life of a rank: all schedules, one after the other."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=timedelta(seconds=MEET)
    )
    true = truth()
    found = {case.name: off(rank, case.order, case.form, case.path, true) for case in every}
    torch.distributed.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def deviations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """How far each schedule is from the truth in each format, on the rank that is farthest. One launch for all."""
    preload(("torch-pipelining",))  # before processes are forked, which would all import it
    folder = tmp_path_factory.mktemp("executor")
    found = world(RANKS, be, folder, list(cases(folder)))
    return {name: max(one[name] for one in found) for name in found[0]}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_its_gradients_are_those_of_one_process(name: str, form: str, deviations: dict[str, float]) -> None:
    assert deviations[f"{name} {form}"] <= EXACT


def test_receives_in_another_order_than_sends_are_wrong_without_a_word(deviations: dict[str, float]) -> None:
    assert deviations["the trap"] > 1e-3
