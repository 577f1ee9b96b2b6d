"""Why ranks wait: gaps, what led to each, and the critical path."""
