"""What `benchmarks/ib_robustness.py` runs, in the order of its worth; within a stage one seed before the next.

table1     MNIST and CIFAR-10: CE, IB, CE+adv and IB+adv; the attacks of the paper's Tables 1 and 3
vub        CIFAR-10: standard, VIB and VUB heads on the features of a frozen CNN
table2     MNIST: beta 0.1, 0.01, 0.001; what passes the code under attack, and the accuracy left
masking    margin losses, targets, restarts, transfer from the CE model, `auto`, and the union of all of them
figures    the paper's Figures 1 to 4
reference  VIB's own network for 200 epochs: rate, label information and accuracy, raw and averaged weights
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from isthmus.training.settings import TrainingSettings, settings_for
from proof.grid import Method

STAGES = ("table1", "vub", "table2", "masking", "figures", "reference")
SEEDS = 5
BETA = 1e-3
BETAS = (1e-1, 1e-2, 1e-3)
BACKBONES = {"mnist": "mlp", "cifar10": "cnn_mlp"}
RADII = {"mnist": (0.1, 0.2, 0.3), "cifar10": (0.01, 0.03, 0.1)}
"""Of the attacks that look for masked gradients. At the paper's radii nothing of any CIFAR-10 model is left to see."""
EPOCHS = {"mnist": 20, "cifar10": 30}
LOGGED = (9, 21, 29, 50, 100, 200)
"""Epochs at which the reference is measured."""
N = 1000


@dataclass(frozen=True)
class ImageUnit:
    """One training with one seed, and everything that one stage asks of the trained model."""

    stage: str
    data: str
    method: Method
    """Its name is the row's."""
    seed: int
    settings: TrainingSettings
    backbone: str
    n: int = N
    encoder: ImageUnit | None = None
    """The unit whose network is frozen under the heads of this one."""
    source: ImageUnit | None = None
    """The unit whose adversarial images are carried over."""
    others: tuple[ImageUnit, ...] = ()
    """Trainings that a figure needs."""

    @property
    def page(self) -> str:
        """The file of the ledger."""
        return "vub_images" if self.stage == "vub" else "ib_robustness"

    @property
    def title(self) -> str:
        """What it is called on the terminal."""
        return f"{self.stage} {self.data} {self.method.name} seed {self.seed}"

    @property
    def folder(self) -> str:
        """Its run folder; units that share a training share it."""
        parts = (self.data, self.backbone, self.method.name, f"epochs{self.settings.epochs}", f"seed{self.seed}")
        return "-".join([*parts, *(["snapshots"] if self.settings.snapshots else [])])

    @property
    def is_stochastic(self) -> bool:
        """Whether there is a code to draw from."""
        return self.method.defence in ("vib", "vub") or self.method.parameters.get("base") == "vib"

    def estimate(self, images: int) -> float:
        """Seconds on one H200 shared by a dozen workers: recorded steps, more for attacks while it trains.

        Of the attacks CW takes most of Table 1's seconds, and `auto` of those that look for masked gradients.
        """
        slower = 1.5 if self.method.defence == "adversarial" else 1.0
        steps = self.settings.epochs * images / self.settings.batch_size
        train = 0.0015 * slower * steps
        asked = {"table1": 45.0, "masking": 60.0, "table2": 3.0, "reference": 10.0, "vub": 15.0, "figures": 30.0}
        whole = 0.0 if self.stage == "masking" else train  # Another unit has trained it.
        return 4 + whole + asked[self.stage] * (1.6 if self.is_stochastic else 1.0)


def wanted(units: Iterable[ImageUnit], only: Iterable[str]) -> list[ImageUnit]:
    """The units of some stages, or whose title a pattern matches (`table1 mnist*`, `*seed 0`)."""
    patterns = list(only)
    return [
        unit
        for unit in units
        if not patterns or unit.stage in patterns or any(fnmatch(unit.title, pattern) for pattern in patterns)
    ]


def plan(seeds: int = SEEDS) -> list[ImageUnit]:
    """Every unit, in the order of its worth."""

    def every(stage: Callable[[int], Iterator[ImageUnit]]) -> list[ImageUnit]:
        return [unit for seed in range(seeds) for unit in stage(seed)]

    table1, (first, *heads) = every(_table1), every(_vub)
    # The first head trains the network that all of them stand on, and the others would wait for it.
    early = len(ARMS) * len(BACKBONES)
    tables = [*table1[:early], first, *table1[early:], *heads, *every(_table2)]
    return [*tables, *every(_masking), *_figures(), *every(_reference)]


