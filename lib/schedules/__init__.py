"""Known schedules: data parallel ones as a student would write them, pipelines as orders, and what solves them."""
