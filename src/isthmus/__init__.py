"""isthmus makes text classifiers hard to fool, and proves how hard."""

__version__ = "0.1.0"
