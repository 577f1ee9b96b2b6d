"""Do what the ranks do: fill every part up, put them one after the other, and look where the rows are.

Good for being sure: it has no formula for a slot that could be wrong. It also needs the memory of the whole gather, which
is no matter for numbers of rows, and would be one for rows.
"""


def scatter_rows(rows, ranks, rule):
    if rows < 1 or ranks < 1:
        raise ValueError(f"no {'rows' if rows < 1 else 'ranks'}")
    largest, (each, left) = -(-rows // ranks), divmod(rows, ranks)
    sizes = {
        "chunk": [largest] * ranks,
        "tensor_split": [each + 1] * left + [each] * (ranks - left),
    }
    if rule not in sizes:
        raise ValueError(f"a rule is one of {', '.join(sizes)}")
    waiting, parts, gather = list(range(rows)), [], []
    for size in sizes[rule]:
        mine, waiting = waiting[:size], waiting[size:]  # where fewer are left, a slice has fewer
        end = rows - len(waiting)
        parts.append([end - len(mine), end])
        gather += mine + [None] * (largest - len(mine))
    return {"parts": parts, "slots": [slot for slot, row in enumerate(gather) if row is not None]}
