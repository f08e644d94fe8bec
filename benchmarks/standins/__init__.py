"""Stand-ins for resources of TextAttack that are not available; runs in TextAttack's environment, without isthmus.

Each module replaces one resource and nothing else, and says in one line what it put where (`Notes`).
"""

from __future__ import annotations

Notes = dict[str, str]
"""Resource -> what stands in for it; kept in the header of every result file."""
