"""Runs one TextAttack recipe and writes what it did and what it cost; started by `attack_speed.py` and `parity.py`.

Belongs to the other virtual environment (`setup_textattack.sh`), so it imports nothing of isthmus.

    .venv-textattack/bin/python benchmarks/textattack_runner.py --model DIR --data FILE --recipe pwws --out OUT.jsonl

TextAttack itself is left as it is: the recipe, its batch of 32, its cache, its padding of every batch to
`tokenizer.model_max_length`. Only the model wrapper is subclassed, to note each batch and the time it took; and where a
recipe's own resource is not available, a stand-in takes its place (`standins/`), which is printed and kept in the file.
`--quick` spares the padding, and encoding one sentence several times in a call, where only outcomes matter: the scores
are the same up to rounding, in a third of the time.

OUT.jsonl has a header line and then a line per example, written as it ends: the same command goes on where it was
stopped. Every example is seeded by itself, from the seed and its number.
"""

from __future__ import annotations

import argparse
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

from standins import Notes, tagger, vectors
from standins.recipes import RECIPES, Resources, Work, build, missing, quick

KINDS = {"SuccessfulAttackResult": "succeeded", "FailedAttackResult": "failed", "SkippedAttackResult": "skipped"}


@dataclass
class Log:
    """What went to the model: the texts of every call, and the processor time of all calls together."""

    batches: list[list[str]] = field(default_factory=list)
    cpu_s: float = 0.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder that AutoModelForSequenceClassification loads")
    parser.add_argument("--data", required=True, type=Path, help='.jsonl or .jsonl.gz of {"text": ..., "label": int}')
    parser.add_argument("--recipe", required=True, choices=tuple(RECIPES))
    parser.add_argument("--n", type=int, default=100, help="how many texts, from the first")
    parser.add_argument("--max-tokens", type=int, default=128, help="what every batch is padded to")
    parser.add_argument("--quick", action="store_true", help="no padding: for outcomes, not for measuring time")
    parser.add_argument("--first", type=int, default=0, help="number of the first text, to share the work of a run")
    parser.add_argument("--device", default="cpu", help="where the victim computes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vectors", type=Path, help="word vectors (.npz or text) for the counter-fitted ones")
    parser.add_argument("--sememes", type=Path, help="JSON {word: [[sememes], ...]} for HowNet")
    parser.add_argument("--nltk-data", type=Path, help="nltk_data folder or zip with the tagger")
    parser.add_argument("--encoder", type=Path, help="folder of the sentence encoder")
    parser.add_argument("--masked-lm", type=Path, help="folder of the masked language model")
    parser.add_argument("--masked-length", type=int, default=512, help="what the masked model's rows are padded to")
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "out" / "standins", help="made files")
    parser.add_argument("--trace", type=Path, help="write the texts of every batch there (.jsonl.gz, line per example)")
    parser.add_argument("--out", required=True, type=Path)
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> Resources:
    """Before torch, nltk and textattack are imported: threads, where resources lie, nothing from the network."""
    threads = str(options.threads)
    tags = tagger.provide(options.nltk_data, options.cache) if options.nltk_data else None
    folder = vectors.lay_out(options.vectors, options.cache) if options.vectors else options.cache / "textattack"
    tagger.use(tags, Path(sys.prefix))
    os.environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TA_CACHE_DIR": str(folder)}
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import nltk
    import torch

    # TextAttack asks for downloads while it is imported; everything it needs is already here.
    nltk.download = lambda *_, **__: True
    torch.set_num_threads(options.threads)
    import textattack  # noqa: F401  (sets TOKENIZERS_PARALLELISM again)

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return Resources(options.vectors, options.sememes, tags, options.encoder, options.masked_lm, options.masked_length)


def read_rows(path: Path, n: int) -> list[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(n), strict=False)]


def load_victim(model_folder: str, max_tokens: int, as_it_is: bool, log: Log, device: str = "cpu") -> Any:
    """The model in TextAttack's wrapper, noting in `log` every batch that is forwarded."""
    from textattack.models.wrappers import HuggingFaceModelWrapper
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from standins.gradient import word_gradient

    class Noting(HuggingFaceModelWrapper):  # type: ignore[misc]
        def __call__(self, texts: list[str]) -> Any:
            started = time.process_time()
            scores = super().__call__(texts) if as_it_is else scored(self.model, self.tokenizer, texts)
            log.cpu_s += time.process_time() - started
            log.batches.append(list(texts))
            return scores

        def get_grad(self, text: str) -> dict[str, Any]:
            return word_gradient(self.model, self.tokenizer, text)

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.model_max_length = max_tokens
    return Noting(AutoModelForSequenceClassification.from_pretrained(model_folder).to(device).eval(), tokenizer)


