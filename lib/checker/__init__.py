"""Is a Trace one correct training step?"""
