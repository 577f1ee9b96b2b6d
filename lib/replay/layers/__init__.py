"""Real layers, optimizers and tensors."""
