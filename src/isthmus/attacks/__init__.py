"""Attacks: one method, one file, in words/ and gradient/; shared steps in parts/."""
