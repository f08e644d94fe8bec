"""The laboratory for as long as one likes, with new seeds, real processes and memory over time.

    make soak MINUTES=60                     or: python tests/faults/soak.py --minutes 60 --out soak --seed 7

Turns of these, in a random order, until the time is up:

    writes       a write of a verb is broken: killed, torn, disk full, disk failing
    readers      files are damaged and read
    kills        a real process gets SIGKILL at random moments, up to three times, and is then left in peace
    pairs        the same command in two real processes at once
    checkpoints  a training is killed, a file of a checkpoint is damaged, the training goes on
    memory       one process that attacks again and again; its memory is read after every attack

``summary.json`` and ``summary.txt`` in the folder are written anew after every turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent)]

from fault_cases import CASES, Case, fresh  # noqa: E402
from fault_compare import difference, tree  # noqa: E402
from fork_server import Server  # noqa: E402
from fuzz_targets import READERS  # noqa: E402
from laboratory import Fuzzer, Laboratory  # noqa: E402
from mutations import damaged  # noqa: E402
from write_shim import Fault, points  # noqa: E402

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
TURN_S = 25.0
SHARES = {"writes": 6, "readers": 5, "kills": 4, "pairs": 1, "checkpoints": 2, "memory": 4}
"""How often a turn of each kind comes."""
LIMIT_S = 600


class Soak:
    """Everything that goes on, and what came of it."""

    def __init__(self, laboratory: Laboratory, out: Path, seed: int, minutes: float) -> None:
        self.laboratory, self.out, self.seed, self.minutes = laboratory, out, seed, minutes
        self.rng = random.Random(seed)
        self.fuzzer = Fuzzer(laboratory)
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in SHARES}
        self.problems: list[str] = []
        self.memory = Memory(laboratory.place / "memory", laboratory.template(("train",)))
        self.took: defaultdict[str, float] = defaultdict(float)
        self._durations: dict[str, float] = {}
        self.began = time.monotonic()

    def run(self) -> None:
        """Turns until the time is up."""
        kinds = [name for name, share in SHARES.items() for _ in range(share)]
        while time.monotonic() - self.began < 60 * self.minutes:
            self.rng.shuffle(kinds)
            for kind in kinds:
                if time.monotonic() - self.began >= 60 * self.minutes:
                    break
                self._turn(kind, getattr(self, f"_{kind}"))
                self.write()

    def _turn(self, kind: str, work: Callable[[], tuple[str, str | None]]) -> None:
        start = time.monotonic()
        while (now := time.monotonic()) - start < TURN_S and now - self.began < 60 * self.minutes:
            what, problem = work()
            self.counts[kind][what] += 1
            if problem:
                self.problems.append(f"[{kind}] {problem}")
        self.took[kind] += round(time.monotonic() - start, 1)

    # ------------------------------------------------------------------ the turns; each tells what it did, what broke

    def _writes(self) -> tuple[str, str | None]:
        case = CASES[self.rng.choice(sorted(CASES))]
        kind = self.rng.choice(["kill", "kill", "torn", "full", "failing"])
        worth = points(self.laboratory.whole(case).events, kind)
        fault = Fault(kind, self.rng.choice(worth))
        return f"{kind} {case.name}", self.laboratory.trial(case, fault, same_pid=self.rng.random() < 0.5)

    def _readers(self) -> tuple[str, str | None]:
        reader = self.rng.choice(sorted(READERS))
        counts, problems = self.fuzzer.fuzz(reader, self.rng.randrange(10**9), 50)
        for name, count in counts.items():
            self.counts["readers"][f"files {name}"] += count
        return reader, "\n".join(problems) or None

    def _kills(self) -> tuple[str, str | None]:
        case = CASES[self.rng.choice(["attack", "attack-run", "train", "train", "evaluate", "certify"])]
        whole, work = self.laboratory.whole(case), self.laboratory.place / "killed"
        fresh(whole.template, work)
        kills = 0
        for _ in range(self.rng.randint(1, 3)):
            process = _start(case, work)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.rng.uniform(1.5, self._seconds(case)))
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
        self.counts["kills"]["kills that met a process at work"] += kills
        return case.name, self._finished(case, work)

    def _seconds(self, case: Case) -> float:
        """How long a real process of it takes."""
        if case.name not in self._durations:
            work = self.laboratory.place / "timed"
            fresh(self.laboratory.whole(case).template, work)
            self._finished(case, work)
        return max(3.0, self._durations[case.name])

    def _finished(self, case: Case, work: Path) -> str | None:
        start = time.monotonic()
        whole, process = self.laboratory.whole(case), _start(case, work)
        _, told = process.communicate(timeout=LIMIT_S)
        self._durations[case.name] = time.monotonic() - start  # How busy the machine is changes.
        said = " ".join(told.split())[-400:]
        if process.returncode != whole.code or "bug in isthmus" in said or "Traceback" in said:
            return f"{case.name}: ends with {process.returncode}: {said}"
        wrong = difference(whole.tree, tree(work))
        return f"{case.name}: {wrong}" if wrong else None

    def _pairs(self) -> tuple[str, str | None]:
        case = CASES[self.rng.choice(["attack", "train", "evaluate", "certify"])]
        work = self.laboratory.place / "paired"
        fresh(self.laboratory.whole(case).template, work)
        both = [_start(case, work), _start(case, work)]
        said = [process.communicate(timeout=LIMIT_S)[1] for process in both]
        codes = sorted(process.returncode for process in both)
        self.counts["pairs"][f"exit codes {codes}"] += 1
        if codes[0] != 0 or codes[1] not in (0, 2) or any("bug in isthmus" in each for each in said):
            return case.name, f"{case.name} twice at once: {codes}: {' '.join(' '.join(said).split())[-400:]}"
        return case.name, self._finished(case, work)

    def _checkpoints(self) -> tuple[str, str | None]:
        case, place = CASES["train"], self.laboratory.work
        whole = self.laboratory.whole(case)
        first = next(number for number, event in enumerate(whole.events) if "checksums.json" in event)
        at = self.rng.choice([number for number in points(whole.events, "kill") if number > first])
        fresh(whole.template, place)
        self.laboratory.server.run(list(case.argv), place, Fault("kill", at))
        files = sorted(file for file in (place / "run/checkpoints").rglob("*") if file.is_file())
        if not files:
            return "none left to damage", None
        file = self.rng.choice(files)
        kind, content = damaged(file.name, file.read_bytes(), self.rng)
        file.write_bytes(content)
        ended = self.laboratory.server.run(list(case.argv), place)
        wrong = ended.fault
        if wrong is None and ended.code == 0:
            wrong = difference(whole.tree, tree(place))
        told = f"train, killed at write {at}, {file.relative_to(place)}: {kind}"
        what = "went on" if ended.code == 0 else "refused"
        return what, f"{told}: {wrong}: {ended.said[-300:]}" if wrong else None

    def _memory(self) -> tuple[str, str | None]:
        done, problem = self.memory.work(TURN_S)
        self.counts["memory"]["attacks"] += done
        return "turns", problem

    # ------------------------------------------------------------------ the record

    def summary(self) -> dict[str, Any]:
        """What is known so far."""
        return {
            "minutes": round((time.monotonic() - self.began) / 60, 1),
            "seed": self.seed,
            "python": platform.python_version(),
            "commit": _commit(),
            "trials": {name: dict(sorted(counts.items())) for name, counts in self.counts.items()},
            "seconds": dict(self.took),
            "memory": self.memory.summary(),
            "problems": self.problems,
        }

    def write(self) -> None:
        """Put the record into its folder."""
        found = self.summary()
        self.out.mkdir(parents=True, exist_ok=True)
        lines = [f"{found['minutes']} minutes, seed {self.seed}, commit {found['commit']}", ""]
        for name, counts in found["trials"].items():
            lines += [
                f"{name} ({found['seconds'].get(name, 0):.0f} s)",
                *(f"  {n:7,}  {what}" for what, n in counts.items()),
            ]
        lines += ["", f"memory: {json.dumps(found['memory'])}", "", f"{len(self.problems)} problems", *self.problems]
        for file, content in (("summary.json", json.dumps(found, indent=1)), ("summary.txt", "\n".join(lines))):
            part = self.out / f".{file}.part"
            part.write_text(content + "\n", errors="backslashreplace")
            part.replace(self.out / file)


def _start(case: Case, work: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "isthmus", *case.argv],
        cwd=work, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


class Memory:
    """One process that attacks again and again, and its resident memory after each attack."""

    def __init__(self, place: Path, template: Path) -> None:
        fresh(template, place)
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--attacker"],
            cwd=place, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.mib: list[float] = []

    def work(self, seconds: float) -> tuple[int, str | None]:
        """Let it attack for so long; how often it did, and what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            return 0, f"the process that attacks ended with {self._process.wait()}"
        found = json.loads(line)
        self.mib += found["mib"]
        return len(found["mib"]), found["problem"]

    def summary(self) -> dict[str, Any]:
        """Memory at the start, at the end, and the growth of the second half, per thousand attacks."""
        if len(self.mib) < 4:
            return {"attacks": len(self.mib)}
        half = self.mib[len(self.mib) // 2 :]
        middle, mean = (len(half) - 1) / 2, sum(half) / len(half)
        slope = sum((x - middle) * (y - mean) for x, y in enumerate(half)) / sum(
            (x - middle) ** 2 for x in range(len(half))
        )
        step = max(len(self.mib) // 20, 1)
        return {
            "attacks": len(self.mib),
            "first_mib": self.mib[0],
            "last_mib": self.mib[-1],
            "largest_mib": max(self.mib),
            "second_half_mib_per_1000_attacks": round(1000 * slope, 2),
            "every": step,
            "mib": self.mib[::step],
        }

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def attack_again_and_again() -> None:
    """The process of `Memory`: attacks for as many seconds as each line of its input says."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.path.insert(0, "")
    from isthmus.cli.app import run

    commands = [list(CASES["attack"].argv), list(CASES["attack-run"].argv)]
    number = 0
    for line in sys.stdin:
        end, mib, problem = time.monotonic() + float(line), [], None
        while time.monotonic() < end:
            command = [*commands[number % 2], "--seed", str(number)]
            number += 1
            sys.argv = ["isthmus", *command]
            code = run(command)
            problem = problem or (None if code == 0 else f"attack {number} in one process ends with {code}")
            shutil.rmtree("out", ignore_errors=True)
            shutil.rmtree("run/attacks", ignore_errors=True)
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            mib.append(round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1))
        print(json.dumps({"mib": mib, "problem": problem}), file=answers, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("soak"))
    parser.add_argument("--seed", type=int, default=None, help="(default: from the clock)")
    parser.add_argument("--attacker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attacker:
        attack_again_and_again()
        return
    seed = int(time.time()) if options.seed is None else options.seed
    place = options.out.absolute() / "work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with Server() as server:
        soak = Soak(Laboratory(server, place), options.out.absolute(), seed, options.minutes)
        try:
            soak.run()
        finally:
            soak.memory.close()
            soak.write()
    shutil.rmtree(place, ignore_errors=True)
    print((options.out / "summary.txt").read_text())
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
