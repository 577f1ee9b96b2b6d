"""What students get wrong in the four puzzles of the map: what they thought, and what they wrote."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from lib.submissions.load import load_function
from lib.submissions.locations import reference

__all__ = ["MISTAKES", "Mistake", "function"]


class Mistake(NamedTuple):
    """A wrong answer to a puzzle: what the student thought, and the body of the function."""

    puzzle: str
    name: str
    thought: str
    code: str


MISTAKES = (
    Mistake(
        "local_devices",
        "place_is_the_row",
        "The place of a row is its number.",
        """
        rows = [row for replica in grid for row in replica]
        return {n: n for n, row in enumerate(rows) if any(d // per_process == process for d in row)}
        """,
    ),
    Mistake(
        "local_devices",
        "first_device_only",
        "The process of a row is that of its first device.",
        """
        rows = [row for replica in grid for row in replica]
        mine = [n for n, row in enumerate(rows) if row[0] // per_process == process]
        return {n: place for place, n in enumerate(mine)}
        """,
    ),
    Mistake(
        "local_devices",
        "a_place_for_each_device",
        "Every device gets a place of its own.",
        """
        rows, places, count = [row for replica in grid for row in replica], {}, 0
        for n, row in enumerate(rows):
            for d in row:
                if d // per_process == process:
                    places[n] = count
                    count += 1
        return places
        """,
    ),
    Mistake(
        "local_devices",
        "rows_of_one_replica",
        "A row is its place along data.",
        """
        places = {}
        for replica in grid:
            for n, row in enumerate(replica):
                if any(d // per_process == process for d in row):
                    places[n] = len(places)
        return places
        """,
    ),
    Mistake(
        "local_devices",
        "remainder_for_quotient",
        "Processes take turns: device 1 belongs to process 1.",
        """
        rows, places = [row for replica in grid for row in replica], {}
        for n, row in enumerate(rows):
            if any(d % per_process == process for d in row):
                places[n] = len(places)
        return places
        """,
    ),
    Mistake(
        "process_map",
        "own_corner",
        "The name is the device at the smallest model of the process itself.",
        """
        names, shards = {}, {}
        for process in range(sum(len(row) for replica in grid for row in replica) // per_process):
            here = [
                (r, d, m)
                for r, replica in enumerate(grid)
                for d, row in enumerate(replica)
                for m, device in enumerate(row)
                if device // per_process == process
            ]
            r, d, m = map(min, zip(*here))
            shards[process] = names.setdefault(grid[r][d][m] // per_process, len(names))
        return shards
        """,
    ),
    Mistake(
        "process_map",
        "first_place_of_the_process",
        "The smallest place is the first row in which the process has a device.",
        """
        names, shards = {}, {}
        rows = [row for replica in grid for row in replica]
        for process in range(sum(map(len, rows)) // per_process):
            row = next(row for row in rows if any(d // per_process == process for d in row))
            shards[process] = names.setdefault(row[0] // per_process, len(names))
        return shards
        """,
    ),
    Mistake(
        "process_map",
        "not_numbered",
        "The name of the group is the data shard.",
        """
        smallest = {}
        for r, replica in enumerate(grid):
            for d, row in enumerate(replica):
                for device in row:
                    a, b = smallest.get(device // per_process, (r, d))
                    smallest[device // per_process] = min(a, r), min(b, d)
        return {p: grid[r][d][0] // per_process for p, (r, d) in sorted(smallest.items())}
        """,
    ),
    Mistake(
        "process_map",
        "one_for_each",
        "Every process reads another part.",
        "return {p: p for p in range(sum(len(row) for replica in grid for row in replica) // per_process)}",
    ),
    Mistake(
        "break_the_map",
        "never",
        "The rule is right: that is what they said.",
        "return None",
    ),
    Mistake(
        "break_the_map",
        "some_device_of_a_row",
        "An example is fed rightly if exactly one row has it.",
        """
        held = published(grid, per_process, batch)
        rows = [row for replica in grid for row in replica]
        for example in range(batch):
            if sum(any(example in held[d] for d in row) for row in rows) != 1:
                return example
        """,
    ),
    Mistake(
        "break_the_map",
        "held_by_several_devices",
        "An example that two devices have is there twice.",
        """
        held = published(grid, per_process, batch)
        for example in range(batch):
            if sum(example in examples for examples in held.values()) > 1:
                return example
        """,
    ),
    Mistake(
        "break_the_map",
        "the_row_for_the_example",
        "It wants the rows that clash.",
        """
        held = published(grid, per_process, batch)
        rows = [row for replica in grid for row in replica]
        for a, one in enumerate(rows):
            for b, other in enumerate(rows[:a]):
                if any(set(held[x]) & set(held[y]) for x in one for y in other):
                    return [b, a]
        """,
    ),
    Mistake(
        "fix_the_map",
        "everything",
        "Whoever reads everything has what it needs.",
        """
        count = sum(len(row) for replica in grid for row in replica) // per_process
        return {p: list(range(batch)) for p in range(count)}
        """,
    ),
    Mistake(
        "fix_the_map",
        "by_process",
        "Every process reads its own part of the batch.",
        """
        rows = [row for replica in grid for row in replica]
        count = sum(map(len, rows)) // per_process
        reads, first = {}, 0
        for p in range(count):
            mine = sum(any(d // per_process == p for d in row) for row in rows) * batch // len(rows)
            reads[p] = [e % batch for e in range(first, first + mine)]
            first += mine
        return reads
        """,
    ),
    Mistake(
        "fix_the_map",
        "once_a_device",
        "Every device needs its examples.",
        """
        rows = [row for replica in grid for row in replica]
        each, reads = batch // len(rows), {}
        for n, row in enumerate(rows):
            for d in row:
                reads.setdefault(d // per_process, []).extend(range(n * each, n * each + each))
        return reads
        """,
    ),
    Mistake(
        "fix_the_map",
        "in_the_order_of_devices",
        "A process reads the rows of its devices, the first device first.",
        """
        rows = [row for replica in grid for row in replica]
        each, row_of = batch // len(rows), {d: n for n, row in enumerate(rows) for d in row}
        reads = {}
        for d in sorted(row_of):
            mine = reads.setdefault(d // per_process, [])
            if row_of[d] * each not in mine:
                mine.extend(range(row_of[d] * each, row_of[d] * each + each))
        return reads
        """,
    ),
)


def function(mistake: Mistake) -> Callable[..., Any]:
    """The function that the student wrote, in the notebook of the puzzle."""
    solved = load_function(reference(mistake.puzzle), mistake.puzzle)
    arguments = solved.__code__.co_varnames[: solved.__code__.co_argcount]
    body = textwrap.indent(textwrap.dedent(mistake.code).strip(), "    ")
    namespace: dict[str, Any] = dict(solved.__globals__)
    code = f"def {mistake.puzzle}({', '.join(arguments)}):\n{body}\n"
    exec(compile(code, f"/tmp/ipykernel_1/{mistake.name}.py", "exec", dont_inherit=True), namespace)
    return namespace[mistake.puzzle]
