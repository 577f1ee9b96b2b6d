"""Reading what somebody handed in without running a line: cells, names, what a function needs, its normal form."""
