"""What TextAttack does when things go wrong: the cases of docs/reliability.md, each a real process.

    .venv-textattack/bin/python benchmarks/textattack_faults.py --out OUT [--small-disk FOLDER]

Belongs to the other virtual environment (`setup_textattack.sh`), so it imports nothing of isthmus. DeepWordBug attacks
a classifier that counts good and bad words, on 40 texts; one example takes at least a fiftieth of a second. What was
seen is printed, one line of JSON a case. `--small-disk` names a folder on a file system of a few kilobytes (such as
``mount -t tmpfs -o size=24k tmpfs FOLDER``).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "dull", "poor"]
TEXTS = [
    (f"a {(GOOD if n % 2 else BAD)[n // 2 % 4]} film with a plot number {'abcdefghij'[n % 10] * (n // 10 + 1)}", n % 2)
    for n in range(40)
]


# ---------------------------------------------------------------------- one attack, in a process of its own


def attack(options: argparse.Namespace) -> None:
    import nltk

    nltk.data.path.insert(0, str(Path(sys.prefix) / "nltk_data"))
    nltk.download = lambda *_, **__: True
    import numpy as np
    import textattack
    from textattack import AttackArgs, Attacker
    from textattack.attack_recipes import DeepWordBugGao2018
    from textattack.models.wrappers import ModelWrapper

    class Counting(ModelWrapper):  # type: ignore[misc]
        model = None

        def __call__(self, texts: list[str]) -> Any:
            time.sleep(options.pause)
            rows = []
            for text in texts:
                if options.victim == "exits" and "ccc" in text:
                    sys.exit(0)
                if options.victim == "raises" and "ccc" in text:
                    raise RuntimeError("the model cannot read this")
                words = text.lower().split()
                value = sum(word in GOOD for word in words) - sum(word in BAD for word in words) + 0.25
                p = 1 / (1 + np.exp(-value))
                rows.append([1 - p, p])
            return np.array(rows)

    texts: list[Any] = list(TEXTS)
    if options.victim == "none":
        texts[20] = (None, 0)
    recipe = DeepWordBugGao2018.build(Counting())
    data = textattack.datasets.Dataset(texts, label_names=["negative", "positive"])
    if options.resume:
        Attacker.from_checkpoint(recipe, data, str(options.resume)).attack_dataset()
        return
    arguments = AttackArgs(
        num_examples=len(texts),
        log_to_csv=str(options.out / "log.csv"),
        checkpoint_interval=options.interval or None,
        checkpoint_dir=str(options.out / "checkpoints"),
        disable_stdout=True,
        random_seed=0,
    )
    Attacker(recipe, data, arguments).attack_dataset()


# ---------------------------------------------------------------------- the cases


def start(out: Path, **options: Any) -> subprocess.Popen[str]:
    out.mkdir(parents=True, exist_ok=True)
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return subprocess.Popen(
        [sys.executable, __file__, "--one", "--out", str(out), *given],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip


def last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line or "error" in line), lines[-1] if lines else "")


def rows(out: Path) -> int:
    path = out / "log.csv"
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open(newline="") as stream:
        return sum(1 for _ in csv.reader(stream)) - 1


def report(case: str, **seen: Any) -> None:
    print(json.dumps({"case": case, **seen}), flush=True)


def kill_when(process: subprocess.Popen[str], ready: Any, after: float) -> None:
    deadline = time.monotonic() + 300
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def checkpoints(out: Path) -> list[Path]:
    return sorted((out / "checkpoints").glob("*.ta.chkpt"))


def cases(place: Path, small_disk: Path | None) -> None:
    from importlib.metadata import version

    report("version", textattack=version("textattack"))
    whole = start(place / "whole")
    whole.communicate()
    report("left in peace", code=whole.returncode, rows=rows(place / "whole"))
    reference = (place / "whole/log.csv").read_bytes()

    began = time.monotonic()
    start(place / "timed", pause=0.02).communicate()
    seconds = time.monotonic() - began
    plain = start(place / "killed-plain", pause=0.02)
    kill_when(plain, lambda: time.monotonic() - began > 2 * seconds - 2, 0)
    report("killed near the end, default settings", rows=rows(place / "killed-plain"))

    out = place / "killed"
    kill_when(start(out, interval=10, pause=0.02), lambda: len(checkpoints(out)) >= 2, 0.3)
    kept = rows(out)
    resumed = start(out, resume=checkpoints(out)[-1])
    said, _ = resumed.communicate()
    report("killed with checkpoints every 10, resumed by the API", rows_at_kill=kept, code=resumed.returncode,
           rows=rows(out), same_file=(out / "log.csv").read_bytes() == reference, said=last(said)[-200:])  # fmt: skip

    newest = checkpoints(out)[-1]
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    broken = start(out, resume=newest)
    said, _ = broken.communicate()
    report("truncated checkpoint", code=broken.returncode, said=last(said)[-200:], older_ones=len(checkpoints(out)) - 1)

    for victim, what in (
        ("exits", "the victim calls sys.exit(0) at one text"),
        ("raises", "the victim raises at one text"),
        ("none", "one text is None"),
    ):
        ended = start(place / victim, victim=victim)
        said, _ = ended.communicate()
        report(what, code=ended.returncode, rows=rows(place / victim), said=last(said)[-200:])

    both = [start(place / "two", interval=5, pause=0.02) for _ in range(2)]
    for process in both:
        process.communicate()
    report("two processes, one log", codes=[process.returncode for process in both], rows=rows(place / "two"),
           checkpoints=len(checkpoints(place / "two")))  # fmt: skip

    if small_disk is not None:
        ended = start(small_disk / "out", interval=10)
        said, _ = ended.communicate()
        report("disk full", code=ended.returncode, rows=rows(small_disk / "out"), said=last(said)[-200:])

    code = f"import pickle, os; pickle.dump(type('Hostile', (), {{'__reduce__': lambda self: (os.system, ('touch {place}/ran',))}})(), open('{place}/hostile.ta.chkpt', 'wb'))"  # noqa: E501
    subprocess.run([sys.executable, "-c", code], check=True)
    ended = start(place / "hostile", resume=place / "hostile.ta.chkpt")
    ended.communicate()
    report("a checkpoint that holds code", code=ended.returncode, code_ran=(place / "ran").exists())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--small-disk", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--victim", default="sound", help=argparse.SUPPRESS)
    parser.add_argument("--interval", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if options.one:
        attack(options)
    else:
        cases(options.out.absolute(), options.small_disk)


if __name__ == "__main__":
    main()
