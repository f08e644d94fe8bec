"""Shared parts of defences: parameter checks, bottlenecks, perturbations, word terms, composition."""
