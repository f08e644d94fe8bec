"""Whether isthmus and TextAttack end alike: the same victim, texts, word lists and encoder on both sides.

    make bench-textattack                                                      once: TextAttack's own environment
    python benchmarks/parity.py --data SST2 --model MODEL --vectors VECTORS --sememes SEMEMES --nltk-data NLTK
    python benchmarks/parity.py --data SST2 --model MODEL ... --side isthmus --fresh isthmus     only one side, again
    python benchmarks/parity.py --data SST2 --side none --show-disagreements   from what is there
    python benchmarks/parity.py --write docs/results/parity.md                 the page, of all data sets under --out

SST2 is a folder with test.jsonl(.gz), lines of {"text": ..., "label": int}; results go to OUT/<name of that folder>,
one file per side, attack and seed, with a line per example as it ends. The same command goes on where it was stopped,
and a larger --n continues a smaller one.

VECTORS: word vectors (.npz with q, scale, words; or text). SEMEMES: JSON {word: [[sememe, ...], ...]}. NLTK: an
nltk_data folder with averaged_perceptron_tagger_eng and universal_tagset, zipped or not.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from agreement import sides, table
from agreement.attacks import ATTACKS, Resources
from agreement.compare import Comparison, compare

HERE = Path(__file__).resolve().parent
console = Console(width=200)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of a data set")
    parser.add_argument("--model", help="classification folder")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=tuple(ATTACKS))
    parser.add_argument("--n", type=int, default=200, help="texts, from the first")
    parser.add_argument("--n-of", nargs="*", default=[], metavar="ATTACK=N", help="another n for some attacks")
    parser.add_argument("--seeds", type=int, default=5, help="of the attacks that draw at random")
    parser.add_argument("--side", default="both", choices=("both", "isthmus", "textattack", "none"))
    parser.add_argument("--fresh", default="none", choices=("none", "isthmus", "textattack"), help="forget that side")
    parser.add_argument("--vectors", type=Path, help="word vectors")
    parser.add_argument("--sememes", type=Path, help="sememe table")
    parser.add_argument("--nltk-data", type=Path, help="nltk_data folder or zip with the tagger")
    parser.add_argument("--encoder", default="minilm", help="sentence encoder: asset or folder")
    parser.add_argument("--masked-lm", default="minilm", help="masked language model: minilm or a folder")
    parser.add_argument(
        "--masked-length", type=int, default=128, help="what TextAttack pads the masked model's rows to"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="where both sides cut texts off")
    parser.add_argument("--device", default="cpu", help="where both sides' victims compute")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--textattack", type=Path, default=HERE.parent / ".venv-textattack" / "bin" / "python")
    parser.add_argument("--show-disagreements", action="store_true")
    parser.add_argument("--write", type=Path, help="write the page there, from everything under --out")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "parity", help="folder of the results")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.data is not None:
        one_data_set(options)
    if options.write:
        page(options)
    elif options.data is None:
        sys.exit("nothing to do: give --data FOLDER to run and compare, or --write FILE for the page")


def one_data_set(options: argparse.Namespace) -> None:
    """Run what is asked for, then compare what is there."""
    out = options.out / options.data.resolve().name
    if options.side != "none":
        if options.model is None:
            sys.exit("--model is missing: the classification folder that both sides attack")
        run(options, out)
    found = [one for name in options.attacks if (one := compared(out, name, options.seeds))]
    if not found:
        sys.exit(f"{out} holds no attack that both sides have run")
    table.show(f"{options.data.name}: isthmus beside TextAttack 0.3.11", found, console)
    if options.show_disagreements:
        for one in found:
            table.show_disagreements(one, console)


def run(options: argparse.Namespace, out: Path) -> None:
    """The sides, attack by attack and seed by seed."""
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    import torch

    torch.set_num_threads(options.threads)
    cache = options.out / "standins"
    given = Resources(
        vectors=options.vectors and options.vectors.resolve(),
        sememes=options.sememes and options.sememes.resolve(),
        nltk_data=options.nltk_data and options.nltk_data.resolve(),
        encoder=options.encoder,
        masked_lm=options.masked_lm,
        masked_length=options.masked_length,
        cache=cache,
    )
    if given.nltk_data:
        from standins import tagger

        tagger.use(tagger.provide(given.nltk_data, cache), options.textattack.parents[1])
    model = sides.limited(options.model, options.max_tokens, cache)
    setting = sides.Setting(
        options.data, model, out, given, options.textattack, options.max_tokens, options.threads, options.device
    )
    sizes = {name: int(size) for name, size in (pair.split("=") for pair in options.n_of)}
    for name in options.attacks:
        for seed in range(options.seeds if ATTACKS[name].random else 1):
            for side, start in (("isthmus", sides.run_isthmus), ("textattack", sides.run_textattack)):
                if options.side not in ("both", side):
                    continue
                if options.fresh == side:
                    sides.place(out, side, name, seed).unlink(missing_ok=True)
                if not start(setting, name, sizes.get(name, options.n), seed):
                    console.print(f"[red]{side} {name}, seed {seed}: failed[/red]")


def compared(out: Path, name: str, seeds: int) -> Comparison | None:
    """One attack, over the seeds that both sides have."""
    both = [
        [sides.read(sides.place(out, side, name, seed))[1] for seed in range(seeds if ATTACKS[name].random else 1)]
        for side in ("isthmus", "textattack")
    ]
    return compare(name, *both)


def page(options: argparse.Namespace) -> None:
    """The page of the documentation, of every data set under --out."""
    found = {
        folder.name: [one for name in ATTACKS if (one := compared(folder, name, options.seeds))]
        for folder in sorted(options.out.iterdir())
        if any(folder.glob("isthmus-*.jsonl"))
    }
    table.write(options.write, {name: ones for name, ones in found.items() if ones}, table.remarks_of(options.write))


if __name__ == "__main__":
    main()
