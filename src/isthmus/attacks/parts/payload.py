"""The payload that an evasion must keep: links, addresses and numbers, found in running text.

A pattern errs on the side of the attacker. ``great.it was`` is a missing space and no link, so an ending that is also
an English word counts only with a path behind it (``bit.is/x``).
"""

from __future__ import annotations

_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
"""One part of a host name, in any script."""
_ENDINGS = (
    "com|net|org|info|biz|edu|gov|mil|int|io|ai|app|dev|xyz|top|site|online|shop|store|club|live|link|click|icu|vip|win|"
    "bid|loan|work|tech|space|website|mobi|name|pro|tel|asia|cat|jobs|travel|tv|cc|ws|ly|gl|gg|sh|st|fm|to|"
    "ac|ae|ar|au|bg|br|ca|ch|cl|cn|co|cz|de|dk|eg|es|eu|fi|fr|gr|hk|hr|hu|id|ie|il|ir|jp|ke|kr|lt|lu|lv|ma|mx|ng|nl|nz|"
    "pe|ph|pk|pl|pt|ro|rs|ru|sa|se|sg|si|sk|su|th|tk|tr|tw|ua|uk|vn|za"
)
_WORDS = "am|as|at|be|by|do|he|if|in|is|it|me|my|no|of|or|so|us|we"
"""Endings that are English words as well."""
_PATH = r"(?::\d{1,5})?(?:[/?#][^\s<>\"]*)?"

KINDS = {
    "url": (
        r"(?i:\b(?:https?|ftp|hxxps?)://[^\s<>\"]+"
        rf"|\bwww\.{_LABEL}(?:\.{_LABEL})*{_PATH}"
        rf"|(?<![\w@.-])(?:{_LABEL}\.)+(?:{_ENDINGS})(?![\w@-]|\.\w){_PATH}"
        rf"|(?<![\w@.-])(?:{_LABEL}\.)+(?:{_WORDS})(?::\d{{1,5}})?/[^\s<>\"]*"
        r"|(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])(?::\d{1,5})?(?:/[^\s<>\"]*)?)"
    ),
    # From the start of a run of such characters alone: from each of them it would take time in the square of the run.
    "email": rf"(?<![\w.+-])[\w.+-]++@{_LABEL}(?:\.{_LABEL})+",
    "phone": (
        # A decimal fraction is not a number to ring.
        r"(?<![\w.])(?!\d+\.\d+(?!\d|[.()/-]|[ ]\d))\+?\(?\d(?:[ \t().\-/]{0,2}\d){6,14}(?!\w)"
        r"|(?<![\w.,])\d{5,6}(?!\w|[.,]\d)"
    ),
}
"""Regular expressions by name. ``url``: with a scheme, with www, bare domains, numeric hosts. ``phone``: seven to
fifteen digits however they are set apart, and short codes of five or six."""
