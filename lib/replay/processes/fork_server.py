"""A fresh Python that forks the ranks, for a parent that must not be forked.

    python -m lib.replay.processes.fork_server FOLDER

The folder holds the Trace, the options and the shared state; the outcome is written there, too. Ends when its standard
input does, which is when its parent is gone.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path

from lib.replay.errors import ReplayError
from lib.replay.options import ReplayOptions
from lib.replay.plan.memory import plan_that_fits
from lib.replay.processes.launch import fork_ranks
from lib.replay.processes.shared_state import SharedState
from lib.replay.rank.context import Job
from lib.trace.trace import Trace

__all__ = ["main"]


def main(folder: Path) -> int:
    """Runs what the folder holds; exit status 1 for an error that the outcome tells of."""
    options = ReplayOptions.from_json(json.loads((folder / "options.json").read_text("utf-8")))
    try:
        job = Job.of(plan_that_fits(Trace.load(folder / "trace.json"), options), options)
        state = SharedState(folder / "state", job.kept, job.initial.dtype, create=False)
        ranks = folder / "ranks"
        ranks.mkdir()
        outcome: dict[str, object] = {"reports": fork_ranks(job, state, ranks)}
    except ReplayError as error:
        kind = type(error).__name__
        outcome = {"kind": kind, "what": str(error), "rank": error.rank, "operation": error.operation}
    (folder / "outcome.json").write_text(json.dumps(outcome), "utf-8")
    return int("kind" in outcome)


def _until_parent_ends(folder: Path) -> None:
    """The parent closes our standard input when it has what it wants, or when it is gone: then its folder goes too."""
    sys.stdin.buffer.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(75)


if __name__ == "__main__":
    threading.Thread(target=_until_parent_ends, args=[Path(sys.argv[1])], daemon=True).start()
    sys.exit(main(Path(sys.argv[1])))
