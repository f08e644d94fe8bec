"""What `benchmarks/flat.py` runs, in the order of its worth; whole seeds first, so that a cut leaves comparisons.

    search        development data: beta and gamma of `flat`, cnn and minilm, one seed, rounds of 1,000 texts
    headline      SST-2, TextFooler and PWWS on all test texts: base, adv, adv-frozen, flat; 3 seeds
    frozen        lstm and cnn without rounds, with frozen embeddings; 3 seeds
    seeds         lstm: seeds 3 to 9 of headline arms, 3 and 4 of the others; minilm: 3 and 4 of all arms
    ablation      gamma = 0, beta = 0, both 0; 3 seeds, those of minilm after `pwws`
    pwws          trained and tested with PWWS, 3 seeds
    pairs         tau and top-5 on each model's own pairs and on those of base: integrated gradients here, LIME later
    transfer      BAE on all texts; after `textdefender` genetic, iga, pso, clare on 300; base, adv, flat, one seed
    textdefender  trained and tested under the limits textdefender-2021: cnn, 3 seeds, and minilm, 2
    vocabulary    lstm and cnn whose vocabulary holds the attacks' candidates, 3 seeds
    trec6, ag_news, imdb  lstm and cnn, headline arms, 3 seeds; rounds of all, 2,000 and 1,000 texts; on trec6 also what
                  LIME and integrated gradients say
    small         what one processor does without a GPU: arms trained with PWWS, whose attacks need no sentence encoder:
                  cnn with the larger vocabulary on SST-2 (1,000 texts a round), lstm and cnn on TREC-6, 3 seeds; what
                  LIME and integrated gradients say of 200 pairs of the latter

A comparison stands before one that needs its trainings, so that no worker waits long for another's training.
What is asked of models beside accuracy is asked of minilm's seeds 3 and 4, and of the first seeds of lstm and cnn.
All arms of a backbone have the same start, epochs, rounds and points, and the same settings of the training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isthmus.core.statistics import mcnemar
from isthmus.training.settings import TrainingSettings
from proof.grid import Method
from proof.plan import Explained, Unit

STAGES = (
    "search", "headline", "frozen", "seeds", "ablation", "pwws", "pairs", "transfer", "textdefender", "vocabulary",
    "trec6", "ag_news", "imdb", "small",
)  # fmt: skip
PAGE = "flat"
BACKBONES = ("minilm", "lstm", "cnn")
"""The longest first."""
WORDS = ("lstm", "cnn")
HEADLINE = ("base", "adv", "adv-frozen", "flat")
ABLATION = ("flat-gamma0", "flat-beta0", "flat-both0")
TEXTS = 1821
"""SST-2's test split."""
GRID = (0.01, 0.1, 1.0)
"""Of beta and of gamma."""
DEFAULTS = (0.1, 0.1)
"""Those of the defence."""
LEVEL = 0.05
CHOSEN: Mapping[str, tuple[float, float]] = {"lstm": (0.1, 0.1), "cnn": (0.1, 0.1), "minilm": (0.1, 0.1)}
"""beta and gamma of each backbone: the best of `search` once that is complete (`chosen`), the defence's defaults until
then. lstm takes what cnn takes."""
PRESET = "textdefender-2021"
MORE_WORDS = 50_000

POINTS: Mapping[str, str | int] = {"minilm": 2000, "lstm": "none", "cnn": "none"}
"""Training texts of each round; "none": all of them."""
_ROUNDS = {"lstm": (12, 4, 4), "cnn": (12, 4, 4), "minilm": (6, 2, 2)}
"""Epochs, epochs before the first round, epochs from one round to the next: two rounds. The paper has 30, 10, 10."""
_SETTINGS = TrainingSettings(
    batch_size=64, warmup=0.1, max_tokens=64, precision="fp32", checkpoint_every=None, information=0
)
_MAX_TOKENS = {"ag_news": 128, "imdb": 256}
_SEARCHED = "search"


