"""Sound files for every reader that is fuzzed."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

from fuzz_targets import ANSWER, READERS


def make_files(folder: Path, after: Path) -> dict[str, Path]:
    """A sound folder for each reader; `after` is a run with attacks, an evaluation, a certificate and measures."""
    rows = [
        {"text": f"a {word} film, number {n}, “quoted”", "label": ("negative", "positive")[n % 2]}
        for n, word in enumerate(["dull", "fine", "poor", "good"] * 6)
    ]
    table = "text,label\n" + "".join('"{text}",{label}\n'.format(**row) for row in rows)
    tabs = "text\tlabel\n" + "".join("{text}\t{label}\n".format(**row) for row in rows)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    body = json.dumps(ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    files: dict[str, tuple[str, bytes]] = {
        "csv": ("reviews.csv", table.encode()),
        "tsv": ("reviews.tsv", tabs.encode()),
        "json": ("reviews.json", json.dumps(rows, indent=1).encode()),
        "jsonl": ("reviews.jsonl", lines.encode()),
        "gz": ("reviews.jsonl.gz", gzip.compress(lines.encode(), mtime=0)),
        "parquet": ("reviews.parquet", _parquet(rows)),
        "export": ("found.jsonl", (after / "found.jsonl").read_bytes()),
        "answer": ("answer.http", head + body),
        "ledger": ("page.jsonl", _cells()),
    }  # fmt: skip
    holder = {"verb": "train", "pid": 999_999_999, "host": "here", "since": "", "exclusive": True, "token": "ab12"}
    files["lock"] = ("run/.lock", json.dumps(holder).encode() + b"\n")
    places = {name: folder / name for name in READERS}
    for name, (file, content) in files.items():
        (places[name] / file).parent.mkdir(parents=True)
        (places[name] / file).write_bytes(content)
    for name, part in (
        ("journal", "out"),
        ("trace", "out"),
        ("rows", "run"),
        ("records", "run"),
        ("images", "pictures"),
        ("model", "run/model"),
    ):
        ignored = shutil.ignore_patterns("model", "figures") if part in ("run", "pictures") else None
        shutil.copytree(after / part, places[name] / part, ignore=ignored)
    return places


def make(folder: str, after: str) -> dict[str, str]:
    """As `make_files`, for a child."""
    return {name: str(place) for name, place in make_files(Path(folder).absolute(), Path(after)).items()}


def _parquet(rows: list[dict[str, str]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
    return stream.getvalue()


def _cells() -> bytes:
    """Three cells of a ledger, as its own writer writes them."""
    sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))
    from ledger import Cell, Key, Ledger

    with tempfile.TemporaryDirectory() as folder:
        book = Ledger(Path(folder) / "page.jsonl")
        for seed in range(3):
            key = Key(
                data={"name": "toy", "split": "test", "fingerprint": "0" * 16}, backbone="cnn",
                method={"name": "standard", "parameters": {}}, training={"epochs": 1}, seed=seed, n=4,
            )  # fmt: skip
            book.append(Cell.of_answers(key, [True, False, True, seed > 1], row="standard", provenance={}))
        return book.path.read_bytes()
