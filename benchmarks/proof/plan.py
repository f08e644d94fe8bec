"""What `benchmarks/evidence.py` runs, in the order of its worth: the minimum first.

    minimum   SST-2 and SNLI: standard training, then the regularisers; TextFooler, 3 seeds
    infobert  SNLI: InfoBERT with weights that have leverage, alone and on top of FreeLB
    mnli      the regularisers again on MNLI
    vub       VUB and VIB heads on a frozen encoder, 5 seeds
    rsmi      RSMI, SAFER and standard training on QNLI and AG News, as vote and as average

Defences are named here and looked up when the plan is made: one that this version does not have is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from isthmus.core import catalog
from isthmus.core.errors import UnknownName
from isthmus.training.settings import TrainingSettings
from proof.grid import Method
from rsmi import PLANS as RANDOMISED
from vub import SCHEDULE

STAGES = ("minimum", "infobert", "mnli", "vub", "rsmi")
SEEDS = 3
REGULARISERS = ("smart", "alum", "freelb", "freelb_plus_plus", "rdrop")
"""In the order in which they are run. Other spellings of a name are in `_SPELLINGS`."""
_SPELLINGS = {
    "freelb_plus_plus": ("freelb_plus_plus", "freelbplusplus", "freelb_plus", "freelbpp"),
    "rdrop": ("rdrop",),
}
_PASSES = {
    "smart": 3.0, "alum": 3.0, "freelb": 3.5, "freelb_plus_plus": 10.0, "rdrop": 2.0, "infobert": 1.6, "rsmi": 2.5,
}  # fmt: skip
"""Plain training steps that one step of a defence takes, about; for the estimates of the list alone."""


@dataclass(frozen=True)
class Way:
    """How a trained model is asked."""

    name: str = ""
    """Ends the name of the row."""
    options: Mapping[str, Any] = field(default_factory=dict)
    draws: bool = False
    """Whether its answers are random."""


@dataclass(frozen=True)
class Explained:
    """An explanation of texts before and after an attack, and whose attacked texts they are."""

    method: str
    pairs: str = "own"
    """``own``: what the attack made against this model; else the row whose attacked texts are explained."""
    n: int = 1000
    """Pairs that are explained, in a seeded order."""
    controls: bool = False
    """Whether to measure what noise alone does, at about the same cost again."""
    attack: str = "textfooler"


@dataclass(frozen=True)
class Unit:
    """One training with one seed, and everything that is asked of the trained model."""

    stage: str
    page: str
    """The file of the ledger."""
    data: str
    method: Method
    """Its name is the name of the row."""
    seed: int
    settings: TrainingSettings
    n: int
    tests: tuple[str, ...] = ("test",)
    """Splits of which the whole is answered; the first `n` of the first one's order are attacked."""
    ways: tuple[Way, ...] = (Way(),)
    attacks: tuple[str, ...] = ("textfooler",)
    encoder: Unit | None = None
    """The unit whose trained encoder is frozen under the heads of this one."""
    backbone: str | None = None
    """None: what the command names."""
    preset: str | None = None
    """Limits on the attacks that test it."""
    explained: tuple[Explained, ...] = ()
    pairs_of: Unit | None = None
    """The unit whose attacked texts are explained, where they are not its own."""
    part: str = ""
    """Ends the title, where several units share a training."""

    @property
    def title(self) -> str:
        """What it is called on the terminal."""
        names = [self.data, self.backbone, self.method.name, "head" if self.encoder else "", f"seed {self.seed}"]
        return " ".join(name for name in [*names, self.part] if name)

    @property
    def folder(self) -> str:
        """Its run folder; units that share a training share it."""
        names = [self.data, self.backbone, self.method.name, f"seed{self.seed}", "head" if self.encoder else ""]
        return "-".join(name for name in names if name)

    def estimate(self, texts: int) -> float:
        """Seconds on one H200 shared by a dozen workers, from earlier runs and from nothing better."""
        if self.encoder is not None:
            training, attack = 40.0, 0.06
        else:
            steps = self.settings.epochs * texts / self.settings.batch_size
            passes = _PASSES.get(self.method.defence, 1.0)
            passes *= 3.5 if self.method.parameters.get("adversary") == "freelb" else 1.0
            training, attack = 0.06 * steps * passes, 0.06
        asked = sum(self.n * attack * (20 if way.draws else 1) for way in self.ways) * len(self.attacks)
        return 10 + training + asked


def wanted(units: Iterable[Unit], only: Iterable[str]) -> list[Unit]:
    """The units of some stages, or whose title a pattern matches (`snli*`, `*freelb*seed 0`)."""
    patterns = list(only)
    return [
        unit
        for unit in units
        if not patterns or unit.stage in patterns or any(fnmatch(unit.title, pattern) for pattern in patterns)
    ]


