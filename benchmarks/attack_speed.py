"""How fast attacks run: isthmus, TextAttack, and the limit set by the model itself.

    make bench-textattack                                                      once: TextAttack's own environment
    python benchmarks/attack_speed.py --data SST2 --model MODEL                isthmus, TextAttack, the ideal: CPU
    python benchmarks/attack_speed.py ... --recipes textfooler iga --vectors VECTORS --nltk-data NLTK       others
    python benchmarks/attack_speed.py ... --recipes deepwordbug pwws textfooler bae --targets   exit 1 if one is missed
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side host    the engine without a model
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side lengths texts of 200 and of 2,000 words, the same
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side start --recipes deepwordbug pwws    cold start
    python benchmarks/attack_speed.py --data SST2 --runs 3 --results results   three runs of each, kept in the ledger
    python benchmarks/attack_speed.py --data SST2 --side page --results results   write the page from the ledger
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side gpu     on a machine with CUDA
    python benchmarks/attack_speed.py --data IMDB --model MODEL --side memory --recipes clare     peak memory

SST2 is a folder with train.jsonl.gz, dev.jsonl.gz and test.jsonl.gz, lines of {"text": ..., "label": 0 or 1}.
MODEL is a transformers classification folder; where it does not exist a MiniLM is fine-tuned into it with
`isthmus train`. VECTORS, SEMEMES and NLTK are given to both sides, as `parity.py` says.

Every side runs in a process of its own, on the same cores and with the same number of threads, against the same model
folder and the same texts. Rates are per processor second, so that other work on the machine does not decide them; wall
seconds are in the JSON files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agreement.attacks import ATTACKS, Resources
from isthmus.core.hardware import bfloat16_works
from speed import ledger
from speed.cold import cold_start, missed_by_start
from speed.record import Record, pinned_environment
from speed.table import UNPADDED, missed_by_host, missed_by_length, missed_targets, show_rates, show_sides

HERE = Path(__file__).resolve().parent
TEXTATTACK = HERE.parent / ".venv-textattack" / "bin" / "python"
PAGE = HERE.parent / "docs" / "results" / "attack_speed.md"
SIDES = ("all", "textattack", UNPADDED, "isthmus", "ideal", "host", "lengths", "start", "gpu", "memory", "page")
console = Console(width=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder of the SST-2 splits")
    parser.add_argument("--model", default=str(HERE / "out" / "sst2-minilm" / "model"), help="classification folder")
    parser.add_argument("--side", default="all", choices=SIDES)
    parser.add_argument("--recipes", nargs="+", default=["deepwordbug", "pwws"], choices=tuple(ATTACKS))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--n", type=int, help="texts (default: 100 on the CPU, the whole training split elsewhere)")
    parser.add_argument("--vectors", type=Path, help="word vectors, for both sides")
    parser.add_argument("--sememes", type=Path, help="sememe table, for both sides")
    parser.add_argument("--nltk-data", type=Path, help="nltk_data folder or zip with the tagger, for both sides")
    parser.add_argument("--masked-length", type=int, default=512, help="TextAttack pads the masked model's rows to it")
    parser.add_argument("--batches", type=Path, help="on the GPU: TextAttack's batches to replay (its .jsonl)")
    parser.add_argument("--budget", type=int, default=20_000, help="maximum queries per text when memory is measured")
    parser.add_argument("--max-tokens", type=int, default=128, help="what TextAttack pads every batch to")
    parser.add_argument("--in-flight", type=int, help="attacks at once (default: the engine's choice; host: 1024)")
    parser.add_argument("--cores", default="0", help="comma-separated; as many threads are used as cores are named")
    parser.add_argument("--runs", type=int, default=1, help="of every side, one after the other; all of them are kept")
    parser.add_argument(
        "--results", type=Path, help="keep what was measured in times/attack_speed.jsonl of this folder"
    )
    parser.add_argument("--repeats", type=int, default=1, help="of isthmus and of the ideal; the fastest run counts")
    parser.add_argument(
        "--targets",
        action="store_true",
        help="exit 1 below 90 %% of the fp32 ideal's rate or 85 %% of the bf16 ideal's, or slower than TextAttack with "
        "or without its padding where its environment exists; of host and lengths below what speed/table.py says",
    )
    parser.add_argument("--textattack", type=Path, default=TEXTATTACK, help="python of TextAttack's environment")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the host or GPU run there")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "attack_speed", help="folder of the JSON files")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # inside a measured process
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.n = options.n or {"host": None, "gpu": None, "memory": 16, "lengths": 16}.get(options.side, 100)
    options.threads = len(options.cores.split(","))
    if options.alone:
        measure_here(options)
        return
    if options.side == "page":
        write_page(options.results or HERE.parent / "results")
        return
    check(options)
    if options.side in ("host", "lengths"):
        judged(options, alone(options))
        return
    if options.side == "start":
        judged(options, starts(options))
        return
    if options.side == "gpu":
        for recipe, kind in [(recipe, kind) for recipe in options.recipes for kind in options.precisions]:
            runs = [measured(options, "gpu", recipe, kind) for _ in range(options.runs)]
            for found in runs:
                show_rates(f"{recipe} on the GPU", found, console)
            keep(options, "gpu", runs)
        return
    if options.side == "memory":
        for recipe in options.recipes:
            show_rates(f"{recipe}: peak memory", measured(options, "memory", recipe), console)
        return
    judged(options, [line for recipe in options.recipes for line in compare(options, recipe)])


def judged(options: argparse.Namespace, missed: Sequence[str]) -> None:
    """Name what was missed, where that was asked for."""
    if options.targets:
        for line in missed:
            console.print(f"[red]missed[/red] {line}")
        sys.exit(bool(missed))


def alone(options: argparse.Namespace) -> list[str]:
    """The engine with a victim that costs nothing; the targets that every run missed."""
    runs = [measured(options, options.side, "deepwordbug") for _ in range(options.runs)]
    for records in runs:
        show_rates("engine alone, a victim that costs nothing", records, console)
    keep(options, options.side, runs)
    judge = missed_by_host if options.side == "host" else missed_by_length
    return min((judge(records) for records in runs), key=len)


def starts(options: argparse.Namespace) -> list[str]:
    """Cold starts with each recipe; those that always took too long."""
    runs = [
        [cold_start(Path(options.model), options.data, recipe, options.threads) for recipe in options.recipes]
        for _ in range(options.runs)
    ]
    for records in runs:
        for record in records:
            console.print(
                f"{record.recipe}: {record.wall_s:.2f} s to the first batch, {record.cpu_s:.2f} s of processor"
            )
    keep(options, "start", runs)
    return min((missed_by_start(records) for records in runs), key=len)


def keep(options: argparse.Namespace, kind: str, runs: Sequence[Sequence[Record]]) -> None:
    """The runs of every side as lines of the ledger."""
    if options.results is None:
        return
    sides = [side for side in zip(*runs, strict=True) if not any("failed" in record.notes for record in side)]
    lines = [ledger.line_of(kind, side, options.n, options.threads) for side in sides]
    ledger.add(options.results / "times" / "attack_speed.jsonl", lines)


def write_page(results: Path) -> None:
    """The tables of the page from the ledger."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(ledger.written(text, ledger.read(results / "times" / "attack_speed.jsonl")), encoding="utf-8")


