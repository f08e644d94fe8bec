"""Both sides, each as a file with a header line and a line per example; either can be run alone and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agreement.attacks import ATTACKS, Resources, parameters
from isthmus import assets
from isthmus.core import catalog
from isthmus.core.types import Example

HERE = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One data set and victim, and what both sides are given."""

    data: Path
    model: str
    out: Path
    given: Resources
    textattack: Path
    max_tokens: int = 128
    threads: int = 1
    device: str = "cpu"

    @property
    def test(self) -> Path:
        found = sorted(self.data.glob("test.jsonl*"))
        if not found:
            sys.exit(f"{self.data} holds no test.jsonl or test.jsonl.gz")
        return found[0]


def place(out: Path, side: str, attack: str, seed: int) -> Path:
    return out / f"{side}-{attack}-{seed}.jsonl"


def read(path: Path) -> tuple[Row, list[Row]]:
    """Header and rows, in the order of the examples; nothing where there is no file."""
    if not path.exists():
        return {}, []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    header, rows = lines[0], lines[1:]
    return header, sorted(rows, key=lambda row: row["number"]) if rows and "number" in rows[0] else rows


def limited(model: str, tokens: int, cache: Path) -> str:
    """The model's folder, or a copy of it (of links) that stops at `tokens`: both sides must cut texts alike."""
    folder = Path(model).resolve()
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    own = folder / "isthmus.json"
    described = json.loads(own.read_text(encoding="utf-8")) if own.exists() else {}
    if config.get("model_max_length") == tokens and described.get("max_tokens", tokens) == tokens:
        return model
    copy = cache / f"{folder.parent.name}-{folder.name}-{tokens}"
    copy.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name not in ("tokenizer_config.json", "isthmus.json") and not (copy / file.name).exists():
            (copy / file.name).symlink_to(file)
    (copy / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": tokens}), encoding="utf-8")
    if described:
        (copy / "isthmus.json").write_text(json.dumps(described | {"max_tokens": tokens}), encoding="utf-8")
    return str(copy)


def run_textattack(setting: Setting, attack: str, n: int, seed: int) -> bool:
    """TextAttack in its own environment; whether it ended well."""
    options = textattack_options(setting, attack, n, seed)
    command = [str(setting.textattack), str(HERE / "textattack_runner.py"), "--quick"]
    command += [str(part) for pair in options.items() if pair[1] is not None for part in pair]
    environment = os.environ | {"OMP_NUM_THREADS": str(setting.threads)}
    return subprocess.run(command, env=environment, check=False).returncode == 0


def textattack_options(setting: Setting, attack: str, n: int, seed: int) -> dict[str, Any]:
    """Options of `textattack_runner.py`; those that are None are left out."""
    given = setting.given
    return {
        "--model": setting.model,
        "--data": setting.test,
        "--recipe": attack,
        "--n": n,
        "--seed": seed,
        "--max-tokens": setting.max_tokens,
        "--threads": setting.threads,
        "--device": setting.device,
        "--vectors": given.vectors,
        "--sememes": given.sememes,
        "--nltk-data": given.nltk_data,
        "--encoder": assets.path(given.encoder) if "encoder" in ATTACKS[attack].needs else None,
        "--masked-lm": _masked_folder(given) if "masked_lm" in ATTACKS[attack].needs else None,
        "--masked-length": given.masked_length,
        "--cache": given.cache,
        "--out": place(setting.out, "textattack", attack, seed),
    }


def _masked_folder(given: Resources) -> Path:
    """The masked language model as a folder that transformers loads."""
    if given.masked_lm != "minilm":
        return Path(given.masked_lm)
    from masked_lm_folder import write

    return write(given.cache / "minilm-mlm")


def run_isthmus(setting: Setting, attack: str, n: int, seed: int) -> bool:
    """isthmus in this process, on the examples its file does not have yet."""
    from isthmus.attacks.base import AttackSettings
    from isthmus.models.victims import load_victim

    path = place(setting.out, "isthmus", attack, seed)
    chosen = parameters(ATTACKS[attack], setting.given)
    method = catalog.build("attacks", attack, chosen)
    header: dict[str, Any] = {
        "tool": "isthmus",
        "attack": attack,
        "parameters": {key: str(value) for key, value in chosen.items()},
    }
    header |= {"resources": dict(method.resources()), "model": setting.model, "data": str(setting.test), "seed": seed}
    found, rows = read(path)
    if found and found != json.loads(json.dumps(header)):
        sys.exit(f"{path} was made with other settings: remove it, or run with --fresh isthmus")
    done = {row["number"] for row in rows}
    examples = [example for example in _examples(setting.test, n) if int(example.id) not in done]
    if not examples:
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    if not found:
        path.write_text(json.dumps(header, ensure_ascii=False) + "\n", encoding="utf-8")
    victim = load_victim(setting.model, device=setting.device)
    started = time.process_time()
    with path.open("a", encoding="utf-8") as file:
        for result in method(victim, examples, AttackSettings(seed=seed)):
            file.write(json.dumps(_row(result), ensure_ascii=False) + "\n")
    print(f"isthmus {attack}, seed {seed}: {len(examples)} texts in {time.process_time() - started:.1f} CPU s")
    return True


def _examples(path: Path, n: int) -> list[Example]:
    """The first `n` texts, as TextAttack gets them; an example's name is its number."""
    from textattack_runner import read_rows

    rows = read_rows(path, n)
    return [Example(str(number), {"text": row["text"]}, row["label"]) for number, row in enumerate(rows)]


def _row(result: Any) -> Row:
    return {
        "number": int(result.id),
        "text": result.original["text"],
        "label": result.label,
        "outcome": result.outcome,
        "perturbed": result.perturbed["text"],
        "queries": result.logical_queries,
        "rows": result.physical_queries,
        "words_changed": result.words_changed,
        "reason": result.reason,
    }
