"""What `puzzles build` and `puzzles check` do for those who write puzzles: they need a checkout of the repository."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from lib.suite.cli.console import console, fail, say, show_table
from tools.notebooks import build as notebooks
from tools.notebooks.verify import CHECKS, verify


def build(root: Path, *, check: bool, force: bool) -> None:
    """Write the notebooks that are not current, and remove those of an old number. With `check` write nothing, and fail
    where there is one; without `force` fail where somebody has worked in one."""
    left = notebooks.left_behind(root)
    if check and left:
        fail("Puzzles have other numbers now; run `puzzles build`:\n" + "\n".join(left))
    with console().status("Running every notebook"):
        files = notebooks.build(root)
    old = notebooks.stale(files, root)
    if check and old:
        fail("Not what their sources give; run `puzzles build`:\n" + "\n".join(old))
    if not check and not force and (worked_on := notebooks.worked_on([*old, *left], root)):
        fail("Somebody has worked in these; move them away, or use --force:\n" + "\n".join(worked_on))
    if not check:
        for name in notebooks.write(files, root):
            say(f"Wrote {name}")
        for name in left:
            (root / name).unlink()
            say(f"Removed {name}: the puzzle has another number now")
    say(f"{sum(name.endswith('.ipynb') for name in files)} notebooks are current.")


def check_all(root: Path, *, stored: bool) -> None:
    """Check every puzzle, notebook and reference, show a table, and fail where something is wrong."""
    with console().status("Running every notebook, solved and unsolved"):
        findings = verify(root, stored=stored)
    table = Table("", *CHECKS)
    for stem in sorted({finding.stem for finding in findings}):
        cells = {f.check: Text("FAIL", "red") if f.problem else Text("ok") for f in findings if f.stem == stem}
        table.add_row(stem, *(cells.get(check, Text("-")) for check in CHECKS))
    show_table(table)
    if problems := [f"{one.stem}, {one.check}: {one.problem}" for one in findings if one.problem]:
        fail("\n".join(problems))
    say("All is in order.")
