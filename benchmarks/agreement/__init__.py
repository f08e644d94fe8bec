"""Parts of `parity.py`: the attacks that are compared, both sides, the statistics, and the tables."""
