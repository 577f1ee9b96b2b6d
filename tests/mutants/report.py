"""What `make mutants` found: the score of each module, and the survivors that nobody has explained.

Reads what mutmut left in mutants/, and explained.toml beside this file: there each survivor that is no gap in the
tests stands with the reason. A mutation is written as module.function: the lines before => the lines after, without the
module's room.
"""

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from difflib import ndiff
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXPLAINED = Path(__file__).with_name("explained.toml")
KILLED = {1: "killed", 3: "killed", 24: "timeout", -24: "timeout", 36: "timeout", 152: "timeout", 255: "timeout"}
"""What an exit code of a mutant's tests means; mutmut's own table. With 0 they passed, with 33 there are none."""
ENOUGH = 95
"""Percent of the mutants that have to be killed or explained."""


class Mutant(NamedTuple):
    module: str
    change: str
    fate: str


def mutants(modules: set[str]) -> Iterator[Mutant]:
    """All mutants of some modules (none named: of all) whose tests have run."""
    for meta in sorted((ROOT / "mutants").glob("*/mutants/lib/**/*.py.meta")):
        room, module = meta.parent.name, meta.name.removesuffix(".py.meta")
        codes: dict[str, int | None] = json.loads(meta.read_text("utf-8"))["exit_code_by_key"]
        if modules and not modules & {module, f"{room}.{module}"}:
            continue
        spans: dict[str, list[int]] = json.loads(meta.with_suffix(".spans").read_text("utf-8"))["spans"]
        lines = meta.with_suffix("").read_text("utf-8").splitlines()
        for key, code in codes.items():
            if code is not None:
                yield Mutant(module, _change(module, key, spans, lines), KILLED.get(code, "survived"))


def _change(module: str, key: str, spans: dict[str, list[int]], lines: list[str]) -> str:
    """A mutation in one line. mutmut names the third one of a method `lib.room.module.xǁClassǁmethod__mutmut_3`."""
    name = key.rpartition(".")[2]
    mangled = name.partition("__mutmut_")[0]
    function = mangled[1:].strip("ǁ").replace("ǁ", ".") if "ǁ" in mangled else mangled.removeprefix("x_")
    original, plain = mangled + "__mutmut_orig", function.rpartition(".")[2]
    before, after = (
        [line.strip().replace(generated, plain) for line in lines[slice(spans[generated][0] - 1, spans[generated][1])]]
        for generated in (original, name)
    )
    changed = [line for line in ndiff(before, after) if line[0] in "+-"]
    sides = (" ".join(line[2:] for line in changed if line[0] == side) for side in "-+")
    return f"{module}.{function}: " + " => ".join(sides)


def main(modules: list[str]) -> int:
    """Prints the score of each module and the survivors. 1 where the score is too low."""
    explained = tomllib.loads(EXPLAINED.read_text("utf-8"))["explained"]
    whole = {change for entry in explained for change in entry.get("changes", ())}
    kinds = [re.compile(entry["pattern"]) for entry in explained if "pattern" in entry]
    fates: dict[str, Counter[str]] = {}
    left: list[str] = []
    met: set[str] = set()
    for mutant in mutants(set(modules)):
        fate = mutant.fate
        if fate == "survived" and (mutant.change in whole or any(kind.search(mutant.change) for kind in kinds)):
            fate = "explained"
            met.add(mutant.change)
        fates.setdefault(mutant.module, Counter())[fate] += 1
        if fate == "survived":
            left.append(mutant.change)
    for change in sorted(left):
        print(change)
    if not modules:
        for change in sorted(whole - met):
            print(f"explained, but no survivor: {change}")
    total = sum(fates.values(), Counter[str]())
    print(f"\n{'':<14} {'mutants':>8} {'killed':>8} {'timeout':>8} {'explained':>10} {'left':>6}   score")
    for module, counts in (*sorted(fates.items()), ("all", total)):
        columns = [counts[fate] for fate in ("killed", "timeout", "explained", "survived")]
        score = 100 - 100 * counts["survived"] / max(1, counts.total())
        print(f"{module:<14} {counts.total():>8} {'{:>8} {:>8} {:>10} {:>6}'.format(*columns)} {score:>6.1f}%")
    return int(100 * total["survived"] > (100 - ENOUGH) * total.total())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
