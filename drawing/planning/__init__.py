"""Pictures of plans: bytes beside the memory of a GPU, the step of a pipeline, many plans, and predictions."""
