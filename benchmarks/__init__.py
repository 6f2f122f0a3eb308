"""What the broker costs, as ratios to the least possible cost. `python -m benchmarks`, or `make bench`."""
