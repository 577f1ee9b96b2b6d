"""`puzzles compare`: runs beside each other, in words, as a picture, as a page, or as slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from lib.analysis.difference import unequal
from lib.cli.comparing.entries import Entry, Subject, entry_of, subjects
from lib.cli.comparing.figures import FIGURES, best
from lib.cli.comparing.outputs import output_option, write
from lib.cli.console import console, fail, say, show_table
from lib.cli.options import Batches, Layers, Limit, MeshOption, Ranks
from lib.puzzles.records import Size
from lib.submissions.load import SourceError

try:
    import typer
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column, Table
    from rich.text import Text
except ImportError as missing:
    package = (missing.name or "more").partition(".")[0]
    raise SystemExit(f"the puzzles command needs {package}: pip install typer rich watchfiles") from None

__all__ = ["compare_command", "entries_of", "state_of"]
