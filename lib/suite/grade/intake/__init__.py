"""What was handed in, by whom, which attempt, and what cannot be graded. Nothing of it is run, and nothing unpacked."""
