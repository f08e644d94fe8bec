"""Docstrings of this package as reStructuredText, which autodoc wants.

Our docstrings are plain text with four shapes: paragraphs; an indented block after an empty line, which is an equation
or code; a heading that ends with a colon over an indented block (`References:`); and a name with a colon before its
explanation (`source: a file`). Everything else is shown letter by letter, so no docstring can break the site.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

_HEADING = re.compile(r"[A-Z][\w ]*:")
_ENTRY = re.compile(r"(\*{0,2}\w[\w, *]*?): +(\S.*)")
_MARKED = re.compile(r"(``.+?``|`[^`\n]+`|https?://[^\s,;)]+)", re.DOTALL)
_LISTS = ("Args", "Attributes", "Yields", "Raises")


def convert(lines: Sequence[str]) -> list[str]:
    """A docstring's lines as reStructuredText."""
    return [line for block in _blocks(list(lines)) for line in (*_shown(block), "")]


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Parts that empty lines set apart; an indented part stays whole, with the empty lines inside it."""
    block: list[str] = []
    for number, line in enumerate(lines):
        if line.strip():
            block.append(line)
        elif block:
            following = next((each for each in lines[number:] if each.strip()), "")
            if block[-1][:1] == " " and following[:1] == " ":
                block.append("")  # The same indented part goes on.
            else:
                yield block
                block = []
    if block:
        yield block


def _shown(block: list[str]) -> list[str]:
    if block[0][:1] == " ":
        return [".. code-block:: text", "", *textwrap.indent(textwrap.dedent("\n".join(block)), "   ").splitlines()]
    if _HEADING.fullmatch(block[0].strip()) and len(block) > 1 and block[1][:1] == " ":
        title = block[0].strip().removesuffix(":")
        inside = textwrap.dedent("\n".join(block[1:])).splitlines()
        return [f".. rubric:: {escape(title)}", "", *(_entries(inside) if title in _LISTS else convert(inside))]
    if any(_ENTRY.match(line) for line in block) and any(line[:1] == " " for line in block):
        return _entries(block)
    if any(line[:1] == " " for line in block):
        return [f"| {escape(line)}" if line.strip() else "|" for line in block]
    items = [line for line in block if line.startswith("- ")]
    if items and len(items) == len(block):
        return [f"- {escape(line[2:])}" for line in block]
    return escape("\n".join(block)).splitlines()


def _entries(lines: list[str]) -> list[str]:
    """``name: text`` with further lines of the text indented, as a list of definitions."""
    shown: list[str] = []
    for line in lines:
        found = _ENTRY.fullmatch(line)
        if found:
            shown += ["", escape(found[1]), f"   {escape(found[2])}"]
        elif shown:
            shown.append(f"   {escape(line.strip())}" if line.strip() else "")
        else:
            shown += [escape(line), ""]
    return shown


def escape(text: str) -> str:
    """Text in which nothing but names in backticks and addresses is markup."""
    parts = _MARKED.split(text)
    return "".join(
        _code(part) if number % 2 else re.sub(r"([\\*_|`])", r"\\\1", part) for number, part in enumerate(parts)
    )


def _code(part: str) -> str:
    if part.startswith("http"):
        return part.rstrip(".") + "\\ " + part[len(part.rstrip(".")) :]
    inside = " ".join(part.strip("`").split())
    return f"\\ ``{inside}``\\ " if inside else ""


def setup(app: Any) -> dict[str, bool]:
    """Have autodoc ask us."""

    def process(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
        del app, what, name, thing, options
        lines[:] = convert(lines)

    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
