"""`python -m lib.replay trace.json`: replays a saved Trace, by itself or as one process of torchrun."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.errors.exceptions import TraceError
from lib.replay import ReplayError, ReplayOptions, ReplayResult, calibrate, replay
from lib.replay.options import DTYPES, LIBRARIES, OPTIMIZERS, TRANSPORTS
from lib.schedules.formats.perfetto import perfetto
from lib.trace.trace import Trace

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    default = ReplayOptions()
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("trace", help="a Trace, as Trace.save wrote it; for `puzzles replay` whatever it can run")
    parser.add_argument("--transport", choices=TRANSPORTS, default=default.transport)
    parser.add_argument("--dtype", choices=list(DTYPES), default=default.dtype)
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default=default.optimizer)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=default.steps, help="measured steps; medians are shown")
    parser.add_argument("--warmup", type=int, default=default.warmup, help="unmeasured steps before them")
    parser.add_argument("--hidden", type=int, default=default.hidden, help="a weight has hidden x hidden elements")
    parser.add_argument("--length", type=int, default=default.length, help="a batch has length x hidden elements")
    parser.add_argument("--timeout", type=float, default=default.timeout, help="seconds for a rank to get on")
    parser.add_argument("--threads", type=int, default=default.threads, help="of torch, for each rank")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--backward", choices=["explicit", "autograd"], default=default.backward)
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not compare with the truth")
    parser.add_argument("--against", action="append", choices=LIBRARIES, default=[], help="run this library beside it")
    parser.add_argument("--start", choices=["auto", "fork", "forkserver"], default=default.start)
    parser.add_argument("--rendezvous", help="where the ranks meet; default a fresh file")
    parser.add_argument("--calibrate", metavar="OTHER", help="fit costs, and predict this other Trace")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--save", type=Path, help="write the measured Trace here")
    parser.add_argument("--perfetto", type=Path, help="write both timelines here, for ui.perfetto.dev")
    return parser


def main(
    arguments: Sequence[str] | None = None,
    load: Callable[[str], Trace] = Trace.load,
    show: Callable[[ReplayResult], None] | None = None,
) -> int:
    """Exit status 0: right; 1: wrong numbers, or the replay could not be done.

    `load` gives the Trace that an argument names; `show` is called with the result, once, beside printing it.
    """
    chosen = vars(_parser().parse_args(arguments))
    path, other = chosen.pop("trace"), chosen.pop("calibrate")
    json_, save, timeline = chosen.pop("json"), chosen.pop("save"), chosen.pop("perfetto")
    try:
        options = ReplayOptions.from_json(chosen)
        result = replay(load(path), options)
        second = None if other is None else replay(load(other), options)
    except (ReplayError, TraceError, ImportError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    if result.rank == 0:
        print(result.text(), flush=True)
        if show is not None:
            show(result)
        if second is not None:
            print(f"\n{calibrate([result], [second]).text()}", flush=True)
        if json_ is not None:
            json_.write_text(json.dumps(result.to_json(), indent=1) + "\n", "utf-8")
        if save is not None:
            result.measured.save(save)
        if timeline is not None:
            timeline.write_text(json.dumps(perfetto(simulated=result.simulated, measured=result.measured)), "utf-8")
    return 0 if result.ok and (second is None or second.ok) else 1


if __name__ == "__main__":
    sys.exit(main())