def vib(beta: float, name: str = "ib") -> Method:
    """The bottleneck at one beta."""
    return Method(name, "vib", {"beta": beta})


def adversarial(name: str, beta: float | None = None, ratio: float = 0.5) -> Method:
    """FGSM at 0.3 on a share of every mini-batch, under cross-entropy or a bottleneck."""
    base = {} if beta is None else {"base": "vib", "base_parameters": f"beta={beta:g}"}
    return Method(name, "adversarial", {"attack": "fgsm", "attack_parameters": "epsilon=0.3", "ratio": ratio, **base})


ARMS = (Method("ce"), vib(BETA), adversarial("ce+adv"), adversarial("ib+adv", BETA))


def settings_of(data: str, backbone: str, **given: object) -> TrainingSettings:
    """The usual settings of image models; epochs by data set."""
    return settings_for("images", backbone, **{"epochs": EPOCHS[data], "information": 0, **given})


def _unit(stage: str, data: str, method: Method, seed: int) -> ImageUnit:
    backbone = BACKBONES[data]
    return ImageUnit(stage, data, method, seed, settings_of(data, backbone), backbone)


def _table1(seed: int) -> Iterator[ImageUnit]:
    for data in BACKBONES:
        for method in ARMS:
            yield _unit("table1", data, method, seed)


def _masking(seed: int) -> Iterator[ImageUnit]:
    for data in BACKBONES:
        source = _unit("table1", data, ARMS[0], seed)
        for method in ARMS:
            unit = _unit("masking", data, method, seed)
            yield dataclasses.replace(unit, source=None if method == ARMS[0] else source)


def _table2(seed: int) -> Iterator[ImageUnit]:
    for beta in BETAS:
        # The names of Table 1 where the training is the same.
        plain, mixed = ("ib", "ib+adv") if beta == BETA else (f"ib-beta{beta:g}", f"ib+adv-beta{beta:g}")
        yield _unit("table2", "mnist", vib(beta, plain), seed)
        yield _unit("table2", "mnist", adversarial(mixed, beta), seed)


def _reference(seed: int) -> Iterator[ImageUnit]:
    settings = settings_for(
        "images", "vib_mlp", epochs=200, snapshots=True, average_weights=0.999, information=0, log_every=600
    )
    yield ImageUnit("reference", "mnist-whole", vib(BETA, "vib"), seed, settings, "vib_mlp", n=10_000)


def _vub(seed: int) -> Iterator[ImageUnit]:
    encoder = ImageUnit("vub", "cifar10", Method("cnn"), 0, settings_of("cifar10", "allcnn"), "allcnn")
    settings = settings_for("images", "features", epochs=50, learning_rate=1e-4, information=0)
    heads = [Method(f"{name}-{beta:g}", name, {"beta": beta}) for beta in BETAS for name in ("vib", "vub")]
    for method in (Method("standard"), *heads):
        yield ImageUnit("vub", "cifar10", method, seed, settings, "features", encoder=encoder)


def _figures() -> Iterator[ImageUnit]:
    """Betas for Figures 1 and 3, every epoch of one run for Figure 2, mixing ratios for Figure 4."""
    betas = tuple(
        _unit("figures", "mnist", vib(beta, "ib" if beta == BETA else f"ib-beta{beta:g}"), 0)
        for beta in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    )
    yield dataclasses.replace(betas[0], method=Method("figures-1-and-3"), others=betas)
    kept = settings_of("mnist", "mlp", snapshots=True)
    path = ImageUnit("figures", "mnist", vib(BETA), 0, kept, "mlp")
    yield dataclasses.replace(path, method=Method("figure-2"), others=(path,))
    for data in BACKBONES:
        mixed = tuple(
            ImageUnit(
                "figures", data, adversarial(f"ce+adv-ratio{ratio:g}", ratio=ratio), 0,
                settings_of(data, "allcnn", epochs=4 if data == "mnist" else 15), "allcnn",
            )
            for ratio in (0.0, 0.25, 0.5, 0.75, 1.0)
        )  # fmt: skip
        yield dataclasses.replace(mixed[0], method=Method("figure-4"), others=mixed)
