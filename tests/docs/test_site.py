"""What the site adds to the pages: navigation, links, the reference of commands and names. `make docs` builds it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import documented
import pytest
from docutils.core import publish_doctree
from docutils.utils import SystemMessage
from typer.main import get_command

import isthmus
import site_docstrings
import site_pages
from isthmus.cli.app import app


def test_every_page_is_in_the_navigation() -> None:
    shown = {f"docs/{page}.md" for pages in site_pages.NAVIGATION.values() for page in pages}
    there = set(documented.pages("docs", "docs/guides", "docs/results")) - {"docs/index.md"}
    assert there <= shown
    made = {f"docs/{name}" for name, _ in (*site_pages.copied_pages(), *site_pages.command_pages())}
    assert shown <= there | made | {"docs/reference/api/index.md"}


def test_the_reference_has_every_verb_and_every_option() -> None:
    program: Any = get_command(app)
    made = dict(site_pages.command_pages())
    for name, verb in program.commands.items():
        page = made[f"reference/commands/{name}.md"]
        assert f"({name}.md)" in made["reference/commands/index.md"]
        for parameter in verb.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert all(f"`{option}`" in page for option in parameter.opts), (name, parameter.opts)


def test_the_reference_has_every_public_name() -> None:
    made = dict(site_pages.api_pages())
    for name in isthmus.__all__:
        thing = getattr(isthmus, name)
        if inspect.ismodule(thing):
            page = made[f"reference/api/{name}.md"]
            assert [each for each in thing.__all__ if f" isthmus.{name}.{each}\n" not in page] == []
        else:
            index = made["reference/api/index.md"]
            assert f" isthmus.{name}\n" in index or f"[`{name}`](" in index  # described there, or with its module


@pytest.mark.parametrize(
    ("link", "place", "moved"),
    [
        ("[a](docs/attacks.md#gates)", "CONTRIBUTING.md", "[a](/attacks.md#gates)"),
        ("[a](../SECURITY.md)", "docs/reliability.md", "[a](/project/security.md)"),
        ("[a](intervals.md)", "docs/attacks.md", "[a](/intervals.md)"),
        ("![a](../images/x.png)", "docs/results/vub.md", "![a](/images/x.png)"),
        ("[ledger](../results/defences.jsonl)", "docs/intervals.md", "ledger (`results/defences.jsonl`)"),
        ("[a](https://example.org/x.md)", "README.md", "[a](https://example.org/x.md)"),
        ("[a](#here)", "docs/attacks.md", "[a](#here)"),
        ("```\n[a](../SECURITY.md)\n```", "docs/attacks.md", "```\n[a](../SECURITY.md)\n```"),
    ],
)
def test_links_lead_into_the_site(link: str, place: str, moved: str) -> None:
    assert site_pages.move_links(link, place, "elsewhere.md") == moved


def test_pages_that_are_no_more_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "reference" / "commands" / "gone.md"
    old.parent.mkdir(parents=True)
    old.write_text("# gone\n")
    site_pages.write_pages(tmp_path)
    assert not old.exists()
    page = tmp_path / "reference" / "commands" / "attack.md"
    written = page.stat().st_mtime_ns
    site_pages.write_pages(tmp_path)
    assert page.stat().st_mtime_ns == written


DOCSTRING = """Breed texts of *near* words, by |score|.

    p(x_i) = 1 / n

source: a file, or
    a folder
name_: what to call it

References:
    Alzantot et al. (2018), https://example.org/a_b.

Example:
    ``isthmus attack runs/demo``
"""


def rendered(text: str) -> str:
    found = publish_doctree(
        "\n".join(site_docstrings.convert(text.splitlines())),
        settings_overrides={"halt_level": 2, "report_level": 2},
    )
    return re.sub(r"\s+", " ", found.pformat())


def test_a_docstring_becomes_what_it_means() -> None:
    page = rendered(DOCSTRING)
    assert "Breed texts of *near* words, by |score|." in page
    assert re.search(r"<literal_block[^>]*> p\(x_i\) = 1 / n", page)
    assert "<term> source <definition> <paragraph> a file, or a folder" in page
    assert "<term> name_" in page
    assert "<rubric> References" in page
    assert 'refuri="https://example.org/a_b"' in page
    assert "<literal> isthmus attack runs/demo" in page


@pytest.mark.parametrize("module", ["attacks", "defences"])
def test_no_docstring_breaks_the_site(module: str) -> None:
    for name in getattr(isthmus, module).__all__:
        text = inspect.getdoc(getattr(getattr(isthmus, module), name)) or ""
        try:
            rendered(text)
        except SystemMessage as wrong:
            pytest.fail(f"{module}.{name}: {wrong}")
