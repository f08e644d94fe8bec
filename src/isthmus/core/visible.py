"""Text of unknown origin without the characters that control a terminal or reverse the reading direction."""

from __future__ import annotations

import unicodedata


def visible(text: str, *, everything: bool = False) -> str:
    """`text` without characters that control a terminal; with `everything`, invisible ones are written as codes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_show_character(character, everything) for character in text)


def _show_character(character: str, everything: bool) -> str:
    if character in "\n\t" or " " <= character <= "~":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    category = unicodedata.category(character)
    if category == "Cc" or category == "Cs" or code == 0x7F:
        return "\ufffd"
    # Overrides of the reading direction could make the page around them read backwards.
    if 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
        return f"‹U+{code:04X}›"
    if everything and category in ("Cf", "Zl", "Zp") and code != 0x200D:
        return f"‹U+{code:04X}›"
    return character
