"""Shared parts of gradient attacks: problems, targets, ascents, losses, spaces."""
