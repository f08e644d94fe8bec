"""Gradient attacks beside Foolbox and torchattacks on MNIST: the same outcomes, the same distances, and the speed.

    python -m venv PEERS && PEERS/bin/pip install torch 'foolbox==3.3.*'
    PEERS/bin/pip install --no-deps 'torchattacks==3.5.*'                         # it asks for an old requests
    python benchmarks/gradient_attacks.py --data MNIST --peers-python PEERS/bin/python
    python benchmarks/gradient_attacks.py --data MNIST --peers-python PEERS/bin/python --targets    # 1 if one is missed

MNIST is a folder with train.npz and test.npz (`images` uint8 [n, 28, 28], `labels`). An MLP and a small CNN are trained
once into --out. Every side runs in a process of its own with one thread and is measured in processor seconds, so that
other work on the machine does not decide; with --repeats the shortest of several runs counts. Settings are equal
(`gradient_models.CASES`). The bare passes are those that the attack made, replayed with nothing between them; beside
them what the same rows take in full batches. With --results the outcomes of every image go to the ledger.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradient_models import CASES, NAMES, TIMED, images, load, timed, train
from isthmus.attacks import BIM, CW, FGSM, PGD, Auto, DeepFool, GradientAttack, GradientResult
from isthmus.attacks.gradient.base import Draws
from isthmus.runs.provenance import machine

HERE = Path(__file__).resolve().parent
OURS = "isthmus"
PEERS = ("foolbox", "torchattacks")
BATCH = 1000
"""Images at once: the peers are given all of them in one batch."""
FEW = 200
"""Images of the rows that bear a side's plain name; others have their number behind it."""
EPOCHS = {"mlp": 3, "cnn": 2}
CLOSE, NEAR, AUTO, BARE = 0.01, 0.03, 0.005, 0.9
"""Targets: success at most 1 point lower, distances within 3 %, `auto` leaves 0.5 points more, 90 % of bare passes."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.npz and test.npz of MNIST")
    parser.add_argument("--peers-python", type=Path, help="python of an environment with foolbox and torchattacks")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "gradient_attacks", help="models and raw results")
    parser.add_argument("--n", type=int, default=1000, help="test images")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--models", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--auto-n", type=int, default=200, help="test images of auto; 0: leave it out")
    parser.add_argument("--queries", type=int, default=1000, help="of Square, on both sides")
    parser.add_argument("--train-n", type=int, default=20_000, help="training images")
    parser.add_argument("--repeats", type=int, default=1, help="times that a timed case is run; the shortest counts")
    parser.add_argument("--targets", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--results", type=Path, help="append outcomes to gradient_attacks.jsonl in this folder")
    return parser.parse_args()


def attack_of(name: str) -> GradientAttack:
    """A case as isthmus runs it."""
    own = CASES[name]
    if name == "pgd_l2":
        return PGD(**own, norm="l2", random_start=False)
    if name.startswith("cw"):
        return CW(**{"searches": 1, **own}, inside=1e-6)
    return {"fgsm": FGSM, "bim": BIM, "pgd": PGD, "deepfool": DeepFool}[name](**own)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Line:
    """One case on one model, as one side has it."""

    side: str
    model: str
    case: str
    right: Tensor  # before the attack [n]
    fooled: Tensor  # right before, wrong after [n]
    length: Tensor  # ‖x' - x‖₂ [n]
    seconds: float
    passes: GradientResult | None = None
    bare: float = 0.0  # seconds of the same passes, of the same numbers of rows, and nothing else

    @property
    def rate(self) -> float:
        return float(self.fooled.sum()) / max(1, int(self.right.sum()))


def judged(side: str, model: nn.Module, name: str, case: str, moved: Tensor, data: Path, seconds: float) -> Line:
    """What a side's images do to the model; every side is judged by the same pass."""
    pixels, labels = images(data, "test", len(moved))
    with torch.no_grad():
        right, after = model(pixels).argmax(dim=1) == labels, model(moved).argmax(dim=1) != labels
    if side == "foolbox" and case.startswith("cw"):
        after &= (moved != 0).flatten(1).any(dim=1)  # It returns a black image where it found nothing.
    if float(moved.min()) < 0 or float(moved.max()) > 1:
        sys.exit(f"{side} left the box in {name}/{case}: nothing can be compared")
    return Line(side, name, case, right, right & after, (moved - pixels).flatten(1).norm(dim=1), seconds)