def plan(changed: Mapping[str, Mapping[str, str]] | None = None) -> list[Unit]:
    """Every unit, in the order of its worth; `changed` sets parameters of a defence for all of its units."""
    found = [*_minimum(), *_infobert(), *_mnli(), *_vub(), *_rsmi()]
    return [_with(unit, (changed or {}).get(unit.method.defence, {})) for unit in found]


def _with(unit: Unit, parameters: Mapping[str, str]) -> Unit:
    method = unit.method
    return dataclasses.replace(unit, method=Method(method.name, method.defence, {**method.parameters, **parameters}))


_SHORT = TrainingSettings(
    epochs=4, batch_size=64, learning_rate=1e-4, warmup=0.1, max_tokens=64, precision="fp32", checkpoint_every=None,
    information=0,
)  # fmt: skip
_PAIRS = dataclasses.replace(_SHORT, epochs=3, batch_size=128, learning_rate=2e-4, max_tokens=128)
"""The step is that of MiniLM on 42,000 pairs, chosen for standard training on development data."""


def known(name: str) -> str | None:
    """The name of a defence in this version; None where it does not have it."""
    for spelling in _SPELLINGS.get(name, (name,)):
        try:
            return catalog.find("defences", spelling).name
        except UnknownName:
            continue
    return None


def _methods() -> list[Method]:
    """Standard training and the regularisers, at their defaults."""
    found = [(name, known(name)) for name in ("standard", *REGULARISERS)]
    return [Method(name, defence) for name, defence in found if defence is not None]


def _minimum() -> Iterator[Unit]:
    for method in _methods():
        for seed in range(SEEDS):
            yield Unit("minimum", "defences", "sst2", method, seed, _SHORT, 500)
            yield Unit("minimum", "defences", "snli", method, seed, _PAIRS, 500)


def _mnli() -> Iterator[Unit]:
    for method in _methods():
        for seed in range(SEEDS):
            yield Unit("mnli", "defences", "mnli", method, seed, _PAIRS, 500, ("test_matched", "test_mismatched"))


def _infobert() -> Iterator[Unit]:
    """Strong anchors first; every row whole before the next begins."""
    for adversary in ("none", "freelb"):
        for alpha in (0.5, 5.0):
            for beta in (0.0, 1e-3, 5e-2):
                climbs = "-freelb" if adversary == "freelb" else ""
                parameters = {"alpha": alpha, "beta": beta, "adversary": adversary}
                method = Method(f"infobert{climbs}-alpha{alpha:g}-beta{beta:g}", "infobert", parameters)
                for seed in range(SEEDS):
                    yield Unit("infobert", "defences", "snli", method, seed, _PAIRS, 500)


_CODES = (
    Way("mean", {"latent": "mean"}),
    Way("average", {"latent": "sample", "draws": 12}, draws=True),
    Way("sample", {"latent": "sample"}, draws=True),
)
"""How a stochastic head is seen: by its mean code, by the average over 12 draws, by one draw."""


def _vub() -> Iterator[Unit]:
    """A seed of every head, then the next seed: a cut leaves whole seeds."""
    encoder = Unit("minimum", "defences", "sst2", Method("standard"), 0, _SHORT, 500)
    settings = dataclasses.replace(SCHEDULE, batch_size=64, max_tokens=64, information=0)
    heads = [Method(f"{name}-{beta:g}", name, {"beta": beta}) for beta in (1e-1, 1e-2, 1e-3) for name in ("vib", "vub")]
    for seed in range(5):
        for method in [Method("standard"), *heads]:
            ways = _CODES if method.parameters else (Way(),)
            yield Unit(
                "vub", "vub", "sst2", method, seed, settings, 200, ways=ways, attacks=("deepwordbug", "pwws"),
                encoder=encoder,
            )  # fmt: skip


def _rsmi() -> Iterator[Unit]:
    """RSMI has half as many epochs more, since noise and masks slow learning down."""
    ways = {
        "rsmi": (Way("vote", {"aggregate": "vote"}, True), Way("average", {"aggregate": "average"}, True)),
        "safer": (Way("vote", {"answer": "vote"}, True), Way("average", {"answer": "mean"}, True)),
    }
    for seed in range(SEEDS):
        for each in (each for name in ("qnli", "ag_news") for each in RANDOMISED if each.name == name):
            plain = dataclasses.replace(
                _PAIRS, epochs=each.epochs, batch_size=each.batch, max_tokens=each.max_tokens, learning_rate=2e-4
            )
            longer = dataclasses.replace(plain, epochs=plain.epochs - (-plain.epochs // 2))
            for method, settings in (
                (Method("standard"), plain),
                (Method("rsmi", "rsmi", each.rsmi), longer),
                (Method("safer", "safer"), plain),
            ):
                asked = ways.get(method.defence, (Way(),))
                yield Unit("rsmi", "rsmi", each.name, method, seed, settings, 200, ways=asked)
