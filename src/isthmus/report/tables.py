"""Tables of the page: header scopes, and the column name in every cell.

On a narrow screen a row becomes a small list, in which each figure stands beside that name, so that nothing is cut off.
Only markup of our own templates is read here: the texts in it are escaped, and hold no tags.
"""

from __future__ import annotations

import html
import re

_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_PARTS = re.compile(r"\s*(?:<thead>(.*?)</thead>)?\s*<tbody>(.*)</tbody>\s*", re.DOTALL)
_ROW = re.compile(r"<tr([^>]*)>(.*?)</tr>", re.DOTALL)
_HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)


def label_cells(page: str) -> str:
    """A page with header scopes and column names added to its tables."""
    return _TABLE.sub(_label_cells, page)


def _label_cells(table: re.Match[str]) -> str:
    parts = _PARTS.fullmatch(table[1])
    if parts is None:
        return table[0]
    head, body = parts[1] or "", parts[2]
    names = [_heading_text(found[1]) for found in _HEADING.finditer(head)]
    head = re.sub(r"<th\b", '<th scope="col"', head)

    def row(found: re.Match[str]) -> str:
        cells = [_cell(cell, place, names) for place, cell in enumerate(_CELL.finditer(found[2]))]
        return f"<tr{found[1]}>{''.join(cells)}</tr>"

    top = f"<thead>{head}</thead>\n" if head else ""
    return f"<table>\n{top}<tbody>{_ROW.sub(row, body)}</tbody>\n</table>"


def _cell(cell: re.Match[str], place: int, names: list[str]) -> str:
    if place == 0:
        return f'<th scope="row"{cell[1]}>{cell[2]}</th>'
    name = names[place] if place < len(names) else ""
    return f'<td data-name="{name}"{cell[1]}>{cell[2]}</td>' if name else f"<td{cell[1]}>{cell[2]}</td>"


def _heading_text(heading: str) -> str:
    """The words of a heading on one line, without hyphenation."""
    words = html.unescape(re.sub(r"<br>", "\n", heading))
    words = re.sub(r"(?<=\bcan)-\n|(?<=\bcross-)\n", "", re.sub(r"<[^>]*>", "", words))
    return html.escape(" ".join(words.split()), quote=True)
