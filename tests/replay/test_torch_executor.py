"""Every schedule with a name on torch's own pipeline executor: four processes, gradients as of one.

Orders go there as the CSV that torch reads: passes alone, which torch lowers itself, and with our messages.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lib.schedules.formats.torch_csv import encode
from lib.schedules.pipelines.action import KINDS, Action, Order, places
from lib.schedules.pipelines.catalogue import SCHEDULES

torch: Any = pytest.importorskip("torch", reason="torch's executor needs torch")
if not hasattr(os, "fork") or sys.platform != "linux":
    pytest.skip("ranks are forked", allow_module_level=True)

RANKS, LAYERS, BATCHES, ROWS, HIDDEN = 4, 8, 8, 4, 16
FORMATS = {"compute_only": False, "compute_comms": True}
EXACT = 1e-12


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
    """All schedules in both formats; and the trap."""
    for name, row in SCHEDULES.items():
        order = row.make(RANKS, BATCHES)
        for form, comms in FORMATS.items():
            path = folder / f"{name}.{form}.csv"
            path.write_text(encode(order, comms=comms).text)
            yield Case(f"{name} {form}", order, form, path)
    order = SCHEDULES["zb_v"].make(RANKS, BATCHES)
    path = folder / "trap.csv"
    path.write_text("\n".join(",".join(map(str, actions)) for actions in right_before_use(order)))
    yield Case("the trap", order, "compute_comms", path)


def be(rank: int, folder: Path, away: int, every: list[Case]) -> None:
    """The life of a rank: all schedules, one after the other."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    true = truth()
    found = {case.name: off(rank, case.order, case.form, case.path, true) for case in every}
    with os.fdopen(away, "w", encoding="utf-8") as home:
        json.dump(found, home)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def deviations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """How far each schedule is from the truth in each format, on the rank that is farthest. One launch for all."""

    folder = tmp_path_factory.mktemp("executor")
    every = list(cases(folder))
    children: list[tuple[int, int]] = []
    for rank in range(RANKS):
        here, away = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(here)
                be(rank, folder, away, every)
                code = 0
            except BaseException:
                (folder / f"error{rank}").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        os.close(away)
        children.append((child, here))
    found: list[dict[str, float]] = []
    for child, here in children:
        with os.fdopen(here, encoding="utf-8") as home:
            text = home.read()
        os.waitpid(child, 0)
        found.append(json.loads(text) if text else {})
    assert all(found), "\n".join(path.read_text() for path in sorted(folder.glob("error*")))
    return {name: max(one[name] for one in found) for name in found[0]}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_its_gradients_are_those_of_one_process(name: str, form: str, deviations: dict[str, float]) -> None:
    assert deviations[f"{name} {form}"] <= EXACT


def test_receives_in_another_order_than_sends_are_wrong_without_a_word(deviations: dict[str, float]) -> None:
    assert deviations["the trap"] > 1e-3
