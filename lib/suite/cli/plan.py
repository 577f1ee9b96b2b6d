"""`puzzles plan`: the best parallelism for a model on a cluster; `puzzles predictions`: how far such plans are from
published runs; and `puzzles calibrate`: your own machine as a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Column, Table

from lib.files import ready, write_whole
from lib.plan.candidates import ALIKE, ROOM, Candidate, Found, one_step_away, search
from lib.plan.files import cluster_named, cluster_text, model_named, torchtitan
from lib.plan.judge import METRICS, error, mean_error, published, sets
from lib.plan.records import CLUSTERS, GIB, MODELS, STACKS, Cluster, Plan, Transformer
from lib.plan.resources import memory_of
from lib.plan.timing import Step, step, step_in_order
from lib.suite.cli import console as options
from lib.suite.cli.console import draw_thing, fail, numbers, option, output, progress, say, show_table

Timed = tuple[Candidate, Step]  # a candidate of a search, and its step from the order timer


def _stack(name: str) -> str:
    if name not in STACKS:
        raise typer.BadParameter(f"it is one of {', '.join(STACKS)}; got {name!r}")
    return name


def _sizes(text: str, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        wrong = f"--{name} takes whole numbers with commas between, such as 1,2,4; got {text!r}"
        raise typer.BadParameter(wrong) from None


def _known(what: str, name: str, kind: Any) -> Any:
    try:
        return kind(name)
    except ValueError as wrong:
        raise typer.BadParameter(f"--{what}: {wrong}") from None


def plan(
    model: Annotated[str, option(f"A model: {', '.join(MODELS)}; or a .toml or config.json.")],
    gpus: Annotated[int, option("How many GPUs there are.", min=1, max=10**6)],
    gpu: Annotated[str, option(f"Which GPUs: {', '.join(CLUSTERS)}; or a .toml.")] = "h100",
    seq: Annotated[int, option("Tokens of a sequence.", min=2, max=10**8)] = 8192,
    batch: Annotated[int, option("Sequences of a step.", min=1, max=10**8)] = 1024,
    stack: Annotated[str, option(f"What the software does: {', '.join(STACKS)}.", callback=_stack)] = "usual",
    tp: Annotated[str | None, option("Tensor parallel sizes to try, such as 4,8.")] = None,
    cp: Annotated[str | None, option("Context parallel sizes to try.")] = None,
    pp: Annotated[str | None, option("Pipeline sizes to try.")] = None,
    ep: Annotated[str | None, option("Expert parallel sizes to try.")] = None,
    micro: Annotated[str | None, option("Sequences of a microbatch to try.")] = None,
    v: Annotated[str | None, option("Stages a rank to try.")] = None,
    zero: Annotated[str | None, option("ZeRO stages to try: 0 is DDP, 3 is FSDP.")] = None,
    top: Annotated[int, option("How many plans to show, each of another mesh.", min=1, max=100)] = 5,
    why: Annotated[bool, option("Say what limits the first plan, and what each choice costs one step away.")] = False,
    export: Annotated[Literal["torchtitan"] | None, option("Print the first plan as a configuration.")] = None,
    as_json: Annotated[bool, option("Print one JSON document and nothing else.", "--json")] = False,
    jobs: options.Jobs = 1,
    out: Annotated[Path | None, output("a picture of the plans that nothing beats", (".svg", ".png", ".pdf"))] = None,
) -> None:
    """Search for the fastest plans of a model on a cluster that fit, and say what each is made of.

    Times and bytes are closed forms, fitted to what was published: see how well with `puzzles predictions`. Memory is
    a lower bound, so plans fill 95 percent of a GPU at most; times that differ by less than 2 percent are alike.
    """
    shape, machine = _known("model", model, model_named), _known("gpu", gpu, cluster_named)
    base = Plan(gpus, batch, seq, stack=STACKS[stack])
    told = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "micro": micro, "v": v, "zero": zero}
    axes: dict[str, Sequence[Any]] = {name: _sizes(text, name) for name, text in told.items() if text is not None}
    with progress("plans") as done:
        found = search(shape, machine, base, axes, jobs=jobs, done=done)
    title = f"{model} on {gpus:,} {gpu}, {batch:,} sequences of {seq:,} tokens"
    if not found.candidates:
        fail(_nothing(shape, machine, base, found, axes, title))
    best = [(one, step_in_order(shape, machine, one.plan)) for one in found.meshes(top)]
    first = best[0][0].plan
    if as_json:
        print(json.dumps(_as_data(title, machine, found, best), indent=1))
    elif export is not None:
        print(f"# {title}\n# {first.mesh}, by `puzzles plan`\n\n{torchtitan(first)}", end="")
    else:
        _show(title, machine, found, best)
        if why:
            _explain(shape, machine, *best[0])
    if out is not None:
        from drawing.planning import draw_plans  # not above: most calls draw nothing

        draw_thing(draw_plans(found.front(), found.candidates, title=title), out)


def _nothing(
    model: Transformer, cluster: Cluster, base: Plan, found: Found, axes: Mapping[str, Sequence[Any]], title: str
) -> str:
    """Say why there is no plan: none is possible, or none fits; then name the nearest, and its excess."""
    if found.nearest is None:
        one = replace(base, **{name: values[0] for name, values in axes.items()})
        why = "; ".join(one.problems(model)) or "no combination of these sizes divides everything"
        return f"{title}: no plan is possible. {why}"
    memory, room = memory_of(model, found.nearest.plan), ROOM * cluster.memory
    return (
        f"{title}: none of {found.possible:,} plans fits into {room / GIB:.1f} GiB, which is {ROOM:.0%} of a GPU. The "
        f"nearest is {found.nearest.plan.mesh}, which needs {(memory.total - room) / GIB:.1f} GiB more: {memory}. Take "
        f"more GPUs ({memory.total / room:.1f} times as many would do, if all of it were shared out), or shorter "
        "sequences"
    )


def _show(title: str, cluster: Cluster, found: Found, best: Sequence[Timed]) -> None:
    figures = numbers("a step", "MFU", "memory")
    table = Table("", Column("plan", overflow="fold"), *figures, "largest parts", title=title)
    for number, (one, exact) in enumerate(best, 1):
        parts = sorted(exact.parts.items(), key=lambda part: -part[1])[:3]
        shares = ", ".join(f"{name} {time / exact.seconds:.0%}" for name, time in parts)
        memory = f"{one.memory / GIB:.1f} GiB"
        table.add_row(str(number), one.plan.mesh, f"{exact.seconds:.2f} s", f"{exact.mfu:.1%}", memory, shares)
    show_table(table)
    first, _ = best[0]
    alike = sum(one.seconds <= (1 + ALIKE) * first.seconds for one in found.candidates)
    fit = f"{found.possible:,} plans are possible and {len(found.candidates):,} fit"
    say(f"{fit}; {alike} are alike, within {ALIKE:.0%} of the fastest.")
    for warning in first.plan.warnings(cluster):
        say(f"Note: {warning}.")


def _explain(model: Transformer, cluster: Cluster, best: Candidate, one: Step) -> None:
    say(f"\n{best.plan.mesh}: {one.seconds:.2f} s.")
    for name, time in sorted(one.parts.items(), key=lambda part: -part[1]):
        if time > 0.001 * one.seconds:
            say(f"  {name:<12} {time:8.2f} s  {time / one.seconds:6.1%}")
    say(f"Memory, {one.memory}.")
    table = Table("field", "value", *numbers("a step", "memory"), "", title="One step away")
    for name, others in one_step_away(model, cluster, best.plan).items():
        for other in others:
            change = other.seconds / best.seconds - 1
            words = "alike" if abs(change) < ALIKE else f"{change:+.0%}"
            if other.memory > ROOM * cluster.memory:
                words += ", does not fit"
            value = f"{getattr(best.plan, name)} -> {getattr(other.plan, name)}"
            table.add_row(name, value, f"{other.seconds:.2f} s", f"{other.memory / GIB:.1f} GiB", words)
    show_table(table)


def _as_data(title: str, cluster: Cluster, found: Found, best: Sequence[Timed]) -> dict[str, Any]:
    plans: list[dict[str, Any]] = []
    for one, exact in best:
        row: dict[str, Any] = {"plan": one.plan.as_answer()}
        row["plan"] |= {"dp": one.plan.dp, "microbatches": one.plan.microbatches}
        row |= {name: getattr(exact, name) for name in ("seconds", "mfu", "mfu_causal", "hfu")}
        row |= {"tokens_a_second_and_gpu": exact.tokens, "parts": exact.parts}
        row |= {"memory": exact.memory._asdict() | {"total": exact.memory.total}}
        plans.append({**row, "warnings": [*one.plan.warnings(cluster)]})
    front = [{"plan": one.plan.as_answer(), "seconds": one.seconds, "memory": one.memory} for one in found.front()]
    about = {"format": "llm-training-puzzles plan", "version": 1, "title": title}
    return about | {"possible": found.possible, "fit": len(found.candidates), "plans": plans, "front": front}


def predictions(
    each: Annotated[bool, option("Also print each run.", "--each")] = False, out: options.Output = None
) -> None:
    """Print predicted beside published: how far the closed forms are from runs that others measured, by set.

    Errors are of the time of a step: +10 % is predicted too slow by a tenth. A set is fitted, held out, or one where
    the closed forms fail, which says why.
    """
    table = Table(Column("set", overflow="fold"), "", *numbers("runs", "mean error", "worst", "promised"))
    for name, one in sets().items():
        runs = [run for run in published() if run.set == name]
        worst = max(map(error, runs), key=abs)
        promise = "" if one.promise is None else f"{one.promise:g} %"
        table.add_row(one.title, one.kind, str(len(runs)), f"{mean_error(runs):.1f} %", f"{worst:+.0%}", promise)
    show_table(table)
    for one in sets().values():
        if one.fails:
            say(f"{one.title}: {one.fails}")
    if each:
        gpus, said, off = numbers("GPUs", "published", "error")
        rows = Table("model", gpus, Column("plan", overflow="fold"), said, "", off)
        for run in published():
            measured = f"{run.value:g}", METRICS[run.metric], f"{error(run):+.1%}"
            rows.add_row(run.model_name, f"{run.plan.gpus:,}", run.plan.mesh, *measured)
        show_table(rows)
    if out is not None:
        from drawing.planning import Prediction, draw_predictions  # not above: most calls draw nothing

        points: list[Prediction] = []
        for run in published():
            seconds = step(run.model, CLUSTERS[run.cluster_name], run.plan).seconds
            name = f"{run.model_name}, {run.plan.gpus:,} GPUs"
            points.append(Prediction(name, seconds, seconds / (1 + error(run)), sets()[run.set].kind))
        draw_thing(draw_predictions(points), out)


def calibrate(
    out: Annotated[Path, output("a cluster", (".toml",))],
    like: Annotated[
        str | None, option(f"What is not measured, and the data sheet: {', '.join(CLUSTERS)}; or a .toml.")
    ] = None,
    ranks: Annotated[int | None, option("Ranks of the all-gathers; else all GPUs, or 2.", min=1, max=64)] = None,
    backend: Annotated[Literal["gloo", "nccl"] | None, option("Else nccl where there is a GPU.")] = None,
) -> None:
    """Measure this machine with torch, and write it as a cluster that `puzzles plan --gpu` takes.

    Products of matrices and copies on one GPU (or a core of the CPU), and all-gathers over all ranks, give the rates of
    `puzzles plan`, each beside what the fit makes of it. All else is that of the cluster it is like: by default the one
    with the GPU's name, else h100, whose data sheet does not count then.
    """
    if like is not None:
        _known("like", like, cluster_named)
    from lib.replay import ReplayError, need_torch  # not above: most calls measure nothing

    need_torch("a calibration")
    from lib.replay.machine import calibrated, predicted

    ready(out)  # raise OSError before measuring, not after
    try:
        found, timed, ranks = calibrated(like, ranks, backend)
    except (ReplayError, ValueError) as error:
        fail(str(error).replace("transport='gloo'", "--backend gloo"))  # the words of `puzzles replay`
    table = Table("", *numbers("size", "measured", "fitted", "error"))
    for one in timed:
        size = " x ".join(map(str, one.sizes)) if one.kind == "product" else f"{one.sizes[0] / 2**20:g} MiB"
        seconds = predicted(one, found, ranks)
        milliseconds = [f"{1e3 * time:.3f} ms" for time in (one.seconds, seconds)]
        table.add_row(one.kind, size, *milliseconds, f"{seconds / one.seconds - 1:+.0%}")
    say(f"{found.source}.")
    show_table(table)
    write_whole(out, cluster_text(found))
    say(f"Wrote {out}, for: puzzles plan --gpu {out} --model llama3-8b --gpus 8")
