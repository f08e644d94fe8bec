"""What reads files, each with sound files, a way to read them, and what counts as the same.

A reader that meets damage must either give what it gave before, or refuse by an error of ours. What a file without a
checksum may hold instead, because nobody can know better, each reader says by its `judge`.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutations import damaged

SECONDS = 20
"""After so long a reader counts as hung."""
MEMORY = 6 << 30


@dataclass(frozen=True)
class Reader:
    """One reader."""

    files: tuple[str, ...]
    """Patterns of the files that are damaged."""
    read: Callable[[Path], Any]
    judge: Callable[[Any, Any, Path], str | None] = lambda sound, found, place: None
    """What is wrong with a result that is not the sound one; by default nothing is."""


def fuzz(reader: str, sound: str, seed: int, count: int) -> dict[str, Any]:
    """Read so many damaged copies of a folder; runs in a child, which a hang or a crash ends."""
    from isthmus.core.errors import IsthmusError

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    target, source, place = READERS[reader], Path(sound), Path("damaged").absolute()
    names = sorted(
        file.relative_to(source).as_posix()
        for pattern in target.files
        for file in source.glob(pattern)
        if file.is_file()
    )
    assert names, f"{reader}: no file in {source} is one of {target.files}"
    fresh(source, place)
    expected = target.read(place)
    counts, problems = {"same": 0, "other": 0, "refused": 0}, []
    for number in range(count):
        rng = random.Random(f"{reader} {seed} {number}")
        name = rng.choice(names)
        kind, content = damaged(name, (source / name).read_bytes(), rng)
        told = f"{reader} seed={seed} number={number}: {name}, {kind}"
        Path("progress").write_text(told)
        fresh(source, place)
        (place / name).write_bytes(content)
        signal.alarm(SECONDS)
        try:
            found = target.read(place)
        except IsthmusError as error:
            counts["refused"] += 1
            if not str(error).strip():
                problems.append(f"{told}: it is refused without a word")
            continue
        except Exception:
            problems.append(f"{told}: {_last_lines(traceback.format_exc())}")
            continue
        same = found == expected
        counts["same" if same else "other"] += 1
        wrong = None if same else target.judge(expected, found, place)
        if wrong is not None:
            problems.append(f"{told}: {wrong}")
    return {"counts": counts, "problems": problems}


def _last_lines(trace: str) -> str:
    lines = trace.strip().splitlines()
    ours = [line.strip() for line in lines if "/src/isthmus/" in line or "benchmarks" in line]
    return f"{lines[-1][:300]} ({ours[-1] if ours else lines[-3].strip()})"


def fresh(source: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)


# ---------------------------------------------------------------------- run folders


def _run_figures(place: Path) -> dict[str, Any]:
    """Every figure that `report` prints."""
    from isthmus.cli.printing import run_json
    from isthmus.report.certificate.view import certificates
    from isthmus.report.view import read_run
    from isthmus.runs.explained import read_explanations
    from isthmus.runs.folder import RunFolder
    from isthmus.verbs.measure import measurements

    folder = RunFolder(place / "run")
    view = read_run(folder)
    seen: list[Any] = [*view.attacks, *view.embeddings, *certificates(folder)]
    found: dict[str, Any] = {
        "run": run_json(view),
        "complete": {each.key: each.is_complete for each in seen},
        "measures": {each.key: each.measurement.to_json() for each in measurements(folder)},
        "certificates": {each.key: each.summary.to_json() for each in certificates(folder)},
        "explanations": {each.key: [one.to_json() for one in each.explained] for each in read_explanations(folder)},
    }
    value = json.loads(json.dumps(found, default=str))
    assert isinstance(value, dict)
    return value


def _figures_differ(sound: Any, found: Any, place: Path) -> str | None:
    """Rows that are gone are missing aloud; everything else must be as it was."""
    if not all(found["complete"].get(key, False) for key in sound["complete"]):
        return None
    return f"a figure changed and nobody said so: {_first_difference(sound, found)}"


def _first_difference(one: Any, other: Any, path: str = "") -> str | None:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                return _first_difference(one.get(key), other.get(key), f"{path}.{key}")
    return f"{path}: {str(one)[:100]} -> {str(other)[:100]}"


def _journal(place: Path) -> Any:
    from isthmus.runs.journal import Journal

    with Journal(place / "out/attacks/deepwordbug.jsonl") as journal:
        return {"rows": dict(journal.rows)}


def _rows_differ(sound: Any, found: Any, place: Path) -> str | None:
    """Lines may be gone, and are done again; a row that is there is the one that was written."""
    odd = [key for key, row in found["rows"].items() if sound["rows"].get(key) != row]
    return f"a row changed and nobody said so: {odd}" if odd else None


def _trace(place: Path) -> Any:
    from isthmus.verbs.attack.trace import Trace

    return Trace(place / "out/attacks/deepwordbug.trace.jsonl").counts()


def _images(place: Path) -> Any:
    """What an attack given again makes of its images: those that are there, by id."""
    from isthmus.runs.folder import RunFolder
    from isthmus.verbs.attack.images import AdversarialImageFile, read_images

    found: dict[str, Any] = {}
    for file in RunFolder(place / "pictures").attack_files():
        lost = AdversarialImageFile(file).find_lost(file.results())
        images = read_images(file.images_path)
        found |= {(file.key, key): image.tobytes() for key, image in images.items() if key not in lost}
    return {"rows": found}


def _lock(place: Path) -> Any:
    from isthmus.core.lock import hold

    with hold(place / "run", "train", exclusive=True):
        pass
    return True


# ---------------------------------------------------------------------- models, data, answers, the ledger


def _model(place: Path) -> Any:
    import numpy as np

    from isthmus.models import load_model, wrap
    from isthmus.runs.provenance import fingerprint

    model = load_model(place / "run/model", device="cpu")
    scores = wrap(model, device="cpu").scores([{"text": text} for text in ("a fine film", "the plot was dull")])
    # A row that a model cannot score is NaN, which an attack makes an error of.
    rows = [row.tolist() if np.isfinite(row).all() else None for row in scores]
    return {"scores": rows, "labels": list(model.labels), "fingerprint": fingerprint(place / "run/model")}


def _model_differs(sound: Any, found: Any, place: Path) -> str | None:
    """Another model is a model, but never taken for the one it was."""
    if found["fingerprint"] == sound["fingerprint"]:
        return "another model has the same fingerprint"
    rows = [row for row in found["scores"] if row is not None]
    return None if all(abs(sum(row) - 1) < 1e-3 for row in rows) else f"the scores are no distribution: {rows}"


def _data(place: Path) -> Any:
    from isthmus.data import load_data

    (file,) = place.iterdir()
    splits = load_data(file)
    return {
        name: {
            "examples": [(dict(each.texts), each.label) for each in split],
            "labels": list(split.labels),
            "rejected": [row.reason for row in split.rejected],
            "fingerprint": split.fingerprint,
        }
        for name, split in splits.items()
    }


def _data_differ(sound: Any, found: Any, place: Path) -> str | None:
    """Another text is a text, but never one that is none, and never under the old fingerprint."""
    for name, split in found.items():
        for texts, label in split["examples"]:
            if not all(isinstance(text, str) for text in texts.values()):
                return f"{name}: a text that is none: {texts!r:.200}"
            if not (isinstance(label, int) and 0 <= label < len(split["labels"])):
                return f"{name}: a label that is none: {label!r}"
        before = sound.get(name, split)
        if split["examples"] != before["examples"] and split["fingerprint"] == before["fingerprint"]:
            return f"{name}: other examples with the same fingerprint"
    return None


def _gzip_differs(sound: Any, found: Any, place: Path) -> str | None:
    """It has a checksum; but a gzip file twice over is a gzip file."""
    twice = {name: split["examples"] * 2 for name, split in sound.items()}
    same = {name: split["examples"] for name, split in found.items()} == twice
    return None if same else "a damaged gzip file was read"


ANSWER = {"scores": [[0.25, 0.75], [0.5, 0.5]], "labels": ["negative", "positive"]}


def _answer(place: Path) -> Any:
    """What a service sends, byte for byte, as the victim reads it."""
    import socket
    import threading

    from isthmus.models.victims.endpoint import HttpVictim

    content = (place / "answer.http").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(5)
                    asked = b""
                    while b"texts" not in asked:
                        asked += connection.recv(65536)
                    connection.sendall(content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            victim = HttpVictim(f"http://127.0.0.1:{server.getsockname()[1]}/", retries=0, timeout=2.0)
            scores = victim.scores([{"text": "a film"}, {"text": "a plot"}])
        finally:
            thread.join()
    return {"scores": scores.tolist()}


def _answer_differs(sound: Any, found: Any, place: Path) -> str | None:
    rows = found["scores"]
    if len(rows) != 2 or not all(abs(sum(row) - 1) < 1e-3 and min(row) >= 0 for row in rows):
        return f"not one distribution for each text: {rows}"
    return None


def _ledger(place: Path) -> Any:
    import sys

    sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))
    from ledger import Ledger

    return {"rows": {key: cell.to_json() for key, cell in Ledger(place / "page.jsonl").cells().items()}}


READERS: dict[str, Reader] = {
    "journal": Reader(("out/attacks/deepwordbug.jsonl",), _journal, _rows_differ),
    "trace": Reader(("out/attacks/deepwordbug.trace.jsonl",), _trace),
    "rows": Reader(("run/*/*.jsonl", "run/train.jsonl"), _run_figures, _figures_differ),
    "records": Reader(
        ("run/run.json", "run/*/*.json", "run/measures.json", "run/explanations.json"), _run_figures, _figures_differ
    ),
    "images": Reader(("pictures/attacks/*.npz",), _images, _rows_differ),
    "lock": Reader(("run/.lock",), _lock),
    "model": Reader(("run/model/*",), _model, _model_differs),
    "csv": Reader(("*",), _data, _data_differ),
    "tsv": Reader(("*",), _data, _data_differ),
    "json": Reader(("*",), _data, _data_differ),
    "jsonl": Reader(("*",), _data, _data_differ),
    "gz": Reader(("*",), _data, _gzip_differs),
    "parquet": Reader(("*",), _data, _data_differ),
    "export": Reader(("*",), _data, _data_differ),
    "answer": Reader(("answer.http",), _answer, _answer_differs),
    "ledger": Reader(("page.jsonl",), _ledger, _rows_differ),
}
