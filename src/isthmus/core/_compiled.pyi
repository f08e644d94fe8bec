from collections.abc import Callable, Set
from typing import Any

def rows(
    units: Any,
    unit_sizes: Any,
    unit_of: Any,
    word_sizes: Any,
    edits: Any,
    edit_sizes: Any,
    counts: Any,
    starts: Any,
    lengths: Any,
    tokens: Any,
    first: Any,
    last: Any,
    token_keys: Any,
    place_keys: Any,
    room: int,
    /,
) -> tuple[bytearray, bytearray, bytearray, bytearray] | None: ...
def piece_table(vocabulary: dict[str, int], mark: str, unknown: int, most: int, /) -> object: ...
def split_words(pieces: object, strings: list[str], lower: bool, /) -> tuple[bytearray, bytearray]: ...
def edits_of(edits: Any, candidate: int, /) -> list[tuple[int, int, int]]: ...
def replacing(position: int, words: list[str], table: dict[str, int], strings: list[str], /) -> bytearray: ...
def positions(ids: Any, strings: list[str], frozen: Set[str], free: Any, /) -> bytearray: ...
def misspelt(word: str, random: Callable[[], float], /) -> list[str] | None: ...
