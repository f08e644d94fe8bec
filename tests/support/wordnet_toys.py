"""A dictionary of 23 synsets in the files of the real one."""

from __future__ import annotations

from pathlib import Path

LICENCE = "".join(f"  {n} This software and database: WordNet 3.0 Copyright by Princeton.  \n" for n in range(1, 6))
# part of speech -> synsets (type, words as the data file spells them); the order of a lemma's senses is the order here.
SYNSETS = {
    "noun": [
        ("n", ["run", "tally"]),
        ("n", ["footrace", "foot_race", "run"]),
        ("n", ["dog", "domestic_dog", "Canis_familiaris"]),
        ("n", ["axe", "ax"]),
        ("n", ["axis"]),
        ("n", ["man", "adult_male"]),
        ("n", ["good", "goodness"]),
        ("n", ["bus", "autobus"]),
        ("n", ["Paris", "City_of_Light"]),
        ("n", ["zebra"]),
    ],
    "verb": [
        ("v", ["run"]),
        ("v", ["scat", "run", "turn_tail"]),
        ("v", ["dog", "chase", "give_chase"]),
        ("v", ["hope", "trust"]),
        ("v", ["hop"]),
        ("v", ["ax", "axe"]),
    ],
    "adj": [
        ("a", ["good"]),
        ("s", ["good", "full"]),
        ("s", ["abounding", "galore(ip)"]),
        ("a", ["large", "big(a)"]),
        ("s", ["near(p)", "close"]),
        ("s", ["fine", "stale"]),
        ("s", ["lovely", "cold"]),
        ("s", ["moving", "weak"]),
        ("s", ["warm", "dull"]),
    ],
    "adv": [("r", ["well", "good"]), ("r", ["near", "nigh"])],
}
EXCEPTIONS = {
    "noun": ["axes ax axis", "men man", "geese goose"],
    "verb": ["ran run", "running run"],
    "adj": ["better good well"],
    "adv": ["better well"],
}


def write_wordnet(root: Path) -> Path:
    """Write the dictionary into a folder that exists."""
    for pos, synsets in SYNSETS.items():
        letter = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[pos]
        data: str = LICENCE
        senses: dict[str, list[int]] = {}
        for kind, words in synsets:
            place = len(data.encode())
            spelled = " ".join(f"{word} 0" for word in words)
            # A satellite points at its head, here always the first adjective.
            pointer = f"& {len(LICENCE):08d} a" if kind == "s" else "@ 00000001 n"
            data += f'{place:08d} 00 {kind} {len(words):02x} {spelled} 001 {pointer} 0000 | gloss; "example"  \n'
            for word in words:
                senses.setdefault(word.split("(")[0].lower(), []).append(place)
        index = LICENCE + "".join(
            f"{lemma} {letter} {len(places)} 1 @ {len(places)} 0 {' '.join(f'{place:08d}' for place in places)}  \n"
            for lemma, places in sorted(senses.items())
        )
        (root / f"data.{pos}").write_text(data)
        (root / f"index.{pos}").write_text(index)
        (root / f"{pos}.exc").write_text("".join(line + "\n" for line in EXCEPTIONS[pos]))
    (root / "lexnames").write_text("00\tadj.all\t3\n")
    return root
