"""Write down the addresses of all ranks, and look them up.

Good for reading: a group is literally everybody whose address differs in one number. It makes as many addresses as there
are ranks, for a single one; on 16,384 ranks that is a lot of work for five short lists.
"""


def parallel_dims(world, sizes, rank):
    from itertools import product
    from math import prod

    others = prod(size for axis, size in sizes.items() if axis != "dp_shard")
    if sizes["dp_shard"] == -1 and others > 0:
        sizes = sizes | {"dp_shard": world // others}
    if min(sizes.values()) < 1:
        raise ValueError(f"a size is 1 or more; got {sizes}")
    addresses = list(product(*(range(size) for size in sizes.values())))  # the last number changes first
    if len(addresses) != world:
        raise ValueError(f"{sizes} make {len(addresses)} ranks, and there are {world}")
    mine = addresses[rank]
    groups = {}
    for place, axis in enumerate(sizes):
        same = mine[:place] + mine[place + 1 :]
        groups[axis] = [other for other, its in enumerate(addresses) if its[:place] + its[place + 1 :] == same]
    return {"sizes": sizes, "place": dict(zip(sizes, mine, strict=True)), "groups": groups}
