"""A curriculum of 24 puzzles in three chapters, for pictures that must not change with every new record."""

from typing import NamedTuple

__all__ = ["CURRICULUM", "SOLVED", "Stop"]


class Stop(NamedTuple):
    """A puzzle as the map sees it."""

    number: int
    needs: tuple[str, ...]
    chapter: str = "basics"
    title: str = "title"
    stem: str = "00_stem"
    teaches: str = "what it teaches, in a few words"


_CHAPTERS = {
    "basics": {
        "one": ("", "One device", "the order of operations, and which value is needed until when"),
        "batches": ("one", "Gradient accumulation", "the same step in less memory: one batch at a time"),
        "copies": ("one", "Distributed data parallel", "each rank a batch; the gradients are summed"),
        "weights": ("copies", "Weight-sharded data parallel", "keep a shard of every weight, and gather it"),
        "all": ("batches weights", "Fully sharded data parallel", "gradients are sharded too, so that sums fit"),
        "stages": ("one", "Pipeline", "each rank some layers; activations travel as messages"),
        "micro": ("batches stages", "GPipe: a pipeline of microbatches", "more ranks work at the same time"),
        "both": ("all micro", "Pipeline and FSDP together", "two ways of sharing on a mesh of ranks"),
    },
    "mesh": {
        "hidden": ("copies", "Hide the all-reduce", "sums on their way while the backward of the layers below goes on"),
        "first": ("copies weights", "ZeRO, stage 1", "only the optimizer state is sharded"),
        "second": ("first", "ZeRO, stage 2", "gradients are sharded as well, and sent no more often than before"),
        "ahead": ("all", "Fetch the next layer", "the gather of a layer hidden behind the one before"),
        "hybrid": ("all both", "Hybrid sharding", "shard inside a host, replicate across hosts"),
        "more": ("hybrid first second", "Hybrid sharding with ZeRO", "the optimizer over all ranks"),
        "sizes": ("hybrid", "The sizes of the axes", "what is fast and what is slow"),
    },
    "feeding": {
        "rows": ("both", "Which row of data is it?", "the places of the devices of a process"),
        "map": ("rows", "Which process reads what?", "processes with the same rows read the same part"),
        "break": ("map", "Break the map", "a mesh on which the published rule goes wrong"),
        "mend": (
            "break",
            "Mend the map, so that it holds for every mesh",
            "every row of data right, and no example read by a process that does not need it",
        ),
        "loader": ("map hybrid", "The loader", "each example is read once a process, and each device gets its slice"),
        "place": ("hybrid", "Where to put the inputs", "three placements of a batch"),
        "still": ("place batches", "Accumulate in place", "two microbatches without resharding"),
        "dispatch": ("loader", "Logical and physical batch", "padding, and which feed reads which part"),
        "less": ("dispatch mend", "Less than one example a host", "hosts that share an example are one reader"),
    },
}


def _stops() -> dict[str, Stop]:
    found: dict[str, Stop] = {}
    for chapter, puzzles in _CHAPTERS.items():
        for name, (needs, title, teaches) in puzzles.items():
            number = len(found) + 1
            found[name] = Stop(number, tuple(needs.split()), chapter, title, f"{number:02d}_{name}", teaches)
    return found


CURRICULUM = _stops()
SOLVED = ("one", "batches", "copies", "weights", "hidden", "rows")
