"""python -m tools.solver: solves a pipeline, or all of a grid, prints what it finds, stores it with --write.

With --order the best order at the memory of a schedule, else the fastest and the leanest with messages and all memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.analysis.bounds.optima import ACTIVATION, AIMS, BestOrder, Optimum, Size
from lib.files import ROOT
from lib.schedules.pipelines.catalogue import SCHEDULES
from tools.solver.orders import best_order
from tools.solver.search import NotFound, Search, between, fastest, leanest

STORE = ROOT / "lib" / "analysis" / "bounds" / "optima.json"
ORDERS = STORE.with_name("best_orders.json")


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line. With lists of sizes, all their combinations are solved."""
    parser = argparse.ArgumentParser(prog="python -m tools.solver", description=__doc__)
    parser.add_argument("--order", nargs="+", choices=SCHEDULES, default=[], help="schedules; each rank is a stage")
    parser.add_argument("--limit", type=float, help="another memory for --order, in microbatches of activations")
    parser.add_argument("--stages", type=int, nargs="+", default=[4], help="ranks")
    parser.add_argument("--layers", type=int, nargs="+", default=[8], help="a multiple of the stages; others are left")
    parser.add_argument("--batches", type=int, nargs="+", default=[4], help="each travels on its own")
    parser.add_argument("--overlap", action="store_true", help="messages may travel while their ranks compute")
    parser.add_argument("--between", action="store_true", help="also what lies between the fastest and the leanest")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each question that the solver is asked")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--write", action="store_true", help="store what is new or better beside lib/analysis/bounds/optima.json"
    )
    options = parser.parse_args(arguments)
    if options.write and options.limit is not None:
        parser.error("what is stored is the best order at the memory of a schedule: leave out --limit or --write")
    search = Search(options.seconds, options.workers)
    for name in options.order:
        for stages in options.stages:
            for batches in options.batches:
                try:
                    order = best_order(name, stages, batches, search, options.limit)
                except (NotFound, ValueError) as error:
                    print(f"{name} {stages} x {batches}: {error}", flush=True)
                    continue
                print(order_line(order), flush=True)
                if options.write:
                    write_orders(ORDERS, [order])
    for stages in () if options.order else options.stages:
        for layers in options.layers:
            for batches in options.batches if layers % stages == 0 else ():
                size = Size(stages, layers, batches, options.overlap)
                found: list[Optimum] = []
                try:
                    for optimum in answers(size, search, options.between):
                        print(line(optimum), flush=True)
                        found.append(optimum)
                except NotFound as error:
                    print(f"{size}: {error}", flush=True)
                if options.write:
                    write(STORE, found)


def answers(size: Size, search: Search, everything: bool = False) -> Iterator[Optimum]:
    """Return the fastest and the leanest schedule of a size; with `everything`, also those between that nothing
    beats."""
    quick, slow = fastest(size, search), leanest(size, search)
    yield quick
    if everything:
        yield from between(size, search, quick, slow)
    yield slow


def line(optimum: Optimum) -> str:
    """Say one optimum in one line."""
    stages, layers, batches, overlap = optimum.size
    how = "overlap" if overlap else "awaited"
    figures = f"end {optimum.end:g}, peak {optimum.peak:,}"
    return f"{stages} stages {layers} layers {batches} batches {how} {optimum.aim}: {figures}; {_status(optimum)}"


def _status(optimum: Optimum) -> str:
    """Say "optimal", or what is not proved."""
    gaps = [f"end {optimum.end:g}, bound {optimum.end_bound:g}"] if optimum.end > optimum.end_bound else []
    if optimum.peak > optimum.peak_bound:
        gaps.append(f"peak {optimum.peak:,}, bound {optimum.peak_bound:,}")
    return f"feasible: {'; '.join(gaps)}" if gaps else "optimal"


def order_line(order: BestOrder) -> str:
    """Say a best order in one line."""
    known = f"{order.schedule} {order.ranks} x {order.batches} with {order.peak:g}: {order.known:g}"
    return f"{known}; best {order.end:g}, {'optimal' if order.end == order.bound else f'bound {order.bound:g}'}"


def write_orders(store: Path, found: list[BestOrder]) -> None:
    """Put best orders into the file; those that are no better proved go."""
    old: list[dict[str, Any]] = json.loads(store.read_text("utf-8"))["orders"] if store.exists() else []
    kept = {_order_key(order): order for order in (BestOrder(**record) for record in old)}
    for order in found:
        before = kept.get(_order_key(order))
        if before is None or (order.end - order.bound, order.end) < (before.end - before.bound, before.end):
            kept[_order_key(order)] = order
    lines = ",\n".join(json.dumps(kept[key]._asdict()) for key in sorted(kept))
    store.write_text(f'{{"orders": [\n{lines}\n]}}\n', "utf-8")


def _order_key(order: BestOrder) -> tuple[int, int, int, float]:
    """Return what there is one of, in the order of the catalogue."""
    return order.ranks, order.batches, [*SCHEDULES].index(order.schedule), order.peak


def write(store: Path, found: list[Optimum]) -> None:
    """Put optima into the file; those that are no better proved go."""
    old: list[dict[str, Any]] = json.loads(store.read_text("utf-8"))["optima"] if store.exists() else []
    kept = {_key(optimum): optimum for optimum in map(Optimum.of, old)}
    for optimum in found:
        before = kept.get(_key(optimum))
        if before is None or _open(optimum) < _open(before):
            kept[_key(optimum)] = optimum
    lines = ",\n".join(json.dumps(_record(kept[key])) for key in sorted(kept))
    store.write_text(f'{{"optima": [\n{lines}\n]}}\n', "utf-8")


def _record(optimum: Optimum) -> dict[str, Any]:
    """Return an optimum as a record of optima.json, where peaks are in activations of one batch."""
    peaks = {name: getattr(optimum, name) // ACTIVATION for name in ("peak", "peak_bound")}
    fields = {name: value for name, value in optimum._asdict().items() if name != "size"}
    return {**optimum.size._asdict(), **fields, **peaks}


def _key(optimum: Optimum) -> tuple[Size, int, int]:
    """Return what there is one of: a size and an aim; between the extremes, also a peak."""
    return optimum.size, AIMS.index(optimum.aim), optimum.peak if optimum.aim == "between" else 0


def _open(optimum: Optimum) -> tuple[float, int, float, int]:
    """Return how much is open, and how good it is: less is better."""
    return (optimum.end - optimum.end_bound, optimum.peak - optimum.peak_bound, optimum.end, optimum.peak)


if __name__ == "__main__":
    main(sys.argv[1:])
