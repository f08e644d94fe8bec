"""The attacks that are compared, and what isthmus is told so that it has what TextAttack has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.core import catalog


@dataclass(frozen=True)
class Compared:
    """An attack that both sides have."""

    name: str
    random: bool = False
    """Whether it draws at random: then several seeds are run, and success rates are compared, not examples."""
    needs: tuple[str, ...] = ()
    """Resources, by the names of this benchmark's options."""
    required: bool = True
    """Whether the project promises agreement; the others are shown for information."""


ATTACKS = {
    attack.name: attack
    for attack in (
        Compared("textfooler", needs=("vectors", "tagger", "encoder")),
        Compared("pwws"),
        Compared("bae", needs=("tagger", "encoder", "masked_lm")),
        Compared("clare", needs=("tagger", "encoder", "masked_lm")),
        Compared("deepwordbug", random=True),
        Compared("textbugger", random=True, needs=("vectors", "encoder")),
        Compared("genetic", random=True, needs=("vectors",)),
        Compared("iga", random=True, needs=("vectors",)),
        Compared("pso", random=True, needs=("sememes",)),
        Compared("bertattack", needs=("encoder", "masked_lm"), required=False),
        Compared("hotflip", needs=("vectors", "tagger"), required=False),
    )
}

LABELS = {
    "vectors": "word vectors",
    "tagger": "NLTK tagger",
    "encoder": "MiniLM for USE",
    "masked_lm": "MiniLM masked LM",
    "sememes": "sememe table",
}
EXTRA = {
    "genetic": "no language model",
    "clare": "NLTK for Flair's tags",
    "hotflip": "first sub-word's gradient",
    "textbugger": "",
}

FIELDS = {
    "vectors": ("vectors", "neighbours"),
    "tagger": ("part_of_speech", "tagger", "tags"),
    "encoder": ("encoder",),
    "masked_lm": ("masked_lm",),
    "sememes": ("sememes",),
}
"""Resource -> the fields an attack may have for it."""


@dataclass(frozen=True)
class Resources:
    """What both sides are given: paths, or the names of models that isthmus ships."""

    vectors: Path | None = None
    sememes: Path | None = None
    nltk_data: Path | None = None
    encoder: str = "minilm"
    masked_lm: str = "minilm"
    masked_length: int = 512
    cache: Path = field(default_factory=lambda: Path("benchmarks/out/standins"))

    def value(self, need: str) -> str | None:
        """What isthmus is told for a resource."""
        found = {"vectors": self.vectors, "sememes": self.sememes, "encoder": self.encoder, "masked_lm": self.masked_lm}
        if need == "tagger":
            return "nltk" if self.nltk_data is not None else "wordnet"
        return None if found[need] is None else str(found[need])


def stand_ins(attack: Compared) -> str:
    """A short label of what was given to both sides in the place of a recipe's own resources."""
    parts = [LABELS[need] for need in attack.needs if need != "tagger" or attack.name != "clare"]
    return ", ".join([*parts, *filter(None, [EXTRA.get(attack.name)])])


def parameters(attack: Compared, given: Resources) -> dict[str, Any]:
    """The parameters of isthmus's attack: TextAttack's semantics where it has several, and the resources."""
    known = {parameter.name for parameter in catalog.find("attacks", attack.name).parameters}
    chosen: dict[str, Any] = {"semantics": "textattack"} if "semantics" in known else {}
    for need in attack.needs:
        names = [name for name in FIELDS[need] if name in known]
        value = given.value(need)
        if value is None:
            raise SystemExit(f"{attack.name} needs --{need.replace('_', '-')}")
        if names:
            chosen[names[0]] = value
        elif need != "tagger":
            raise SystemExit(f"{attack.name} of isthmus has no field for {need} ({', '.join(sorted(known))})")
    if attack.name == "genetic":
        chosen["masked_lm"] = None  # TextAttack's Google language model is not available, so neither side has one.
    return chosen
