"""How a run was fed: which examples each process read, which each device got, and which rows of data there are."""
