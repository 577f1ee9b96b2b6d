"""A class's submissions: what was handed in, run where it can do no harm, judged here, and put into a gradebook."""
