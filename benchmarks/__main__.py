"""Measure how fast it all is, and print one table: ours, each peer's, and the ratio, medians with their spread.

Times are those that the processor computes: what else runs on the machine counts less. Ours and the peer are measured
in turns, and ratios are those of neighbours, so both meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
HEAD = ("what", "ours", "beside", "peer", "ratio", "spread", "at most", "")


def measured(name: str, quick: bool, tree: Path) -> list[list[float | str | None]]:
    """Measure a row in a fresh interpreter, with lib and drawing of a tree and these benchmarks."""
    surroundings = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory() as folder:
        Path(folder, "benchmarks").symlink_to(ROOT / "benchmarks")
        path = os.pathsep.join([folder, str(tree)])
        surroundings |= {"PYTHONPATH": path, "PUZZLES_PROGRESS": "off", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "benchmarks", "--measure", name, *(["--quick"] if quick else [])]
        done = subprocess.run(command, cwd=folder, env=surroundings, stdout=subprocess.PIPE, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else []


def cells(
    name: str, samples: Sequence[Sequence[float | str | None]], base: Sequence[Sequence[float | str | None]]
) -> list[str]:
    """Return the cells of a row: medians, and from where to where the ratios go."""
    from benchmarks.rows import ROWS, START

    row, numbers = ROWS[name], [float(one[0] or 0) for one in samples]
    ours, peers = median(numbers), [float(one[1]) for one in samples if one[1] is not None]
    unit = 1e3 if row.kind in ("ratio", "above") and ours < 1 else 1.0
    word = {"GB": "GB"}.get(row.kind, "ms" if unit > 1 else "s")
    times = [one / peer for one, peer in zip(numbers, peers, strict=True)] if peers else []
    if row.kind == "ratio":
        ratios, form = times, "{:.2f}"
    elif row.kind == "above":
        ratios, form = [1e3 * START * (one - 1) for one in times], "{:+.0f} ms"
    else:
        ratios, form = [START * one for one in times] or numbers, "{:.3g} " + word
    least, most = form.format(min(ratios)), form.format(max(ratios))
    middle = median(ratios)
    target = "" if row.most is None else form.format(row.most)
    beside = "" if not peers else f"{unit * median(peers):.3g} {word}"
    note = str(samples[-1][2])
    if base:
        before = median(float(one[0] or 0) for one in base)
        note = ", ".join(filter(None, (f"{before / ours:.2f} times as fast as BASE", note)))
    shown = form.format(middle) if peers else ""
    sign = " !" if row.most is not None and middle > row.most else ""
    mine = f"{unit * ours:.3g} {word}"
    mine, shown = (mine, shown + sign) if peers else (mine + sign, "")
    return [name, mine, row.peer, beside, shown, f"{least} to {most}", target, note]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table in Markdown."""
    wide = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(size) for cell, size in zip(row, wide, strict=True)) + " |"
        for row in (HEAD, *rows)
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (size + 2) for size in wide) + "|", *lines[1:]])


def document(rows: Sequence[Sequence[str]], quick: bool) -> str:
    """Return the page docs/speed.md."""
    from benchmarks.rows import START

    python = f"{platform.python_implementation()} {platform.python_version()}"
    load = f", load {os.getloadavg()[0]:.0f}" if hasattr(os, "getloadavg") else ""
    machine = f"{python}, {os.cpu_count()} cores of {platform.machine()}{load}"
    return f"""# How fast

Measured with `make bench{" QUICK=1" if quick else ""}` ({machine}).
Seconds are CPU time, for replays that of all ranks; only starts of ranks are on the clock. Ours and its peer are
measured in turns: a ratio is the median of neighbours, and the spread goes from the lowest to the highest. `!` marks
what is too much.
What is beside bare Python is bounded in seconds of a machine on which that takes {1e3 * START:.1f} ms: ratio and spread
are what is measured here (above bare Python, where there is a +), as it would be there.

{table(rows)}

What grows as the work does is parallel to the dashed line:

![Seconds by events on logarithmic axes: simulate, check, retime, draw, save and load of DDP](speed.svg)

- `make bench ROWS="check retime"` measures the rows with one of these words in their names.
- `make bench BASE=main` measures that commit too, in turns with this tree.
- `make bench QUICK=1` takes minutes on two busy cores, at smaller sizes.
- `tests/benchmarks` holds the number of bytecode instructions of six programs within 3 %, whatever the machine.
- A wheel of C would not be twice as fast without a second source. mypyc 2.4.1 compiles two modules as they are,
  `lib/values/rules.py` and `laws.py`: DDP is simulated 1.15 times as fast, and 1F1B 1.22 times. It refuses classes with
  `__slots__`, and what looks for the line that called it sees no frames of compiled code. So all of it stays Python.
"""


def main() -> None:
    """Print the table; write docs/speed.md where all rows are measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("words", nargs="*", help="measure the rows with one of these words in their names; else all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer times: minutes on two busy cores")
    parser.add_argument("--base", metavar="COMMIT", help="measure this commit too, in turns with this tree")
    parser.add_argument("--write", action="store_true", help="write docs/speed.md and its picture")
    parser.add_argument("--measure", metavar="ROW", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    from benchmarks.rows import ROWS

    if asked.measure is not None:
        print(json.dumps([list(one) for one in ROWS[asked.measure].measure(asked.quick)]))
        return
    names = [name for name in ROWS if not asked.words or any(word in name for word in asked.words)]
    if not names:
        parser.error(f"no row has one of these words; there are: {'; '.join(ROWS)}")
    rows: list[list[str]] = []
    with TemporaryDirectory() as folder:
        tree, git = Path(folder, "base"), ("git", "-C", str(ROOT), "worktree")
        if asked.base is not None:
            subprocess.run([*git, "add", "--quiet", "--detach", str(tree), asked.base], check=True)
        try:
            for name in names:
                samples, base = measured(name, asked.quick, ROOT), list[list[float | str | None]]()
                if asked.base is not None:  # in turns: before it and after it
                    base = measured(name, asked.quick, tree)
                    samples += measured(name, asked.quick, ROOT)
                rows.append(cells(name, samples, base) if samples else [name, "failed", *[""] * (len(HEAD) - 2)])
                print(" | ".join(filter(None, rows[-1])), file=sys.stderr, flush=True)
        finally:
            if asked.base is not None:
                subprocess.run([*git, "remove", "--force", str(tree)], check=False)
    print(table(rows))
    if asked.write:
        from benchmarks.growth import draw_growth
        from benchmarks.growth import measured as grown

        draw_growth(grown(asked.quick)).save(ROOT / "docs" / "speed.svg")
        (ROOT / "docs" / "speed.md").write_text(document(rows, asked.quick), "utf-8")


if __name__ == "__main__":
    main()
