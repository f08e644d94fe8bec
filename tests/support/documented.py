"""The pages of the repository, and the command lines on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages(*folders: str) -> list[str]:
    """Pages that lie in these folders themselves; those that the site makes lie in others."""
    return sorted(f"{folder}/{path.name}" for folder in folders for path in (ROOT / folder).glob("*.md"))


EVERY = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *pages("docs", "docs/guides", "docs/results")]


def commands(text: str, program: str) -> Iterator[str]:
    """Lines of code that begin with the program's name, joined where they go on, without comments.

    Code is what stands in a fence without a language, of a shell or of a workflow, or is indented by four spaces.
    """
    fence: str | None = None
    for line in text.replace("\\\n", " ").splitlines():
        mark = re.match(r" *```(\w*)", line)
        if mark:
            fence = mark[1] if fence is None else None
        elif fence in ("", "sh", "yaml") or (fence is None and line.startswith("    ")):
            found = re.match(rf" *(?:- run: |\$ )?({re.escape(program)} +\S.*?)(?:  +#.*)?$", line)
            if found:
                yield re.sub(r" +", " ", found[1])