def plan(points: int | None = None, pairs: int = 1000) -> list[Unit]:
    """Every unit, in the order of its worth; `points` texts of each round in place of `POINTS`."""
    found = [
        *_search(), *_headline(), *_frozen(), *_more_lstm(), *_more_minilm(), *_ablation(WORDS), *_pwws(),
        *_ablation(("minilm",)), *_pairs("integrated_gradients", pairs), *_transfer(("bae",), TEXTS), *_textdefender(),
        *_transfer(("genetic", "iga", "pso"), 300), *_transfer(("clare",), 300), *_pairs("lime", pairs), *_vocabulary(),
        *_other("trec6", None, 500), *_words_of_trec6(), *_other("ag_news", 2000, 1000), *_other("imdb", 1000, 500),
        *_small(pairs),
    ]  # fmt: skip
    return found if points is None else [_of_points(unit, points) for unit in found]


def settings(backbone: str, **more: Any) -> TrainingSettings:
    """The same for all arms."""
    epochs, _, _ = _ROUNDS[backbone]
    rate = 1e-4 if backbone == "minilm" else 1e-3
    return dataclasses.replace(_SETTINGS, epochs=epochs, learning_rate=rate, **more)


def arm(name: str, backbone: str, *, attack: str = "textfooler", ending: str = "", **more: Any) -> Method:
    """One arm: its parameters, and its name, with an ending where it is trained in another way."""
    _, start, every = _ROUNDS[backbone]
    if name == "base":
        return Method(f"base{ending}")
    beta, gamma = CHOSEN[backbone]
    rounds = {"points": POINTS[backbone], "start": start, "every": every}
    shared = {"attack": attack, **rounds, "keep_failed": "true", **more}
    own: dict[str, dict[str, Any]] = {
        "adv": {},
        "adv-frozen": {"freeze_embeddings": "true"},
        "base-frozen": {"freeze_embeddings": "true", "points": 0},
        "flat": {"beta": beta, "gamma": gamma},
        "flat-gamma0": {"beta": beta, "gamma": 0},
        "flat-beta0": {"beta": 0, "gamma": gamma},
        "flat-both0": {"beta": 0, "gamma": 0},
    }
    return Method(name + ending, "flat" if name.startswith("flat") else "adversarial", {**shared, **own[name]})


def unit(stage: str, backbone: str, method: Method, seed: int, **more: Any) -> Unit:
    """One training on SST-2, tested by both attacks unless something else is said."""
    given: dict[str, Any] = {"n": TEXTS, "attacks": ("textfooler", "pwws"), "settings": settings(backbone), **more}
    return Unit(stage, PAGE, given.pop("data", "sst2"), method, seed, backbone=backbone, **given)


def _search() -> Iterator[Unit]:
    """One seed, 1,000 texts a round; 300 development texts are attacked, which no training text repeats."""
    for backbone in ("cnn", "minilm"):
        arms: list[tuple[str, dict[str, Any]]] = [("adv", {}), ("adv-frozen", {})]
        arms += [("flat", {"beta": beta, "gamma": gamma}) for beta in GRID for gamma in GRID]
        for name, parameters in arms:
            plain = arm(name, backbone, points=1000)
            ending = "".join(f"-{each}{value:g}" for each, value in parameters.items())
            method = Method(f"{_SEARCHED}-{name}{ending}", plain.defence, {**plain.parameters, **parameters})
            yield unit("search", backbone, method, 0, n=300, tests=("dev",), attacks=("textfooler",))


def chosen(cells: Iterable[Any], backbone: str) -> tuple[float, float] | None:
    """beta and gamma with the largest accuracy under attack on development data; None where the search is not whole.

    The defaults stay unless the best pair leaves significantly more texts (McNemar, 5 %). Of equal ones the first: the
    smaller beta, then the smaller gamma.
    """
    found: dict[tuple[float, float], Any] = {}
    for cell in cells:
        key = cell.key
        if key.backbone == backbone and key.attack and key.data["split"] == "dev" and key.method["name"] == "flat":
            parameters = key.method["parameters"]
            found[parameters["beta"], parameters["gamma"]] = cell.right
    grid = [(beta, gamma) for beta in GRID for gamma in GRID]
    if not all(each in found for each in grid):
        return None
    best = max(grid, key=lambda each: found[each].mean())
    return best if mcnemar(found[best] > 0, found[DEFAULTS] > 0).p_value < LEVEL else DEFAULTS


def _headline() -> Iterator[Unit]:
    for seed in range(3):
        for backbone in BACKBONES:
            for name in HEADLINE:
                yield unit("headline", backbone, arm(name, backbone), seed)


