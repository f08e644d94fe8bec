"""Does an attack end with the same texts where its sentence encoder may answer roughly, and how much faster is it?

    python benchmarks/rough_similarity.py --model RUN --data PACK/sst2 --n 1821

The same attack on the same texts, with an encoder that has fast arithmetic and with one that has not, in turns after
one round each that is not counted. On a CPU there is no fast arithmetic, and nothing to measure.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from isthmus.attacks.result import AttackResult
from isthmus.auxiliary import TransformerSentenceEncoder
from isthmus.core import catalog
from isthmus.core.types import Example, Victim
from isthmus.data import load_data
from isthmus.models.victims import load_victim


class Exact(TransformerSentenceEncoder):
    """An encoder without fast arithmetic."""

    rough_error = None


def attacked(
    name: str, victim: Victim, encoder: TransformerSentenceEncoder, examples: Sequence[Example]
) -> tuple[list[AttackResult], float]:
    """The results in the order of the texts, and queries per second."""
    began = time.perf_counter()
    found = {result.id: result for result in catalog.build("attacks", name, {})(victim, examples, encoder=encoder)}
    seconds = time.perf_counter() - began
    return [found[example.id] for example in examples], sum(r.logical_queries for r in found.values()) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a run, or a folder of a classifier")
    parser.add_argument("--data", required=True, help="anything that isthmus reads as data; its test split is attacked")
    parser.add_argument("--attack", default="textfooler")
    parser.add_argument("--n", type=int, default=1821)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    victim = load_victim(options.model, precision=options.precision)
    encoders = {"rough": TransformerSentenceEncoder("minilm"), "exact": Exact("minilm")}
    error = encoders["rough"].rough_error
    if error is None:
        sys.exit("the encoder has no fast arithmetic on this machine: nothing to measure")
    examples = load_data(options.data, "test").align_labels(victim.labels).sample(options.n).examples
    rates: dict[str, list[float]] = {name: [] for name in encoders}
    results: dict[str, list[AttackResult]] = {}
    for turn in range(options.repeats + 1):
        for name, encoder in encoders.items():
            results[name], rate = attacked(options.attack, victim, encoder, examples)
            rates[name] += [rate] if turn else []
    for name, own in rates.items():
        print(f"{name}: {statistics.median(own):,.0f} queries/s ({min(own):,.0f} to {max(own):,.0f})")
    ratios = [rough / exact for rough, exact in zip(rates["rough"], rates["exact"], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    pairs = list(zip(results["rough"], results["exact"], strict=True))
    outcomes = sum(a.outcome != b.outcome for a, b in pairs)
    texts = sum(a.perturbed != b.perturbed for a, b in pairs)
    print(
        f"{options.attack} on {len(pairs)} texts, cosines within {error:.1e}: "
        f"{outcomes} other outcomes, {texts} other texts"
    )


if __name__ == "__main__":
    main()
