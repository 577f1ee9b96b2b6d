"""Look for one process after the other: all its places, then the smallest on each axis.

Good for reading: each line is a step of the rule, as Levanter's own code has it. It goes through the whole mesh once for
every process, which is a lot on 10,000 devices; the reference goes through it once.
"""


def process_map(grid, per_process):
    places = [(r, d, device) for r, replica in enumerate(grid) for d, row in enumerate(replica) for device in row]
    numbers, shards = {}, {}
    for process in range(len(places) // per_process):
        mine = [(r, d) for r, d, device in places if device // per_process == process]
        corner = grid[min(r for r, _ in mine)][min(d for _, d in mine)][0]
        shards[process] = numbers.setdefault(corner // per_process, len(numbers))
    return shards
