"""The figures of runs beside each other: bars to scale, what they are made of, and time against memory."""
