"""The space of texts that substituting synonyms can reach, and where in it a given text lies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from isthmus.attacks.parts.protection import Protection
from isthmus.core.types import Texts
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.text.words import Words


@dataclass(frozen=True)
class SubstitutionSpace:
    """A text, and the possible substitutes of each word (none if the word is protected or has no synonyms)."""

    fields: dict[str, Words]
    choices: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, texts: Texts, table: SynonymTable, protection: Protection) -> SubstitutionSpace:
        """The substitutions that a table allows; `protection` says which words the attacker cannot change."""
        fields = {name: Words.of(text) for name, text in texts.items()}
        words = [word for own in fields.values() for word in own]
        editable = protection.editable(texts, usual=())
        may = [True] * len(words) if editable is None else editable.tolist()
        return cls(
            fields, tuple(table.replacements(word) if free else () for word, free in zip(words, may, strict=True))
        )

    @property
    def words(self) -> list[str]:
        """The words of all fields, in reading order."""
        return [word for own in self.fields.values() for word in own]

    @property
    def positions(self) -> list[int]:
        """Positions of the words that have substitutes."""
        return [place for place, others in enumerate(self.choices) if others]

    @property
    def size(self) -> int:
        """Number of texts in the space, the original included."""
        total = 1
        for others in self.choices:
            total *= 1 + len(others)
        return total

    def sizes(self) -> dict[str, int]:
        """How many words and substitutes there are, for a row."""
        return {
            "words": len(self.choices),
            "substitutable": len(self.positions),
            "synonyms": sum(map(len, self.choices)),
        }

    def shell(self, count: int) -> int:
        """Number of texts with exactly `count` words substituted."""
        sums = [1] + [0] * count
        for place in self.positions:
            for order in range(count, 0, -1):
                sums[order] += sums[order - 1] * len(self.choices[place])
        return sums[count]

    def texts(self, count: int) -> Iterator[dict[str, str]]:
        """Every text with exactly `count` words substituted."""
        for places in itertools.combinations(self.positions, count):
            for others in itertools.product(*(self.choices[place] for place in places)):
                yield self.with_words(dict(zip(places, others, strict=True)))

    def with_words(self, words: dict[int, str]) -> dict[str, str]:
        """The text with other words at some positions, counted over all fields."""
        found, start = {}, 0
        for name, own in self.fields.items():
            inside = {at - start: word for at, word in words.items() if start <= at < start + len(own)}
            found[name] = str(own.replace(inside)) if inside else str(own)
            start += len(own)
        return found

    def distance(self, texts: Texts) -> int | None:
        """Number of words that another text substitutes; None if the text is not in the space."""
        if list(texts) != list(self.fields):
            return None
        changed = start = 0
        for name, own in self.fields.items():
            other = Words.of(texts[name])
            if other.gaps != own.gaps:
                return None
            for place, (before, after) in enumerate(zip(own, other, strict=True)):
                if before != after:
                    if after not in self.choices[start + place]:
                        return None
                    changed += 1
            start += len(own)
        return changed
