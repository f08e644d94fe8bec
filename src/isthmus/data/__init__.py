"""Data sets: by registered name, by hub name, or from files, with label names, fingerprints and nested samples."""

from isthmus.data.dataset import Dataset, Rejected, Splits
from isthmus.data.load import load_data

__all__ = ["Dataset", "Rejected", "Splits", "load_data"]
