"""Deal the layers that are left, one after the other.

Good for reading: it does what the rule says, word for word. The reference finds each end by counting, and needs no list of
sizes.
"""


def split_layers(layers, stages):
    if not 1 <= stages <= layers:
        raise ValueError(f"{stages} stages need at least {stages} layers, and there are {layers}")
    sizes = [layers // stages] * stages
    for stage in range(1, layers % stages + 1):
        sizes[stage] += 1
    return [sum(sizes[:stage]) for stage in range(1, stages)]
