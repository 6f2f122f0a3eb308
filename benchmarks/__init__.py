"""What the broker costs, as ratios to what cannot be had for less. `python -m benchmarks`, or `make bench`."""
