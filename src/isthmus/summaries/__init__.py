"""Rates and other figures with their intervals, computed from results alone."""
