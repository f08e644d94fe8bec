"""Links between the pages lead somewhere: to a file, and to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import documented
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / page for page in documented.pages("docs", "docs/guides", "docs/results")),
        REPOSITORY / "benchmarks" / "README.md",
    ]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page.read_text()) if not leads_somewhere(page, link)]
    assert broken == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](nowhere.md)\n")
    assert [link for link in links(page.read_text()) if not leads_somewhere(page, link)] == ["#three", "nowhere.md"]


def links(text: str) -> list[str]:
    """Addresses of the links and pictures that lead to files here."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (
        not heading or heading in map(anchor, re.findall(r"^#+ (.*)$", target.read_text(), re.M))
    )


def anchor(heading: str) -> str:
    """As GitHub makes it: small letters, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
