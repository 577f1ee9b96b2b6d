"""How fast it all is, in one table: `make bench`, or `python -m benchmarks --help`. No part of the package."""
