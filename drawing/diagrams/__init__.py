"""Pictures laid out from pieces: collectives, rings, steps, meshes, lanes of boxes, attention, experts and halos."""
