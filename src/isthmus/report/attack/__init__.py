"""Attacks in the terminal and on the page."""
