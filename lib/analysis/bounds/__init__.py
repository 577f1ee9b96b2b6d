"""Lower bounds: what no schedule of a family can beat."""
