"""Certificates: one method, one file. Each states its threat model, its probability and its assumptions.

A class is imported when it is first asked for, so that listing the methods costs nothing.

    >>> from isthmus import certificates
    >>> certificates.Gaussian(sigma=0.5).unit
    'radius'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.core import catalog

if TYPE_CHECKING:
    from isthmus.certificates.base import Certificate, Certified, Statement
    from isthmus.certificates.exact import Exact
    from isthmus.certificates.gaussian import Gaussian
    from isthmus.certificates.synonym import Synonym

__all__ = [
    "Certificate",
    "Certified",
    "Exact",
    "Gaussian",
    "Statement",
    "Synonym",
]


def __getattr__(name: str) -> Any:
    if name in ("Certificate", "Certified", "Statement"):
        from isthmus.certificates import base

        return getattr(base, name)
    if name in __all__:
        return catalog.find("certificates", name).load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
