"""Parts of `attack_speed.py`: what is measured, the sides that are measured, and the tables."""
