"""`python -m lib.replay trace.json`: replays a saved Trace, by itself or as one process of torchrun."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from lib.errors.exceptions import TraceError
from lib.files import write_whole
from lib.replay import ReplayError, ReplayOptions, ReplayResult, replay
from lib.schedules.formats.chrome import write_perfetto
from lib.trace.trace import Trace


class Outputs(NamedTuple):
    """The files to write for a result: its figures, the measured Trace, and both timelines for ui.perfetto.dev."""

    json: Path | None = None
    save: Path | None = None
    perfetto: Path | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit status 0: right; 1: wrong numbers, or the replay could not be done."""
    parser = argparse.ArgumentParser(prog="python -m lib.replay", description=__doc__)
    parser.add_argument("trace", help="a Trace, as Trace.save wrote it")
    for option in fields(ReplayOptions):
        flag, allowed = option.name.replace("_", "-"), option.metadata
        more: dict[str, Any] = {"dest": option.name, "default": option.default}
        if allowed["kind"] is bool:
            parser.add_argument(f"--no-{flag}", action="store_false", help=f"do not {allowed['help']}", **more)
            continue
        more |= {"choices": allowed["choices"]} if allowed["choices"] else {"type": allowed["kind"]}
        more |= {"action": "append", "default": []} if allowed["several"] else {}
        parser.add_argument(f"--{flag}", help=allowed["help"], **more)
    for name, what in zip(Outputs._fields, ("the figures", "the measured Trace", "both timelines"), strict=True):
        parser.add_argument(f"--{name}", type=Path, help=f"write {what} here")
    chosen = vars(parser.parse_args(arguments))
    path, outputs = chosen.pop("trace"), Outputs(*(chosen.pop(name) for name in Outputs._fields))
    return replay_and_tell(path, chosen, outputs)


def replay_and_tell(
    path: str,
    chosen: dict[str, Any],
    outputs: Outputs,
    load: Callable[[str], Trace] = Trace.load,
    show: Callable[[ReplayResult], None] = lambda result: None,
) -> int:
    """Replay the Trace that `load` reads from a path with the options `chosen`, print the result, write the outputs.

    `show` is called with the result, once. The exit status is that of `main`.
    """
    try:
        options = ReplayOptions(**chosen)
        result = replay(load(path), options)
    except (ReplayError, TraceError, ImportError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    if result.rank == 0:
        print(result.text(), flush=True)
        show(result)
        if outputs.json is not None:
            write_whole(outputs.json, json.dumps(result.to_json(), indent=1) + "\n")
        if outputs.save is not None:
            result.measured.save(outputs.save)
        if outputs.perfetto is not None:
            write_perfetto(outputs.perfetto, {"simulated": result.simulated, "measured": result.measured})
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
