"""Walk with the microbatch from stage to stage, and note down where it stands.

PyTorch's own table of stages is made like this. It has no formula that could be off by one, and takes a look at every stage
to find those of one rank.
"""


def stage_ids(rank, ranks, stages, style):
    if style not in ("loop", "v"):
        raise ValueError(f"there is no style {style!r}")
    if stages % ranks:
        raise ValueError(f"{stages} stages on {ranks} ranks leave some over")
    found, here, step = [], 0, 1
    for stage in range(stages):
        if here == rank:
            found.append(stage)
        if style == "loop":
            here = (here + 1) % ranks
        elif (stage + 1) % ranks == 0:
            step = -step  # it turns round, and stays where it is
        else:
            here += step
    return found
