"""Bridges to other people's tools; each imports its library only when it is used."""
