"""Deal the rows out one by one and count who has how many: to the first rank that is not full, or to each in turn.

Good for reading: the two rules differ in a single line, and it is how somebody would do it with cards.
"""


def scatter_rows(rows, ranks, rule):
    if rows < 1 or ranks < 1 or rule not in ("chunk", "tensor_split"):
        raise ValueError("a row, a rank, and a rule")
    largest, sizes = (rows + ranks - 1) // ranks, [0] * ranks
    for row in range(rows):
        sizes[row // largest if rule == "chunk" else row % ranks] += 1
    parts = [[sum(sizes[:rank]), sum(sizes[: rank + 1])] for rank in range(ranks)]
    slots = [rank * largest + k for rank in range(ranks) for k in range(sizes[rank])]
    return {"parts": parts, "slots": slots}
