"""Proposals, constraints, goals and searches that attacks are composed of."""
