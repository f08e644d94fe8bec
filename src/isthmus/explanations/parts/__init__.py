"""Shared parts of explanations: gradient paths, queries, and words with their weights."""