def check(options: argparse.Namespace) -> None:
    """Everything a measurement needs, before the first long one begins."""
    if not any(options.data.glob("test.jsonl*")):
        sys.exit(
            f"{options.data} holds no test.jsonl or test.jsonl.gz: give the folder of the SST-2 splits with --data"
        )
    needs_textattack = options.side in ("all", "textattack", UNPADDED) and not options.targets
    if needs_textattack and not options.textattack.exists():
        sys.exit(f"{options.textattack} is missing: run `make bench-textattack` first, or measure --side isthmus")
    if not Path(options.model).exists():
        train(options.data, Path(options.model))


def train(data: Path, model: Path) -> None:
    """Fine-tune the victim of both sides; `isthmus train` puts it in the folder `model` of its run."""
    if model.name != "model":
        sys.exit(f"{model} does not exist; to have it trained, name a folder that ends in /model")
    console.print(f"fine-tuning MiniLM on {data} into {model}")
    isthmus = Path(sys.executable).with_name("isthmus")
    command = [str(isthmus), "train", "--data", str(data), "--backbone", "minilm", "--epochs", "2"]
    command += ["--out", str(model.parent)]
    subprocess.run(command, check=True)


def compare(options: argparse.Namespace, recipe: str) -> list[str]:
    """isthmus, both ways of TextAttack and the ideal on one recipe, a table a run; what the best run missed."""
    sides: tuple[str, ...] = ("textattack", UNPADDED, "isthmus", "ideal") if options.side == "all" else (options.side,)
    if options.targets:
        theirs = ("textattack", UNPADDED) if options.textattack.exists() else ()
        sides = (*theirs, "isthmus", "ideal")
    runs: list[list[Record]] = []
    for _ in range(options.runs):
        records: list[Record] = []
        for side in sides:
            kinds = options.precisions if side in ("isthmus", "ideal") else ["fp32"]
            records += [record for kind in kinds for record in measured(options, side, recipe, kind)]
        show_sides(recipe, records, console)
        runs.append(records)
    keep(options, "cpu", runs)
    return min((missed_targets(recipe, records) for records in runs), key=len)


