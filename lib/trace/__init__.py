"""The Trace: one run as plain data, and what follows from it alone."""
