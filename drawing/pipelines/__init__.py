"""Pictures of pipelines before anything runs: which rank has which stages, and which layers these have."""
