"""Runs many attacks at once and keeps the model's batches full."""
