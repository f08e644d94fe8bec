"""How fast attacks run: isthmus, TextAttack, and the limit set by the model itself.

    make bench-textattack                                                      once: TextAttack's own environment
    python benchmarks/attack_speed.py --data SST2 --model MODEL                isthmus, TextAttack, the ideal: CPU
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side host    the engine without a model
    python benchmarks/attack_speed.py --data SST2 --model MODEL --side gpu     on a machine with CUDA

SST2 is a folder with train.jsonl.gz, dev.jsonl.gz and test.jsonl.gz, lines of {"text": ..., "label": 0 or 1}.
MODEL is a transformers classification folder; where it does not exist a MiniLM is fine-tuned into it with
`isthmus train`.

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

from isthmus.core.hardware import bfloat16_works
from speed.record import Record, pinned_environment
from speed.table import show_rates, show_sides

HERE = Path(__file__).resolve().parent
TEXTATTACK = HERE.parent / ".venv-textattack" / "bin" / "python"
console = Console(width=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder of the SST-2 splits")
    parser.add_argument("--model", default=str(HERE / "out" / "sst2-minilm" / "model"), help="classification folder")
    parser.add_argument("--side", default="all", choices=("all", "textattack", "isthmus", "ideal", "host", "gpu"))
    parser.add_argument("--recipes", nargs="+", default=["deepwordbug", "pwws"], choices=("deepwordbug", "pwws"))
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--n", type=int, help="texts (default: 100 on the CPU, the whole training split elsewhere)")
    parser.add_argument("--max-tokens", type=int, default=128, help="what TextAttack pads every batch to")
    parser.add_argument("--in-flight", type=int, help="attacks at once (default: the engine's choice; host: 1024)")
    parser.add_argument("--cores", default="0", help="comma-separated; as many threads are used as cores are named")
    parser.add_argument("--repeats", type=int, default=1, help="of isthmus and of the ideal; the fastest run counts")
    parser.add_argument("--textattack", type=Path, default=TEXTATTACK, help="python of TextAttack's environment")
    parser.add_argument("--profile", type=Path, help="write a cProfile of the host or GPU run there")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "attack_speed", help="folder of the JSON files")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # inside a measured process
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.n = options.n or (None if options.side in ("host", "gpu") else 100)
    options.threads = len(options.cores.split(","))
    if options.alone:
        measure_here(options)
        return
    check(options)
    if options.side == "host":
        show_rates("engine alone, a victim that costs nothing", measured(options, "host", "deepwordbug"), console)
        return
    if options.side == "gpu":
        for recipe in options.recipes:
            found = [record for kind in options.precisions for record in measured(options, "gpu", recipe, kind)]
            show_rates(f"{recipe} on the GPU", found, console)
        return
    for recipe in options.recipes:
        compare(options, recipe)


def check(options: argparse.Namespace) -> None:
    """Everything a measurement needs, before the first long one begins."""
    if not any(options.data.glob("test.jsonl*")):
        sys.exit(
            f"{options.data} holds no test.jsonl or test.jsonl.gz: give the folder of the SST-2 splits with --data"
        )
    if options.side in ("all", "textattack") and not options.textattack.exists():
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


def compare(options: argparse.Namespace, recipe: str) -> None:
    """isthmus, TextAttack and the ideal on one recipe, in one table."""
    sides = ("textattack", "isthmus", "ideal") if options.side == "all" else (options.side,)
    records: list[Record] = []
    if "textattack" in sides:
        records += measured(options, "textattack", recipe)
    for side in ("isthmus", "ideal"):
        if side in sides:
            records += [record for kind in options.precisions for record in measured(options, side, recipe, kind)]
    show_sides(recipe, records, console)


def measured(options: argparse.Namespace, side: str, recipe: str, precision: str = "fp32") -> list[Record]:
    """The records of one side, measured in a process pinned to the chosen cores."""
    name = f"{side}-{recipe}-{precision}"
    console.print(f"[dim]measuring {name} on core {options.cores}[/dim]")
    for stale in options.out.glob(f"{name}-*.json"):
        stale.unlink()
    if precision == "bf16" and side != "gpu" and not bfloat16_works("cpu"):
        return [Record(side, recipe, precision, notes={"failed": "no bf16 here"})]
    if side == "textattack":
        command = textattack_command(options, recipe, options.out / f"{name}.raw")
    else:
        command = [sys.executable, __file__, "--alone", *forwarded(options, side, recipe, precision)]
    status = subprocess.run(pinned(command, options.cores), env=pinned_environment(options.threads), check=False)
    if status.returncode:
        return [Record(side, recipe, precision, notes={"failed": f"exit {status.returncode}"})]
    if side == "textattack":
        from_textattack(options.out / f"{name}.raw", options.out / f"{name}-0.json")
    return [Record.read(path) for path in sorted(options.out.glob(f"{name}-*.json"))]


def pinned(command: Sequence[str], cores: str) -> list[str]:
    if shutil.which("taskset") is None:
        console.print("[yellow]taskset is missing: the sides are not pinned to the same cores[/yellow]")
        return list(command)
    return ["taskset", "-c", cores, *command]


def textattack_command(options: argparse.Namespace, recipe: str, out: Path) -> list[str]:
    [data] = list(options.data.glob("test.jsonl*"))[:1]
    pairs = {"--model": options.model, "--data": data, "--recipe": recipe, "--n": options.n, "--out": out}
    pairs |= {"--max-tokens": options.max_tokens, "--threads": options.threads}
    return [
        str(options.textattack),
        str(HERE / "textattack_runner.py"),
        *(str(part) for p in pairs.items() for part in p),
    ]


def forwarded(options: argparse.Namespace, side: str, recipe: str, precision: str) -> list[str]:
    pairs = {"--side": side, "--recipes": recipe, "--precisions": precision, "--data": options.data}
    pairs |= {"--model": options.model, "--n": options.n, "--in-flight": options.in_flight, "--out": options.out}
    pairs |= {"--repeats": options.repeats, "--cores": options.cores, "--profile": options.profile}
    return [str(part) for pair in pairs.items() if pair[1] is not None for part in pair]


def from_textattack(raw: Path, path: Path) -> None:
    """TextAttack's own file as a record like the others."""
    found = json.loads(raw.read_text(encoding="utf-8"))
    batches = found["batches"]
    record = Record("textattack", found["recipe"], "fp32", len(found["examples"]), found["wall_s"], found["cpu_s"])
    record.model_s, record.peak_memory_mb = found["model_cpu_s"], found["peak_memory_mb"]
    record.rows, record.batches = found["rows_forwarded"], len(batches)
    record.tokens = sum(batch["tokens"] for batch in batches)
    record.padded_tokens = sum(batch["padded_tokens"] for batch in batches)
    record.outcomes = found["examples"]
    record.notes = {"queries counted": found["queries_counted"], "versions": found["versions"], "tool": found["tool"]}
    record.write(path)


