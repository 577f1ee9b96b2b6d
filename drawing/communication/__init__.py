"""Pictures of communication: a collective over all its ranks, the ring that carries it, the mesh, and a whole step."""
