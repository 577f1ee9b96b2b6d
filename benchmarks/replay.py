"""How fast a replay is: until its ranks are ready, and a step beside torch's own DDP, FSDP2 and pipelining.

`python benchmarks/replay.py`. The steps of both are run in turns in the same processes; a ratio is the median over
steps of (replay / library). Layers are large enough that computing dominates.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from lib import Model, Trace, simulate
from lib.replay import ReplayOptions, replay
from lib.schedules.data_parallel import ddp_overlap
from lib.schedules.pipelines.generators import one_f_one_b
from lib.schedules.pipelines.program import program_of
from lib.suite.submissions.load import load_function
from lib.suite.submissions.locations import reference


async def fsdp(model: Model) -> None:
    """Fully sharded; the next layer is gathered, and the last gradient scattered, behind the computation."""
    weights, opt_states, activations, _, _ = model.storage()
    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])
    coming = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        whole = await coming
        if layer < last:
            coming = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], whole)
    grad = model.loss(activations.pop(model.LAYERS))
    coming = model.allgather(weights[last], last)
    works = {}
    for layer in reversed(range(model.LAYERS)):
        whole = await coming
        if layer:
            coming = model.allgather(weights[layer - 1], layer - 1)
        made, grad = model.backward(layer, activations.pop(layer), grad, whole)
        works[layer] = model.scatterreduce(made, layer)
    for layer in reversed(range(model.LAYERS)):
        weights[layer], opt_states[layer] = model.update(layer, await works[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])


def startup(repeats: int) -> dict[str, float]:
    """Seconds from the call until all ranks have met, made their groups and can begin; the median of several."""
    found: dict[str, float] = {}
    for puzzle in ("fsdp", "pipeline_fsdp"):
        trace = Trace.of(simulate(load_function(reference(puzzle), puzzle), puzzle=puzzle))
        seconds = [replay(trace, verify=False).startup for _ in range(repeats)]
        found[f"start-up of {trace.ranks} gloo ranks"] = median(seconds)
    return found


def ratios(hidden: int, length: int, steps: int) -> dict[str, float]:
    """Step time of the replay divided by that of the library, on 4 gloo ranks in float32."""
    found: dict[str, float] = {}
    options = ReplayOptions(
        dtype="float32", hidden=hidden, length=length, steps=steps, warmup=2, verify=False, timeout=300
    )
    for name, function, layers, batches, libraries in (
        ("ddp", ddp_overlap, 4, 4, ("ddp", "ddp_by_layer")),
        ("fsdp", fsdp, 4, 4, ("fsdp",)),
        ("one_f_one_b", program_of(one_f_one_b(4, 8)), 4, 8, ("1f1b",)),
    ):
        models = simulate(function, ranks=4, layers=layers, batches=batches)
        result = replay(models, options, against=libraries)
        for one in result.libraries:
            found[f"step of {name} / torch's {one.name}"] = result.ratio(one.name)
            found[f"  replay {1e3 * result.median:.0f} ms, {one.name} {1e3 * one.median:.0f} ms; spread of ratios"] = (
                max(mine / theirs for mine, theirs in zip(result.seconds, one.seconds, strict=True))
                - min(mine / theirs for mine, theirs in zip(result.seconds, one.seconds, strict=True))
            )
    return found


TARGETS = {"start-up of 4 gloo ranks": 0.5, "start-up of 16 gloo ranks": 1.0}


def main() -> None:
    """Prints one line a figure; with --json also as data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {platform.python_implementation()} {platform.python_version()}")
    found = startup(arguments.repeats) | ratios(arguments.hidden, arguments.length, arguments.steps)
    for what, figure in found.items():
        target = TARGETS.get(what, 1.15 if what.startswith("step") else None)
        unit = "s" if what.startswith("start") else ""
        print(f"{what:<60} {figure:>8.3f} {unit}" + ("" if target is None else f" (target {target:g})"))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
