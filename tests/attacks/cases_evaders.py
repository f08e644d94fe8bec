"""Rows of the attacks that real evaders use."""

from __future__ import annotations

from attack_toys import Case

CASES: dict[str, Case] = {}
