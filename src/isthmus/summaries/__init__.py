"""Rates and other figures with their intervals, computed from results and from nothing else."""