def measured(options: argparse.Namespace, side: str, recipe: str, precision: str = "fp32") -> list[Record]:
    """The records of one side, measured in a process pinned to the chosen cores."""
    name = f"{side.replace(' ', '-')}-{recipe}-{precision}"
    console.print(f"[dim]measuring {name} on core {options.cores}[/dim]")
    for stale in (*options.out.glob(f"{name}-*.json"), options.out / f"{name}.jsonl"):
        stale.unlink(missing_ok=True)
    if precision == "bf16" and side != "gpu" and not bfloat16_works("cpu"):
        return [Record(side, recipe, precision, notes={"failed": "no bf16 here"})]
    if side in ("textattack", UNPADDED):
        command = textattack_command(options, recipe, options.out / f"{name}.jsonl")
        command += ["--quick"] if side == UNPADDED else []
    else:
        command = [sys.executable, __file__, "--alone", *forwarded(options, side, recipe, precision)]
    status = subprocess.run(pinned(command, options.cores), env=pinned_environment(options.threads), check=False)
    if status.returncode:
        return [Record(side, recipe, precision, notes={"failed": f"exit {status.returncode}"})]
    if side in ("textattack", UNPADDED):
        from_textattack(options.out / f"{name}.jsonl", options.out / f"{name}-0.json", side)
    return [Record.read(path) for path in sorted(options.out.glob(f"{name}-*.json"))]


def pinned(command: Sequence[str], cores: str) -> list[str]:
    if shutil.which("taskset") is None:
        console.print("[yellow]taskset is missing: the sides are not pinned to the same cores[/yellow]")
        return list(command)
    return ["taskset", "-c", cores, *command]


def textattack_command(options: argparse.Namespace, recipe: str, out: Path) -> list[str]:
    from agreement.sides import Setting, textattack_options

    setting = Setting(
        options.data, options.model, options.out, resources(options), options.textattack, options.max_tokens
    )
    pairs = textattack_options(setting, recipe, options.n, 0) | {"--threads": options.threads, "--out": out}
    return [
        str(options.textattack),
        str(HERE / "textattack_runner.py"),
        *(str(part) for pair in pairs.items() if pair[1] is not None for part in pair),
    ]


def resources(options: argparse.Namespace) -> Resources:
    cache = (options.out / "standins").resolve()
    vectors, sememes, tags = (path and path.resolve() for path in (options.vectors, options.sememes, options.nltk_data))
    return Resources(vectors, sememes, tags, masked_length=options.masked_length, cache=cache)


