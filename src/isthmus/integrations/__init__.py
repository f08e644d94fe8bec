"""Bridges to other libraries; each is imported only when it is used."""