def scored(model: Any, tokenizer: Any, texts: list[str]) -> Any:
    """The logits of a batch that is padded to its longest row only."""
    import torch

    with torch.no_grad():
        inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(model.device)
        return model(**inputs).logits.cpu()


def header(options: argparse.Namespace, notes: Notes, attack: Any) -> dict[str, Any]:
    """What the rows below it were made with; two runs with the same header can be joined."""
    rules = [repr(one).replace("\n", "") for one in (*attack.pre_transformation_constraints, *attack.constraints)]
    return {
        "tool": f"textattack {version('textattack')}",
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy", "nltk")},
        "recipe": options.recipe,
        "model": options.model,
        "data": str(options.data),
        "seed": options.seed,
        "max_tokens": options.max_tokens,
        "threads": options.threads,
        **({} if options.device == "cpu" else {"device": options.device}),
        "stand_ins": notes,
        "constraints": rules,
    }


def one(attack: Any, row: dict[str, Any], seed: int, log: Log, encoder: Work) -> dict[str, Any]:
    """Attack one text; its outcome, and what it cost."""
    import textattack

    textattack.shared.utils.set_seed(seed)
    log.batches, log.cpu_s, encoder.rows, encoder.cpu_s = [], 0.0, 0, 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    result = attack.attack(row["text"], row["label"])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    before, after = result.original_result, result.perturbed_result
    words = len(before.attacked_text.words)
    tokenizer = attack.goal_function.model.tokenizer
    return {
        "text": row["text"],
        "label": row["label"],
        "outcome": KINDS[type(result).__name__],
        "perturbed": after.attacked_text.text,
        "queries": result.num_queries,
        "rows": sum(map(len, log.batches)),
        "words": words,
        "words_changed": len(before.attacked_text.all_words_diff(after.attacked_text)) / max(1, words),
        "score_before": float(before.score),
        "score_after": float(after.score),
        "wall_s": wall,
        "cpu_s": cpu,
        "model_cpu_s": log.cpu_s,
        "encoder_cpu_s": encoder.cpu_s,
        "encoder_rows": encoder.rows,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "batches": [[len(ids) for ids in tokenizer(texts, truncation=True)["input_ids"]] for texts in log.batches],
    }


def done_before(out: Path, head: dict[str, Any]) -> int:
    """How many examples the file already has; a file made with other settings is refused."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(head, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    whole = [line for line in out.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    out.write_text("".join(whole), encoding="utf-8")  # A line that was cut off is attacked again.
    found = json.loads(whole[0])
    if found != json.loads(json.dumps(head)):
        different = sorted(key for key in head if found.get(key) != head[key])
        sys.exit(f"{out} was made with other settings ({', '.join(different)}): remove it, or choose another --out")
    return len(whole) - 1


def main() -> None:
    options = arguments()
    given = Resources(options.vectors, options.sememes, options.nltk_data, options.encoder, options.masked_lm)
    if lacking := missing(options.recipe, given):
        flags = {"tags": "--nltk-data"}
        wanted = ", ".join(flags.get(need, f"--{need.replace('_', '-')}") for need in lacking)
        sys.exit(f"{options.recipe} needs {wanted}: TextAttack's own resource cannot be downloaded here")
    given = prepare(options)
    log, encoder = Log(), Work()
    victim = load_victim(options.model, options.max_tokens, not options.quick, log, options.device)
    attack, notes = build(options.recipe, victim, given, encoder)
    if options.device != "cpu":
        attack.cuda_()
    if options.quick:
        notes |= quick(attack)
    for resource_name, instead in notes.items():
        print(f"{options.recipe}: {resource_name} <- {instead}", flush=True)
    rows = read_rows(options.data, options.n)
    start = options.first + done_before(options.out, header(options, notes, attack))
    for number, row in enumerate(rows[start:], start):
        found = {"number": number, **one(attack, row, options.seed * 1_000_003 + number, log, encoder)}
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
        if options.trace:
            options.trace.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(options.trace, "at", encoding="utf-8") as file:
                file.write(json.dumps({"number": number, "batches": log.batches}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
