"""Levenshtein distance between two strings.

By Myers's algorithm: a column of the usual table is two numbers of as many bits as the shorter string has letters
(where the distance grows by one, where it falls by one, going down), and a whole column is computed by a few operations
on them. Texts of a thousand letters take milliseconds, where cell by cell they took tens of them.

References:
    Myers (1999), A Fast Bit-Vector Algorithm for Approximate String Matching Based on Dynamic Programming. Journal of
    the ACM 46. In the form of Hyyro (2003).
"""

from __future__ import annotations


def levenshtein(left: str, right: str, limit: int | None = None) -> int:
    """The smallest number of insertions, deletions and substitutions that turn one string into the other.

    With a limit, any distance above it is given as limit + 1.
    """
    if len(left) > len(right):
        left, right = right, left
    if limit is not None and len(right) - len(left) > limit:
        return limit + 1
    start = 0
    while start < len(left) and left[start] == right[start]:
        start += 1
    left, right = left[start:], right[start:]
    distance = _columns(left, right) if left else len(right)
    return distance if limit is None else min(distance, limit + 1)


def _columns(left: str, right: str) -> int:
    """Column by column of the table whose rows are the letters of `left`, which is not empty."""
    places: dict[str, int] = {}
    for index, letter in enumerate(left):
        places[letter] = places.get(letter, 0) | 1 << index
    every, last = (1 << len(left)) - 1, 1 << len(left) - 1
    grows, falls, distance = every, 0, len(left)
    for letter in right:
        equal = places.get(letter, 0)
        across = ((equal & grows) + grows ^ grows) | equal | falls
        right_grows = falls | every & ~(across | grows)
        right_falls = grows & across
        if right_grows & last:
            distance += 1
        elif right_falls & last:
            distance -= 1
        right_grows = right_grows << 1 | 1
        right_falls <<= 1
        grows = every & (right_falls | ~(across | right_grows))
        falls = every & right_grows & across
    return distance
