"""Deal the examples out to the rows like cards: row r gets r, r + R, r + 2R, ... of R rows.

Good for data that lies in the files in some order: neighbours, which are often alike, go to different rows. Blocks, as
in the reference, are read from the files in one piece, which is quicker.
"""


def fix_the_map(grid, per_process, batch):
    rows = [row for replica in grid for row in replica]
    reads = {}
    for number, row in enumerate(rows):
        for process in {device // per_process for device in row}:
            reads.setdefault(process, []).extend(range(number, batch, len(rows)))
    return reads
