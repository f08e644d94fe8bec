"""Estimates of information: closed forms and bounds, estimators that fit a network first, and entropies of counts."""