def our_lines(options: argparse.Namespace, epsilons: dict[str, float]) -> list[Line]:
    found = []
    for name in options.models:
        model = load(name, options.out)
        cases = [(case, attack_of(case), options.n) for case in options.cases]
        if options.auto_n:
            cases.append(("auto", Auto(epsilon=epsilons[name], queries=options.queries), options.auto_n))
        for case, attack, n in cases:
            pixels, labels = images(options.data, "test", n)
            times = options.repeats if case in TIMED else 1
            result, seconds = timed(partial(attack.run, model, pixels, labels, rows=BATCH), times)
            line = judged(OURS, model, name, case, result.adversarial, options.data, seconds)
            bare = 0.0
            if case in TIMED:
                bare = timed(partial(replay, traced(attack, model, pixels, labels), model, pixels), times)[1]
            found.append(replace(line, passes=result, bare=bare))
            print(f"{name} {case}: {line.rate:.1%} fooled, {seconds:.1f} s", file=sys.stderr)
    return found


def peer_lines(options: argparse.Namespace, epsilons: dict[str, float]) -> list[Line]:
    """Both peers, each in a process of its own."""
    asked: dict[str, Any] = {
        "n": options.n,
        "cases": options.cases,
        "auto_n": options.auto_n,
        "queries": options.queries,
        "repeats": options.repeats,
    }
    asked |= {"auto": epsilons if options.auto_n else {}, "models": options.models}
    found = []
    for peer in options.peers:
        command = [str(options.peers_python), str(HERE / "gradient_peers.py"), peer]
        command += [str(options.out), str(options.data), json.dumps(asked)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            sys.exit(f"{peer} failed with exit code {ended.returncode}; its own words stand above")
        seconds = json.loads(ended.stdout.splitlines()[-1])["seconds"]
        with np.load(options.out / f"{peer}.npz") as moved:
            for key in moved.files:
                name, case = key.split("/")
                model = load(name, options.out)
                images_moved = torch.from_numpy(moved[key])
                found.append(judged(peer, model, name, case, images_moved, options.data, seconds[key]))
    return found


def middle_epsilon(name: str, options: argparse.Namespace) -> float:
    """An l-inf radius at which about half of the images survive PGD."""
    model = load(name, options.out)
    pixels, labels = images(options.data, "test", 100)
    shares = {
        epsilon: float(PGD(epsilon=epsilon, steps=20).run(model, pixels, labels).robust.float().mean())
        for epsilon in (0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15)
    }
    return min(shares, key=lambda epsilon: abs(shares[epsilon] - 0.5))


class Traced:
    """A network, and the rows and backward passes of every forward pass that is made of it."""

    stochastic = False

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.passes: list[list[int]] = []

    def logits(self, inputs: Tensor, draws: Draws) -> Tensor:
        """As the network says; rows that only fill up a small batch are not counted."""
        passes = [len(draws.rows.unique()), 0]
        self.passes.append(passes)
        logits: Tensor = self.model(inputs)
        if logits.requires_grad:
            logits.register_hook(lambda _: passes.__setitem__(1, passes[1] + 1))
        return logits.unsqueeze(1)


def traced(attack: GradientAttack, model: nn.Module, pixels: Tensor, labels: Tensor) -> list[list[int]]:
    """Rows, and backward passes, of every forward pass that an attack makes, in their order."""
    target = Traced(model)
    attack.run(target, pixels, labels, rows=BATCH)
    return target.passes


def replay(passes: list[list[int]], model: nn.Module, pixels: Tensor) -> None:
    """The same passes, and nothing between them."""
    for rows, backward in passes:
        leaf = pixels[:rows].detach().requires_grad_(backward > 0)
        logits = model(leaf)
        for number in range(backward):
            torch.autograd.grad(logits[:, number].sum(), leaf, retain_graph=number + 1 < backward)


class Bare:
    """Processor seconds of a row's forward pass, and of one backward pass, at the batch size of the attacks."""

    def __init__(self, model: nn.Module, pixels: Tensor) -> None:
        leaf = pixels.clone().requires_grad_(True)

        def passes(backward: int) -> None:
            logits = model(leaf)
            for number in range(backward):
                torch.autograd.grad(logits[:, number].sum(), leaf, retain_graph=number + 1 < backward)

        once = min(timed(lambda: passes(1))[1] for _ in range(7)) / len(leaf)
        ten = min(timed(lambda: passes(10))[1] for _ in range(4)) / len(leaf)
        self.backward = (ten - once) / 9
        self.forward = once - self.backward

    def seconds(self, result: GradientResult) -> float:
        """Of the passes that an attack made."""
        return result.forward * self.forward + result.backward * self.backward


def compare(lines: list[Line], options: argparse.Namespace) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """The rows of both tables, and what missed its target."""
    by = {(line.side, line.model, line.case): line for line in lines}
    agreement: list[list[str]] = []
    speed: list[list[str]] = []
    missed: list[str] = []
    for ours in (line for line in lines if line.side == OURS):
        for peer in PEERS:
            theirs = by.get((peer, ours.model, ours.case))
            if theirs is None:
                continue
            agreement.append(agree(ours, theirs, missed))
        if ours.case in TIMED and ours.passes is not None:
            speed.append(speed_of(ours, by, options, missed))
    return agreement, speed, missed


def agree(ours: Line, theirs: Line, missed: list[str]) -> list[str]:
    """One row: success, distance over common successes."""
    where = f"{ours.model} {ours.case} against {theirs.side}"
    both = ours.fooled & theirs.fooled
    lengths = [float(each.length[both].median()) if bool(both.any()) else float("nan") for each in (ours, theirs)]
    change, ratio = ours.rate - theirs.rate, lengths[0] / lengths[1]
    if ours.case == "auto":
        left = [float((each.right & ~each.fooled).float().mean()) for each in (ours, theirs)]
        if left[0] - left[1] > AUTO:
            missed.append(f"{where}: {100 * (left[0] - left[1]):.1f} points more survive")
        if not 0.2 <= left[1] <= 0.8:
            missed.append(f"{where}: {left[1]:.0%} survive, not 20 to 80 %")
    elif change < -CLOSE:
        missed.append(f"{where}: success is {100 * change:+.1f} points")
    compared = ours.case == "deepfool" or (ours.case.startswith("cw") and theirs.side == "foolbox")
    if compared and not abs(ratio - 1) <= NEAR:
        missed.append(f"{where}: median distance is {ratio:.3f} of theirs")
    shown = f"{lengths[0]:.3f} / {lengths[1]:.3f} = {ratio:.3f}" if compared else ""
    rates = [f"{100 * each.rate:.1f}" for each in (ours, theirs)]
    return [ours.model, ours.case, theirs.side, str(len(ours.right)), *rates, f"{100 * change:+.1f}", shown]


def speed_of(
    ours: Line, by: dict[tuple[str, str, str], Line], options: argparse.Namespace, missed: list[str]
) -> list[str]:
    """One row: seconds of every side, and the share of the bare passes."""
    model = load(ours.model, options.out)
    pixels, _ = images(options.data, "test", min(BATCH, options.n))
    assert ours.passes is not None
    full, share = Bare(model, pixels).seconds(ours.passes) / ours.seconds, ours.bare / ours.seconds
    row = [ours.model, ours.case, str(len(ours.right)), f"{ours.seconds:.1f}"]
    for peer in PEERS:
        theirs = by.get((peer, ours.model, ours.case))
        row.append("" if theirs is None else f"{theirs.seconds:.1f}")
        if theirs is not None and theirs.seconds < ours.seconds:
            missed.append(
                f"{ours.model} {ours.case}: {peer} takes {theirs.seconds:.1f} s, isthmus {ours.seconds:.1f} s"
            )
    if share < BARE:
        missed.append(f"{ours.model} {ours.case}: {share:.0%} of the rate of the bare passes")
    return [*row, f"{ours.passes.forward:,} / {ours.passes.backward:,}", f"{share:.0%}", f"{full:.0%}"]


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def append(lines: list[Line], options: argparse.Namespace, epsilons: dict[str, float]) -> None:
    """The outcomes of every image in the ledger, with and without attack."""
    from ledger import Cell, Key, Ledger, provenance

    book = Ledger(options.results / "gradient_attacks.jsonl")
    for line in lines:
        pixels, labels = images(options.data, "test", len(line.right))
        digest = hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()[:16]
        settings = {"epsilon": epsilons[line.model], "queries": options.queries, "steps": 100}
        clean = Key(
            data={"name": "mnist", "split": "test", "fingerprint": digest},
            backbone=line.model, method={"name": line.side}, seed=0, n=len(line.right),
            training={"epochs": EPOCHS[line.model], "limit": options.train_n},
        )  # fmt: skip
        parameters = settings if line.case == "auto" else CASES[line.case]
        key = replace(clean, attack={"name": line.case, "parameters": parameters})
        row = line.side if len(line.right) == FEW else f"{line.side}-{len(line.right)}"
        pairs = zip(line.right.tolist(), line.fooled.tolist(), strict=True)
        marks = "".join("w" if not right else "x" if fooled else "." for right, fooled in pairs)
        length = line.length[line.fooled].median() if bool(line.fooled.any()) else None
        summary = {"asr": round(line.rate, 5), "median_l2": None if length is None else round(float(length), 5)}
        if clean not in book:
            book.append(Cell.of_answers(clean, line.right.tolist(), row=row, provenance=provenance("cpu")))
        if key not in book:
            book.append(Cell(key, marks, summary, row, provenance("cpu", seconds=line.seconds)))


def main() -> None:
    options = arguments()
    for split in ("train", "test"):
        if not (options.data / f"{split}.npz").is_file():
            sys.exit(
                f"there is no {split}.npz in {options.data}: --data is a folder with train.npz and test.npz of MNIST"
            )
    if options.peers_python is None or not options.peers_python.exists():
        sys.exit(
            "the peers are missing: give --peers-python, the python of an environment with foolbox 3.3 and "
            "torchattacks 3.5 (the top of this file says how to make one)"
        )
    torch.set_num_threads(1)
    for name in options.models:
        train(name, options.data, options.out, EPOCHS[name], options.train_n)
    epsilons = {name: middle_epsilon(name, options) if options.auto_n else 0.0 for name in options.models}
    lines = [*our_lines(options, epsilons), *peer_lines(options, epsilons)]
    agreement, speed, missed = compare(lines, options)
    heads = (
        ["model", "case", "beside", "n", "success, %", "theirs, %", "points", "median l2 over common successes"],
        [
            "model",
            "case",
            "n",
            "isthmus, s",
            *(f"{peer}, s" for peer in PEERS),
            "rows forward / back",
            "of the same passes",
            "of full batches",
        ],
    )
    print(f"CPU: {machine('cpu')['processor']}, one thread; auto at epsilon {epsilons}")
    print(table(heads[0], agreement), table(heads[1], speed), sep="\n\n")
    print("\n".join(["", "missed:", *missed] if missed else ["", "all targets met"]))
    if options.results:
        append(lines, options, epsilons)
    if options.targets and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
