"""Backbones, the slots a defence fills, and every kind of victim."""