def _frozen() -> Iterator[Unit]:
    """Standard training with frozen embeddings: what of FLAT's accuracy without attack do they alone cost?"""
    for seed in range(3):
        for backbone in WORDS:
            yield unit("frozen", backbone, arm("base-frozen", backbone), seed)


def _ablation(backbones: Iterable[str]) -> Iterator[Unit]:
    for seed in range(3):
        for backbone in backbones:
            for name in ABLATION:
                yield unit("ablation", backbone, arm(name, backbone), seed)


def _pairs(method: str, most: int) -> Iterator[Unit]:
    """What noise does is measured of the first seed."""
    for backbone in BACKBONES:
        seeds = _looked_into(backbone)
        for seed in seeds:
            base = unit("headline", backbone, arm("base", backbone), seed, attacks=("textfooler",))
            for name in HEADLINE:
                explained = (Explained(method, "base", most), Explained(method, "own", most, controls=seed == seeds[0]))
                yield unit(
                    "pairs", backbone, arm(name, backbone), seed, attacks=("textfooler",), explained=explained,
                    pairs_of=base, part=method,
                )  # fmt: skip


def _pwws() -> Iterator[Unit]:
    for seed in range(3):
        for backbone in BACKBONES:
            for name in HEADLINE[1:]:
                method = arm(name, backbone, attack="pwws", ending="-pwws")
                yield unit("pwws", backbone, method, seed, attacks=("pwws",))


def _vocabulary() -> Iterator[Unit]:
    for seed in range(3):
        for backbone in WORDS:
            for name in HEADLINE:
                method = arm(name, backbone, ending="-words")
                yield unit("vocabulary", backbone, method, seed, settings=settings(backbone, more_words=MORE_WORDS))


def _small(most: int) -> Iterator[Unit]:
    """Seed by seed; rounds on SST-2 attack 1,000 texts, those on TREC-6 all; the first seed is explained."""
    words = settings("cnn", more_words=MORE_WORDS)
    for seed in range(3):
        for method in [_small_arm(name, "cnn", "-words", points=1000) for name in HEADLINE]:
            yield unit("small", "cnn", method, seed, attacks=("pwws",), settings=words, part="pwws")
        for backbone in reversed(WORDS):
            for method in [_small_arm(name, backbone) for name in HEADLINE]:
                yield unit("small", backbone, method, seed, data="trec6", n=500, attacks=("pwws",), part="pwws")
    few: dict[str, Any] = {"n": min(most, 200), "attack": "pwws", "controls": True}
    ways = (Explained("lime", **few), Explained("integrated_gradients", **few))
    for method in [_small_arm(name, "cnn") for name in HEADLINE]:
        yield unit(
            "small", "cnn", method, 0, data="trec6", n=500, attacks=("pwws",), explained=ways, part="explained"
        )  # fmt: skip


def _small_arm(name: str, backbone: str, ending: str = "", **more: Any) -> Method:
    return arm(name, backbone, attack="pwws", ending=ending if name == "base" else f"-pwws{ending}", **more)


def _more_lstm() -> Iterator[Unit]:
    for seed in range(3, 10):
        for name in HEADLINE:
            yield unit("seeds", "lstm", arm(name, "lstm"), seed)
    for seed in (3, 4):
        for name in ABLATION:
            yield unit("seeds", "lstm", arm(name, "lstm"), seed)


def _more_minilm() -> Iterator[Unit]:
    for seed in (3, 4):
        for name in (*HEADLINE, *ABLATION):
            yield unit("seeds", "minilm", arm(name, "minilm"), seed)


def _textdefender() -> Iterator[Unit]:
    """The model without attacks in training is the same, so it has no training of its own."""
    for backbone in ("minilm", "cnn"):
        for seed in _looked_into(backbone):
            for name in HEADLINE:
                limits: dict[str, Any] = {} if name == "base" else {"preset": PRESET, "ending": "-limits"}
                yield unit("textdefender", backbone, arm(name, backbone, **limits), seed, preset=PRESET, part="limits")


def _transfer(attacks: tuple[str, ...], n: int) -> Iterator[Unit]:
    for backbone in BACKBONES:
        for name in ("base", "adv", "flat"):
            part, seed = " ".join(attacks), _looked_into(backbone)[0]
            yield unit("transfer", backbone, arm(name, backbone), seed, attacks=attacks, n=n, part=part)