def measure_here(options: argparse.Namespace) -> None:
    """Inside the pinned process: one side, its records as files."""
    import torch

    torch.set_num_threads(options.threads)
    from speed import ideal, sides

    recipe, precision = options.recipes[0], options.precisions[0]
    name = options.out / f"{options.side}-{recipe}-{precision}"
    rows = options.out / f"rows-{recipe}-{precision}.npz"
    options.out.mkdir(parents=True, exist_ok=True)
    if options.side == "isthmus":
        runs = [
            sides.isthmus_on_cpu(options.model, options.data, recipe, precision, options.n, options.in_flight, rows)
            for _ in range(options.repeats)
        ]
        records = [min(runs, key=lambda record: record.cpu_s)]
    elif options.side == "ideal":
        if not rows.exists():
            sys.exit(f"{rows} is missing: measure --side isthmus first, the ideal is about the rows it sent")
        records = [ideal.measure_cpu(options.model, ideal.load_rows(rows), recipe, precision, options.repeats)]
    elif options.side == "host":
        flight = options.in_flight or 1024
        records = sides.host_alone(options.model, options.data, options.n, flight, options.profile)
    else:
        flight = options.in_flight
        records = sides.on_gpu(options.model, options.data, recipe, precision, options.n, flight, options.profile)
    for number, record in enumerate(records):
        record.write(name.with_name(f"{name.name}-{number}.json"))


if __name__ == "__main__":
    main()
