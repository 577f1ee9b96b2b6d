"""A formula for where each part begins. A part ends where the next one begins, so there is nothing to add up.

Good where a rank wants to know its own part only: it need not go through those of the others. PyTorch has the formula of
`chunk` in `local_shard_size_and_offset`.
"""


def scatter_rows(rows, ranks, rule):
    if min(rows, ranks) < 1:
        raise ValueError("there is a row at least, and a rank")
    largest, each, left = -(-rows // ranks), rows // ranks, rows % ranks
    if rule == "chunk":
        begins = [min(rank * largest, rows) for rank in range(ranks + 1)]
    elif rule == "tensor_split":
        begins = [rank * each + min(rank, left) for rank in range(ranks + 1)]
    else:
        raise ValueError(f"there is no rule {rule!r}")
    parts = [begins[rank : rank + 2] for rank in range(ranks)]
    slots = [rank * largest + row - begin for rank, (begin, end) in enumerate(parts) for row in range(begin, end)]
    return {"parts": parts, "slots": slots}
