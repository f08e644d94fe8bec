"""NLTK's tagger, from a folder or a zip, and in place of Flair's, whose models are not available.

TextAttack checks the part of speech with NLTK (TextFooler, BAE, HotFlip) and reads it with Flair where it merges words
(CLARE). Given NLTK's tagger for both, it tags all words of the text at once in the second case.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any


def provide(source: Path, root: Path) -> Path:
    """An nltk_data folder in which everything is unzipped, from such a folder or from a zip of one."""
    folder = root / "nltk_data"
    if source.is_file():
        _unzip(source, folder)
        return folder
    for archive in source.rglob("*.zip"):
        _unzip(archive, folder / archive.parent.relative_to(source))
    for file in source.rglob("*"):
        place = folder / file.relative_to(source)
        if file.is_file() and file.suffix != ".zip" and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return folder


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        if not all((folder / name).exists() for name in opened.namelist()):
            opened.extractall(folder)


def use(folder: Path | None, environment: Path) -> None:
    """Let NLTK look there, and in TextAttack's environment for what is not there."""
    places = [str(place) for place in (folder, environment / "nltk_data") if place]
    os.environ["NLTK_DATA"] = os.pathsep.join(places)


def instead_of_flair() -> str:
    """Answer `AttackedText.pos_of_word_index` by NLTK."""
    import nltk
    import textattack

    def tag(sentence: Any, tag_type: str = "upos-fast") -> None:
        words = [token.text for token in sentence.tokens]
        for token, (_, part) in zip(sentence.tokens, nltk.pos_tag(words, tagset="universal"), strict=True):
            token.add_label("pos", part)

    textattack.shared.utils.flair_tag = tag
    return "NLTK's averaged perceptron, universal tags, of the whole text (instead of Flair upos-fast)"
