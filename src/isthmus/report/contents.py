"""Contents of the page: every heading has an id, and is linked from the contents or from the section it lies in.

Only markup of our own templates is read here: the texts in it are escaped, and hold no tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLACE = '<nav class="contents" aria-label="Contents"></nav>'
"""Where a template wants the contents."""
_HEADING = re.compile(r'<h([23])(?: id="([^"]*)")?>(.*?)</h\1>', re.DOTALL)


@dataclass
class _Heading:
    level: int
    id: str
    inside: str

    @property
    def link(self) -> str:
        words = " ".join(re.sub(r"<[^>]*>", " ", self.inside).split())
        return f'<a href="#{self.id}">{words}</a>'

    def __str__(self) -> str:
        return f'<h{self.level} id="{self.id}">{self.inside}</h{self.level}>'


def add_contents(page: str) -> str:
    """A page with ids at its headings, its contents, and links to the parts of sections that have several."""
    taken = set(re.findall(r'\bid="([^"]+)"', page))
    headings = [_read_heading(found, taken) for found in _HEADING.finditer(page)]
    parts: dict[str, list[_Heading]] = {}
    section = ""
    for heading in headings:
        if heading.level == 2:
            section = heading.id
        else:
            parts.setdefault(section, []).append(heading)
    waiting = iter(headings)

    def write(found: re.Match[str]) -> str:
        heading = next(waiting)
        below = parts.get(heading.id, []) if heading.level == 2 else []
        return str(heading) + (_list_links("Parts", below) if len(below) > 1 else "")

    page = _HEADING.sub(write, page)
    return page.replace(PLACE, _list_links("Contents", [heading for heading in headings if heading.level == 2]), 1)


def _list_links(name: str, headings: list[_Heading]) -> str:
    return f'<nav class="contents" aria-label="{name}">{"".join(heading.link for heading in headings)}</nav>'


def _read_heading(found: re.Match[str], taken: set[str]) -> _Heading:
    """A heading with its own id, or with one made of its words that no other element has."""
    if found[2]:
        return _Heading(int(found[1]), found[2], found[3])
    words = re.sub(r"<[^>]*>|&\w+;|&#\d+;", " ", found[3]).lower()
    name = "-".join(re.findall(r"[a-z0-9]+", words)) or "part"
    number = 1
    while (unique := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    taken.add(unique)
    return _Heading(int(found[1]), unique, found[3])
