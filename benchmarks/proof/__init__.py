"""What the benchmarks share that train many models and hold them against each other."""
