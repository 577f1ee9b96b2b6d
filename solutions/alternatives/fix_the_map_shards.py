"""Keep data shards where they will do, and read by index elsewhere: two processes share a shard if their rows are equal.

Good where a data set can be opened as "part k of n" only, as a stream can: it says for which meshes that is enough
(where any two processes have the same rows or none in common, and all have equally many), by comparing sets of rows and
not their corners. For other meshes it needs an index all the same, so with one at hand the reference is all there is to
write.
"""


def fix_the_map(grid, per_process, batch):
    rows = [row for replica in grid for row in replica]
    rows_of = {}
    for number, row in enumerate(rows):
        for device in row:
            rows_of.setdefault(device // per_process, {})[number] = None
    sets = list(dict.fromkeys(tuple(mine) for _, mine in sorted(rows_of.items())))
    apart = sum(map(len, sets)) == len(rows) and len({len(one) for one in sets}) == 1
    each = batch // len(rows)
    if apart:
        return {process: list(range(sets.index(tuple(mine)), batch, len(sets))) for process, mine in rows_of.items()}
    return {process: [number * each + i for number in mine for i in range(each)] for process, mine in rows_of.items()}
