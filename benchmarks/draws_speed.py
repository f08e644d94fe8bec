"""Draws a second of randomised victims: RSMI's two steps, and SAFER's synonyms.

    python benchmarks/draws_speed.py --device cuda                    about half a minute on an H200
    python benchmarks/draws_speed.py --device cpu --texts 24          beside the plain passes of the same rows

A fresh MiniLM reads texts of random words as long as SST-2's, in the batches an attack hands it. A draw of the two-step
victim is a forward pass of one row, saliency counted as two; of synonyms it is one drawn text. On a CPU, where time is
processor time, `ratio` is the time over that of as many plain rows: 1 would be its forward passes and nothing else.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from isthmus.core.types import TokenBatch
from isthmus.defences import RSMI
from isthmus.inference.smoothing import SmoothedVictim
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.models import Classifier, ClassifierVictim


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--texts", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
        chosen.precision = "fp32"
    return chosen


def rows(model: Classifier, lengths: list[int], *, mixed: bool) -> list[TokenBatch]:
    """Random words: rows of one length together on a CPU, padded blocks of lengths on a GPU."""
    stream, size = np.random.default_rng(0), model.table.num_embeddings
    first, last, pad = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id, model.tokenizer.pad_token_id
    groups: dict[int, list[int]] = {}
    for length in lengths:
        groups.setdefault(-(-length // 8) * 8 if mixed else length, []).append(length)
    batches = []
    for width, own in sorted(groups.items()):
        ids = np.full((len(own), width), pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        for target, seen, length in zip(ids, mask, own, strict=True):
            target[:length] = [first, *stream.integers(size // 4, size // 2, length - 2), last]
            seen[:length] = 1
        keys = stream.integers(0, 2**62, len(own)).astype(np.uint64)
        batches.append(TokenBatch(ids, mask if mixed else None, None, keys))
    return batches


def seconds(work: Callable[[], Any], options: argparse.Namespace) -> float:
    """The fastest of some rounds; processor time on a CPU."""
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    found = []
    for _ in range(options.repeats):
        began = clock()
        work()
        found.append(clock() - began)
    return min(found)


def main() -> None:
    options = arguments()
    on_gpu = options.device == "cuda"
    model = Classifier.create(options.backbone, ("negative", "positive")).to(options.device).eval()
    plain = ClassifierVictim(copy.deepcopy(model), options.precision)
    stream = random.Random(0)
    lengths = [min(60, max(6, round(stream.lognormvariate(3.0, 0.5)))) for _ in range(options.texts)]
    batches = rows(model, lengths, mixed=on_gpu)
    full = rows(model, [26] * max(64, options.texts), mixed=on_gpu)
    plain.launch(full)()
    of_a_row = seconds(lambda: plain.launch(full)(), options) / len(full[0].ids)

    def say(name: str, draws: int, taken: float) -> None:
        mean = sum(lengths) / len(lengths)
        ratio = "" if on_gpu else f"   ratio {taken / (draws * of_a_row * mean / 26):.2f}"
        print(f"{name:44} {draws / taken:>10,.0f} draws/s{ratio}", flush=True)

    print(f"{'plain rows of 26 tokens':44} {1 / of_a_row:>10,.0f} rows/s")
    defence = RSMI()
    defence.prepare(model, ())  # type: ignore[arg-type]
    assert model.deployment is not None
    victim: Any = model.deployment.victim(model, options.precision)
    victim.launch(batches)()
    before = victim.passes
    victim.launch(batches)()
    passes = victim.passes - before
    say(
        f"two steps ({victim.second / victim.asked:.0%} need the second)",
        passes,
        seconds(lambda: victim.launch(batches)(), options),
    )

    words = [word for word in model.tokenizer.get_vocab() if word.isalpha() and len(word) > 3][:4000]
    table = SynonymTable.of_links({word: stream.sample(words, 6) for word in words})
    texts = [{"text": " ".join(stream.choices(words, k=length - 2))} for length in lengths]
    smoothed = SmoothedVictim(plain, table, 15)
    smoothed.scores(texts)
    keys = np.arange(len(texts), dtype=np.uint64)
    say("synonyms, 15 draws", 15 * len(texts), seconds(lambda: smoothed.scores(texts, keys), options))


if __name__ == "__main__":
    main()
