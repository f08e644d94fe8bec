"""Runs one TextAttack recipe and writes what it did and what it cost; started by `attack_speed.py`.

Belongs to the other virtual environment (`setup_textattack.sh`), so it imports nothing of isthmus.

    .venv-textattack/bin/python benchmarks/textattack_runner.py --model DIR --data FILE --recipe pwws --out OUT.json

TextAttack itself is left as it is: the recipe, its batch of 32, its cache, its padding of every batch to
`tokenizer.model_max_length`. Only the model wrapper is subclassed, to note each batch and the time it took.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any


@dataclass
class Log:
    """What went to the model: the texts of every call, and the processor time of all calls together."""

    batches: list[list[str]] = field(default_factory=list)
    cpu_s: float = 0.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder that AutoModelForSequenceClassification loads")
    parser.add_argument("--data", required=True, type=Path, help='.jsonl or .jsonl.gz of {"text": ..., "label": int}')
    parser.add_argument("--recipe", required=True, choices=("deepwordbug", "pwws"))
    parser.add_argument("--n", type=int, default=100, help="how many texts, from the first")
    parser.add_argument("--max-tokens", type=int, default=128, help="what every batch is padded to")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, type=Path)
    return parser.parse_args()


def prepare_environment(threads: int) -> None:
    """Before torch and nltk are imported: threads, the word lists of this environment, nothing from the network."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("NLTK_DATA", str(Path(sys.prefix) / "nltk_data"))
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import nltk
    import torch

    # TextAttack asks for downloads while it is imported; everything the two recipes need is already here.
    nltk.download = lambda *_, **__: True
    torch.set_num_threads(threads)


def read_rows(path: Path, n: int) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(n), strict=False)]


def build(model_folder: str, recipe: str, max_tokens: int, log: Log) -> Any:
    """The recipe around the model, noting in `log` every batch that is forwarded."""
    import textattack.attack_recipes as recipes
    from textattack.models.wrappers import HuggingFaceModelWrapper
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    class Noting(HuggingFaceModelWrapper):  # type: ignore[misc]
        def __call__(self, texts: list[str]) -> Any:
            started = time.process_time()
            scores = super().__call__(texts)
            log.cpu_s += time.process_time() - started
            log.batches.append(list(texts))
            return scores

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.model_max_length = max_tokens
    model = AutoModelForSequenceClassification.from_pretrained(model_folder).eval()
    found = {"deepwordbug": recipes.DeepWordBugGao2018, "pwws": recipes.PWWSRen2019}[recipe]
    return found.build(Noting(model, tokenizer))


def run(attack: Any, rows: list[dict[str, Any]], seed: int) -> tuple[list[Any], float, float]:
    """The results, and the wall and processor seconds of the attack alone."""
    import textattack

    data = textattack.datasets.Dataset([(row["text"], row["label"]) for row in rows])
    settings = textattack.AttackArgs(
        num_examples=len(rows), disable_stdout=True, silent=True, random_seed=seed, enable_advance_metrics=False
    )
    attacker = textattack.Attacker(attack, data, settings)
    wall, cpu = time.perf_counter(), time.process_time()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        results = attacker.attack_dataset()
    return results, time.perf_counter() - wall, time.process_time() - cpu


def outcome(row: dict[str, Any], result: Any) -> dict[str, Any]:
    """One example's result as a row that can be compared with ours."""
    before, after = result.original_result, result.perturbed_result
    kind = {"SuccessfulAttackResult": "succeeded", "FailedAttackResult": "failed", "SkippedAttackResult": "skipped"}
    words = len(before.attacked_text.words)
    return {
        "text": row["text"],
        "label": row["label"],
        "outcome": kind[type(result).__name__],
        "perturbed": after.attacked_text.text,
        "queries": result.num_queries,
        "words": words,
        "words_changed": len(before.attacked_text.all_words_diff(after.attacked_text)) / max(1, words),
        "score_before": float(before.score),
        "score_after": float(after.score),
    }


def main() -> None:
    options = arguments()
    prepare_environment(options.threads)
    rows = read_rows(options.data, options.n)
    log = Log()
    attack = build(options.model, options.recipe, options.max_tokens, log)
    results, wall_s, cpu_s = run(attack, rows, options.seed)

    tokenizer = attack.goal_function.model.tokenizer
    batches = [
        {
            "rows": len(texts),
            "tokens": sum(map(len, tokenizer(texts, truncation=True)["input_ids"])),
            "padded_tokens": len(texts) * options.max_tokens,
            "texts": texts,
        }
        for texts in log.batches
    ]
    record = {
        "tool": f"textattack {version('textattack')}",
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy", "nltk")},
        "recipe": options.recipe,
        "threads": options.threads,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "model_cpu_s": log.cpu_s,
        "queries_counted": sum(result.num_queries for result in results),
        "rows_forwarded": sum(batch["rows"] for batch in batches),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "batches": batches,
        "examples": [outcome(row, result) for row, result in zip(rows, results, strict=True)],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
