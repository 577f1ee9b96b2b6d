"""First the row of every device, then the rows of the devices of this process, without repetition and in order.

Good where the same mesh is asked about many times: the row of every device is worked out once and kept. It costs a dict
as large as the mesh, where the reference keeps nothing but its answer.
"""


def local_devices(grid, per_process, process):
    rows = [row for replica in grid for row in replica]
    row_of = {device: number for number, row in enumerate(rows) for device in row}
    mine = sorted({row_of[device] for device in range(process * per_process, (process + 1) * per_process)})
    return {number: place for place, number in enumerate(mine)}