def _looked_into(backbone: str) -> tuple[int, ...]:
    """Seeds whose models are explained, and attacked in more ways."""
    return (3, 4) if backbone == "minilm" else (0, 1, 2)


def _other(data: str, points: int | None, n: int) -> Iterator[Unit]:
    longer = {"max_tokens": _MAX_TOKENS[data]} if data in _MAX_TOKENS else {}
    more: dict[str, Any] = {} if points is None else {"points": points}
    for seed in range(3):
        for backbone in WORDS:
            for name in HEADLINE:
                method = arm(name, backbone, **more)
                yield unit(data, backbone, method, seed, data=data, n=n, settings=settings(backbone, **longer))


def _words_of_trec6() -> Iterator[Unit]:
    """What LIME and integrated gradients say of all texts that TextFooler changed."""
    ways = (Explained("lime", n=500), Explained("integrated_gradients", n=500))
    for seed in range(3):
        for backbone in reversed(WORDS):
            for name in HEADLINE:
                yield unit(
                    "trec6", backbone, arm(name, backbone), seed, data="trec6", n=500, attacks=("textfooler",),
                    explained=ways, part="words",
                )  # fmt: skip


def _of_points(unit: Unit, points: int) -> Unit:
    method = unit.method
    if method.parameters.get("points") != POINTS[str(unit.backbone)]:  # A stage that has its own number keeps it.
        return unit
    return dataclasses.replace(
        unit, method=Method(method.name, method.defence, {**method.parameters, "points": points})
    )


def shortened(unit: Unit, epochs: int | None) -> Unit:
    """The rounds of a unit that is trained for fewer epochs, for a quick look: at a third and two thirds of them."""
    if epochs is None or "start" not in unit.method.parameters:
        return unit
    third = max(1, epochs // 3)
    parameters = {**unit.method.parameters, "start": third, "every": third}
    return dataclasses.replace(unit, method=Method(unit.method.name, unit.method.defence, parameters))


_ATTACK_S = {
    "textfooler": 20 / 1821,
    "pwws": 9.5 / 1821,
    "bae": 0.02,
    "genetic": 0.05,
    "iga": 0.1,
    "pso": 0.1,
    "clare": 0.5,
}
"""Seconds a text of MiniLM in fp32 on an H200 that a dozen workers share. The first two are medians of the ledger's
cells; the others are guesses from their queries."""
_OF_WORDS = 0.36
"""The same for lstm and cnn, by the ledger's medians (7.5 and 2.6 s of 1,821 texts): their own passes are cheap, the
sentence encoder's stay."""
_STEP_S = {"minilm": 0.02, "lstm": 0.01, "cnn": 0.008}
"""Guesses: a training's seconds are not in the ledger. With them a unit of lstm takes the 75 to 100 s between cells."""
_EXPLAINED_S = {"integrated_gradients": 40.0, "lime": 60.0}
"""Seconds for 1,000 pairs of MiniLM; of integrated gradients on lstm and cnn the ledger has 20 to 45 s, and twice that
with controls. The others are guesses."""
_EXPLAINED_OF_WORDS = 0.75


def seconds(unit: Unit, texts: int) -> float:
    """An estimate for one of a dozen workers that share an H200."""
    backbone = str(unit.backbone)
    share, explained_share = (1.0, 1.0) if backbone == "minilm" else (_OF_WORDS, _EXPLAINED_OF_WORDS)
    parameters = unit.method.parameters
    epochs = unit.settings.epochs
    steps = epochs * texts / unit.settings.batch_size
    training = 0.0
    if "start" in parameters:
        points = texts if parameters["points"] == "none" else min(texts, int(parameters["points"]))
        start, every = int(parameters["start"]), int(parameters["every"])
        training = len(range(start, epochs, every)) * points * _ATTACK_S[parameters["attack"]] * share
        steps += (epochs - start) * points / unit.settings.batch_size
    if unit.part and unit.part not in ("limits", "pwws"):
        training, steps = 0.0, 0.0  # Trained in an earlier stage.
    attacked = sum(unit.n * _ATTACK_S[attack] * share for attack in unit.attacks) if not unit.explained else 0.0
    explained = sum(
        _EXPLAINED_S[each.method] * each.n / 1000 * (2 if each.controls else 1) * explained_share
        for each in unit.explained
    )
    return 3 + training + steps * _STEP_S[backbone] + attacked + explained
