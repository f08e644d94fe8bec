"""Rows of the greedy and beam attacks."""

from __future__ import annotations

from attack_toys import Case

CASES: dict[str, Case] = {}
