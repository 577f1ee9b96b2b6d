"""`puzzles schedule`: the orders of pipelines, known ones and those of files. A thin door to lib/schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from lib.cli.console import fail, say, show_table
from lib.course.subject import run as run_subject
from lib.errors.wording import counted, exact
from lib.files import ready, write_whole
from lib.schedules.formats.order_file import Imported
from lib.schedules.formats.orders import FORMATS, at_equal_costs, in_positions, in_time, read_file
from lib.schedules.pipelines.action import Order, batches_of, places
from lib.schedules.pipelines.catalogue import SCHEDULES
from lib.schedules.pipelines.legality import IllegalOrder
from lib.schedules.pipelines.lowering import compute_only
from lib.schedules.pipelines.timing import Timed

__all__ = ["schedules"]

SHORT = {"help_option_names": ["-h", "--help"]}
schedules = typer.Typer(
    context_settings=SHORT, no_args_is_help=True, help="Schedules of pipelines: list, show, exchange with torch."
)

Ranks = Annotated[int, typer.Option(min=1, max=1024, help="Ranks of the pipeline.")]
Batches = Annotated[int, typer.Option(min=1, max=4096, help="Microbatches.")]
Chunks = Annotated[int | None, typer.Option(min=1, max=64, help="Stages a rank has.", show_default=False)]
COSTS = "A rank takes 1 for the forward of a microbatch, 2 for the backward; messages are posted and take no time."
```
