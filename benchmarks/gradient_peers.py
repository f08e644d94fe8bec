"""One peer's side of `gradient_attacks.py`: Foolbox or torchattacks, in an environment of their own.

    PEERS/bin/python benchmarks/gradient_peers.py foolbox FOLDER DATA '{"n": 1000, ...}'

Writes FOLDER/foolbox.npz with the adversarial images of every case, and prints a line of JSON with the seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradient_models import CASES, TIMED, images, load, timed

Attack = Callable[[Tensor, Tensor], Tensor]


def foolbox_attack(name: str, model: nn.Module) -> Attack:
    """A case as Foolbox runs it."""
    import foolbox
    from foolbox import attacks

    own = CASES[name]
    step = {"steps": own.get("steps"), "abs_stepsize": own.get("step_size")}
    built: dict[str, Callable[[], Any]] = {
        "fgsm": lambda: attacks.LinfFastGradientAttack(random_start=False),
        "bim": lambda: attacks.LinfBasicIterativeAttack(**step, random_start=False),
        "pgd": lambda: attacks.LinfProjectedGradientDescentAttack(**step, random_start=True),
        "pgd_l2": lambda: attacks.L2ProjectedGradientDescentAttack(**step, random_start=False),
        "deepfool": lambda: attacks.L2DeepFoolAttack(
            steps=own["steps"], overshoot=own["overshoot"], candidates=10, loss="logits"
        ),
        "cw": lambda: attacks.L2CarliniWagnerAttack(
            binary_search_steps=1, steps=own["steps"], stepsize=own["learning_rate"], initial_const=own["c"]
        ),
        "cw_search": lambda: attacks.L2CarliniWagnerAttack(
            binary_search_steps=own["searches"], steps=own["steps"], stepsize=own["learning_rate"],
            initial_const=own["c"], abort_early=own["abort_early"],
        ),
    }  # fmt: skip
    attack, seen = built[name](), foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")

    def run(pixels: Tensor, labels: Tensor) -> Tensor:
        _, clipped, _ = attack(seen, pixels, labels, epsilons=own.get("epsilon"))
        found: Tensor = clipped
        return found

    return run


def torchattacks_attack(name: str, model: nn.Module) -> Attack | None:
    """A case as torchattacks runs it; None where it has none."""
    import torchattacks

    own = CASES[name]
    built: dict[str, Callable[[], Any]] = {
        "fgsm": lambda: torchattacks.FGSM(model, eps=own["epsilon"]),
        "bim": lambda: torchattacks.BIM(model, eps=own["epsilon"], alpha=own["step_size"], steps=own["steps"]),
        "pgd": lambda: torchattacks.PGD(
            model, eps=own["epsilon"], alpha=own["step_size"], steps=own["steps"], random_start=True
        ),
        "pgd_l2": lambda: torchattacks.PGDL2(
            model, eps=own["epsilon"], alpha=own["step_size"], steps=own["steps"], random_start=False
        ),
        "deepfool": lambda: torchattacks.DeepFool(model, steps=own["steps"], overshoot=own["overshoot"]),
        "cw": lambda: torchattacks.CW(model, c=own["c"], kappa=0, steps=own["steps"], lr=own["learning_rate"]),
    }
    return built[name]() if name in built else None


def auto_attack(model: nn.Module, epsilon: float, queries: int) -> Attack:
    """AutoAttack rebuilt from torchattacks' parts; each gets what the ones before left."""
    import torchattacks

    common: dict[str, Any] = {"norm": "Linf", "eps": epsilon, "seed": 0, "n_restarts": 1}
    parts = [
        torchattacks.APGD(model, steps=100, loss="ce", **common),
        torchattacks.APGDT(model, steps=100, n_classes=10, **common),
        torchattacks.FAB(model, steps=100, multi_targeted=True, n_classes=10, **common),
        torchattacks.Square(model, n_queries=queries, **common),
    ]

    def run(pixels: Tensor, labels: Tensor) -> Tensor:
        found = pixels.clone()
        left = torch.arange(len(pixels))
        for part in parts:
            with torch.no_grad():
                left = left[model(found[left]).argmax(dim=1) == labels[left]]
            if not len(left):
                break
            tried = part(pixels[left], labels[left]).detach()
            with torch.no_grad():
                fooled = model(tried).argmax(dim=1) != labels[left]
            found[left[fooled]] = tried[fooled]
        return found

    return run


def main() -> None:
    """Run every case on both networks."""
    peer, folder, data, asked = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    torch.set_num_threads(1)
    make = {"foolbox": foolbox_attack, "torchattacks": torchattacks_attack}[peer]
    found: dict[str, Any] = {}  # Arrays of pixels.
    seconds: dict[str, float] = {}
    for model_name in asked["models"]:
        model = load(model_name, folder)
        for name in asked["cases"]:
            pixels, labels = images(data, "test", asked["n"])
            torch.manual_seed(0)
            times = asked["repeats"] if name in TIMED else 1
            attack = make(name, model)
            if attack is None:
                continue
            moved, spent = timed(partial(attack, pixels, labels), times)
            found[f"{model_name}/{name}"], seconds[f"{model_name}/{name}"] = moved.detach().numpy(), spent
            print(f"{peer} {model_name} {name}: {spent:.1f} s", file=sys.stderr, flush=True)
        if peer == "torchattacks" and asked["auto"]:
            pixels, labels = images(data, "test", asked["auto_n"])
            attack = auto_attack(model, asked["auto"][model_name], asked["queries"])
            moved, spent = timed(partial(attack, pixels, labels))
            found[f"{model_name}/auto"], seconds[f"{model_name}/auto"] = moved.numpy(), spent
    np.savez(folder / f"{peer}.npz", **found)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