def forwarded(options: argparse.Namespace, side: str, recipe: str, precision: str) -> list[str]:
    pairs = {"--side": side, "--recipes": recipe, "--precisions": precision, "--data": options.data}
    pairs |= {"--model": options.model, "--n": options.n, "--in-flight": options.in_flight, "--out": options.out}
    pairs |= {"--repeats": options.repeats, "--cores": options.cores, "--profile": options.profile}
    pairs |= {"--vectors": options.vectors, "--sememes": options.sememes, "--nltk-data": options.nltk_data}
    pairs |= {"--batches": options.batches, "--max-tokens": options.max_tokens, "--budget": options.budget}
    return [str(part) for pair in pairs.items() if pair[1] is not None for part in pair]


def from_textattack(raw: Path, path: Path, side: str = "textattack") -> None:
    """TextAttack's own file as a record like the others."""
    header, *rows = (json.loads(line) for line in raw.read_text(encoding="utf-8").splitlines())
    wall_s, cpu_s = (sum(row[key] for row in rows) for key in ("wall_s", "cpu_s"))
    record = Record(side, header["recipe"], "fp32", len(rows), wall_s, cpu_s)
    record.model_s = sum(row["model_cpu_s"] + row["encoder_cpu_s"] for row in rows)
    record.peak_memory_mb = max(row["peak_memory_mb"] for row in rows)
    batches = [batch for row in rows for batch in row.pop("batches")]
    record.rows, record.batches = sum(map(len, batches)), len(batches)
    record.tokens, record.padded_tokens = sum(map(sum, batches)), record.rows * header["max_tokens"]
    if side == UNPADDED:
        record.padded_tokens = sum(len(batch) * max(batch) for batch in batches if batch)
    record.outcomes = rows
    record.notes = {"queries counted": sum(row["queries"] for row in rows), "versions": header["versions"]}
    record.notes |= {"tool": header["tool"], "stand_ins": header["stand_ins"]}
    record.notes["encoder rows"] = sum(row["encoder_rows"] for row in rows)
    record.write(path)


def measure_here(options: argparse.Namespace) -> None:
    """Inside the pinned process: one side, its records as files."""
    import torch

    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.nltk_data:
        from standins import tagger

        tagger.use(tagger.provide(options.nltk_data, options.out / "standins"), options.textattack.parents[1])
    name = f"{options.side}-{options.recipes[0]}-{options.precisions[0]}"
    for number, record in enumerate(records_of(options)):
        record.write(options.out / f"{name}-{number}.json")


def records_of(options: argparse.Namespace) -> list[Record]:
    from speed import sides

    recipe, precision, model = options.recipes[0], options.precisions[0], options.model
    rows = options.out / f"rows-{recipe}-{precision}.npz"
    if options.side == "host":
        return sides.host_alone(model, options.data, options.n, options.in_flight or 1024, options.profile)
    if options.side == "lengths":
        return sides.lengths(model, options.data, options.n, options.in_flight)
    attack = sides.method(recipe, resources(options))
    if options.side == "isthmus":
        runs = [
            sides.isthmus_on_cpu(model, options.data, attack, precision, options.n, options.in_flight, rows)
            for _ in range(options.repeats)
        ]
        return [min(runs, key=lambda record: record.cpu_s)]
    if options.side == "ideal":
        if not rows.exists():
            sys.exit(f"{rows} is missing: measure --side isthmus first, the ideal is about the rows it sent")
        return sides.ideal_on_cpu(model, attack, rows, precision, options.repeats)
    if options.side == "memory":
        return [sides.memory(model, options.data, attack, options.n, options.in_flight, options.budget)]
    found = sides.on_gpu(model, options.data, attack, precision, options.n, options.in_flight, options.profile)
    if options.batches:
        replayed = sides.replay_on_gpu(model, options.batches, options.max_tokens, recipe)
        found[0].notes["times TextAttack's batches"] = found[0].queries_per_s / replayed.queries_per_s
        found.append(replayed)
    return found


if __name__ == "__main__":
    main()
