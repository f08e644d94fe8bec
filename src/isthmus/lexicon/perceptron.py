"""Part-of-speech tags in context by NLTK's tagger, as in TextAttack's ``PartOfSpeech`` constraint.

    tag_j = argmax_t  Σ_f  w[f(words_{j−2 … j+2}, tag_{j−1}, tag_{j−2}), t]

An averaged perceptron tags the window of four words before and three after a word from left to right, and its fine
tags are mapped to the universal ones. Three habits of TextAttack are kept, since they decide: the window is cut out of
the original text, its edges count as the edges of a sentence, and the tag taken is that of the *first* place in the
window that holds the same word.

Only NLTK's data is read (three JSON files), not NLTK: its tagger takes one sentence at a time, ours all candidates for
a place at once, and stops at the word asked for. Weights are added in the same order, so that sums have equal bits.

References:
    Collins: Discriminative Training Methods for Hidden Markov Models. EMNLP 2002 (the averaged perceptron).
    Petrov, Das, McDonald: A Universal Part-of-Speech Tagset. LREC 2012.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import AssetError, DataError

_DATA = "averaged_perceptron_tagger_eng"
_BEFORE, _AFTER = 4, 3
_CONTEXTS = 1 << 14

UNIVERSAL: Mapping[str, str] = {
    **dict.fromkeys(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD"), "VERB"),
    **dict.fromkeys(("NN", "NNS", "NNP", "NNPS"), "NOUN"),
    **dict.fromkeys(("PRP", "PRP$", "WP", "WP$"), "PRON"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "ADJ"),
    **dict.fromkeys(("RB", "RBR", "RBS", "WRB"), "ADV"),
    **dict.fromkeys(("DT", "EX", "PDT", "WDT"), "DET"),
    **dict.fromkeys(("POS", "RP", "TO"), "PRT"),
    **dict.fromkeys(("FW", "LS", "SYM", "UH"), "X"),
    **dict.fromkeys(("!", "#", "$", "''", "(", ")", ",", "-LRB-", "-RRB-", ".", ":", "?", "``"), "."),
    "IN": "ADP",
    "CC": "CONJ",
    "CD": "NUM",
}
"""Penn Treebank tag -> universal tag."""

_Tags = dict[str, str]


class PerceptronTagger:
    """NLTK's English tagger, on windows of words."""

    name = "nltk averaged perceptron, universal tags"

    def __init__(self, data: Path | str) -> None:
        weights, self._fixed, classes = (_read_part(Path(data), part) for part in ("weights", "tagdict", "classes"))
        # Backwards: of two equal sums the alphabetically later tag wins, and argmax takes the first.
        self._classes = sorted(classes, reverse=True)
        column = {tag: place for place, tag in enumerate(self._classes)}
        self._feature = {name: row for row, name in enumerate(weights, start=1)}
        self._weights = np.zeros((len(weights) + 1, len(self._classes)))  # row 0: a feature never seen
        for row, of_tags in enumerate(weights.values(), start=1):
            for tag, weight in of_tags.items():
                self._weights[row, column[tag]] = weight
        self._window = functools.lru_cache(_CONTEXTS)(self._tags_in_window)

    def tag(self, words: Sequence[str], index: int) -> str:
        """The universal tag of a word of a text."""
        return self.tags(words, index, [words[index]])[0]

    def tags(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> list[str]:
        """The universal tag that each candidate would have in place of a word."""
        before = tuple(words[max(index - _BEFORE, 0) : index])
        after = tuple(words[index + 1 : index + 1 + _AFTER])
        known = self._window(before, after)
        missing = [word for word in dict.fromkeys(candidates) if word not in known]
        if missing:
            known.update(zip(missing, self._compute(before, missing, after), strict=True))
        return [known[word] for word in candidates]

    def of_text(self, words: Sequence[str]) -> list[str]:
        """The universal tags of all words of a text, tagged as one sentence."""
        row, context = list(words), ["-START-", "-START2-", *map(_normal, words), "-END-", "-END2-"]
        previous, tagged = ("-START-", "-START2-"), list[str]()
        for at in range(len(row)):
            (tag,) = self._step(at, [row], [context], [previous])
            previous = (tag, previous[0])
            tagged.append(UNIVERSAL.get(tag, "X"))
        return tagged

    def compatible(self, a: str, b: str) -> bool:
        """Whether words with these tags may replace each other: the tags are equal, or noun and verb."""
        return a == b or (a in ("NOUN", "VERB") and b in ("NOUN", "VERB"))

    def fits(self, words: Sequence[str], index: int, new: str) -> bool:
        """Whether a word may replace another in its text."""
        return bool(self.fitting(words, index, [new])[0])

    def fitting(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> NDArray[np.bool_]:
        """For each candidate, whether it may replace the word; many at once cost little more than one."""
        old, *new = self.tags(words, index, [words[index], *candidates])
        return np.array([self.compatible(old, tag) for tag in new], dtype=bool)

    @staticmethod
    def _tags_in_window(before: tuple[str, ...], after: tuple[str, ...]) -> _Tags:
        """Cache of the tags in one window; the cache around it forgets windows, not words."""
        return {}

    def _compute(self, before: tuple[str, ...], middles: list[str], after: tuple[str, ...]) -> list[str]:
        place = len(before)
        rows = [[*before, middle, *after] for middle in middles]
        contexts = [["-START-", "-START2-", *map(_normal, row), "-END-", "-END2-"] for row in rows]
        previous = [("-START-", "-START2-")] * len(rows)
        tagged: list[list[str]] = []
        for at in range(place + 1):
            # Up to here the middle is out of sight, and all candidates share their tags.
            alike = at + 2 < place
            tags = self._step(at, rows[:1], contexts[:1], previous[:1]) if alike else []
            tags = tags * len(rows) if alike else self._step(at, rows, contexts, previous)
            previous = [(tag, last) for tag, (last, _) in zip(tags, previous, strict=True)]
            tagged.append(tags)
        first = [row.index(middle) for row, middle in zip(rows, middles, strict=True)]
        return [UNIVERSAL.get(tagged[at][row], "X") for row, at in enumerate(first)]

    def _step(
        self, at: int, rows: list[list[str]], contexts: list[list[str]], previous: list[tuple[str, str]]
    ) -> list[str]:
        """Tag one position of every row."""
        tags = [self._fixed.get(row[at], "") for row in rows]
        open_rows = [row for row, tag in enumerate(tags) if not tag]
        if open_rows:
            names = [_make_features(rows[row][at], contexts[row], at + 2, *previous[row]) for row in open_rows]
            get = self._feature.get
            features = np.array([[get(name, 0) for name in own] for own in names])
            sums = self._weights[features[:, 0]]
            for each in features.T[1:]:
                sums = sums + self._weights[each]
            for row, best in zip(open_rows, sums.argmax(axis=1).tolist(), strict=True):
                tags[row] = self._classes[best]
        return tags


def _make_features(word: str, context: list[str], at: int, last: str, before_last: str) -> list[str]:
    """The perceptron's features by name; the order is the order in which their weights are added."""
    return [
        "bias",
        f"i suffix {word[-3:]}",
        f"i pref1 {word[:1]}",
        f"i-1 tag {last}",
        f"i-2 tag {before_last}",
        f"i tag+i-2 tag {last} {before_last}",
        f"i word {context[at]}",
        f"i-1 tag+i word {last} {context[at]}",
        f"i-1 word {context[at - 1]}",
        f"i-1 suffix {context[at - 1][-3:]}",
        f"i-2 word {context[at - 2]}",
        f"i+1 word {context[at + 1]}",
        f"i+1 suffix {context[at + 1][-3:]}",
        f"i+2 word {context[at + 2]}",
    ]


def _normal(word: str) -> str:
    if "-" in word and word[0] != "-":
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    if word[:1].isdigit():
        return "!DIGITS"
    return word.lower()


def _read_part(place: Path, part: str) -> Any:
    name = f"{_DATA}.{part}.json"
    try:
        if place.is_dir():
            return json.loads((place / name).read_text(encoding="utf-8"))
        with zipfile.ZipFile(place) as archive:
            return json.loads(archive.read(f"{_DATA}/{name}"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{place}: {name} cannot be read ({error}); download the tagger's data again") from error


def find_tagger_data() -> Path:
    """The folder of NLTK's English tagger, by NLTK's own rules; an error says how to get it."""
    folders = [*os.environ.get("NLTK_DATA", "").split(os.pathsep), "~/nltk_data"]
    folders += [str(Path(sys.prefix) / part / "nltk_data") for part in (".", "share", "lib")]
    folders += [f"{part}/nltk_data" for part in ("/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib")]
    for folder in filter(None, folders):
        for place in (f"taggers/{_DATA}", f"taggers/{_DATA}.zip"):
            found = Path(folder).expanduser() / place
            if found.exists():
                return found
    raise AssetError(
        f"the data of NLTK's tagger ({_DATA}) is not installed: run `python -m nltk.downloader {_DATA}`, set "
        "NLTK_DATA to a folder that holds it under taggers/, or use the tagger 'wordnet', which needs no data"
    )
