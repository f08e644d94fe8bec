"""RSMI beside SAFER, AdvAug, FreeLB and InfoBERT on IMDB, AG News and QNLI: the tables in docs/results/rsmi.md.

    python benchmarks/rsmi.py --data PACK --out RUNS search --workers 8    settings of RSMI, on development data
    python benchmarks/rsmi.py --data PACK --out RUNS all --workers 15      train and attack: headline rows, ablations
    python benchmarks/rsmi.py --data PACK --out RUNS train --part 0/6      a sixth of the trainings; attack likewise
    python benchmarks/rsmi.py --out RUNS --write tables.md                 only write what is there, with figures

Two rows of a larger encoder, in folders of their own: all --backbone mpnet --learning-rate 5e-5 --attacks textfooler
--names standard "rsmi, average".

PACK is a folder with imdb, ag_news and qnli in it. `search` tries sizes of the noise on development data alone: the
best by the mean of clean accuracy and accuracy left by TextFooler is trained; without it, the paper's. A row is a
trained model and a way of asking it: one RSMI model gives the rows that average, that vote, that mask nothing, and
those of the ablations over k. A finished training and a finished attack are never made again, so the work can be cut
into pieces (`--minutes`); what matters most comes first.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.runs.folder import RunFolder
from isthmus.training.settings import TrainingSettings
from isthmus.verbs.sources import DataRequest
from proof.beside import Task, work_off
from proof.grid import Grid, Method, attack_run, parser
from proof.transfer import Way, transfer

ATTACKS = ("textfooler", "pwws", "bae")
UNMASKED = "rsmi, nothing masked"
FIXED = "randomness = the same for every query"
RESTARTS = 0
"""Restarts of an attack on a randomised model: none, as in the paper, since each is a whole search. One of the
ablations has more."""


@dataclass(frozen=True)
class Plan:
    """A data set: how models are trained on it and how many texts are attacked."""

    name: str
    n: int
    few: int
    """Texts attacked of a row whose every answer takes a dozen passes and more; they are the first of the `n`."""
    epochs: int
    max_tokens: int
    rsmi: Mapping[str, Any]
    """The paper's settings for BERT, with noise after three of MiniLM's six blocks."""
    batch: int = 128
    k1: int = 50
    """Draws of the second step while an attack asks; fewer where texts are long."""
    varied: bool = False
    """Whether models are trained for the ablations; otherwise only ways of asking are compared."""
    slower: Mapping[str, float] = field(default_factory=dict)
    """Defences that take a smaller step, by its share of the usual one."""


PLANS = (
    Plan("imdb", 100, 50, 3, 128, {"sigma": 0.3, "masked": 3}, batch=64, k1=10),
    Plan("ag_news", 500, 100, 1, 96, {"sigma": 0.2, "masked": 2}),
    Plan("qnli", 500, 100, 4, 96, {"sigma": 0.2, "masked": 2}, varied=True, slower={"infobert": 0.5}),
)
"""At the usual step one of three seeds of InfoBERT stayed at chance on QNLI."""


SEARCHED = (0.1, 0.2, 0.3)
"""Sizes of the noise that are tried; the paper's are 0.2 to 0.4."""

CLIMB = {"scale": "paper", "steps": 2, "step_size": 0.03, "init_magnitude": 0.03, "max_norm": 0.09}
"""FreeLB's steps for MiniLM, chosen on development data of SNLI and MNLI; the paper's lengths held it at chance there.
Two of them, as its authors took for QNLI."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a training, and how the trained model is asked."""

    name: str
    method: Method
    victim: Mapping[str, Any] = field(default_factory=dict)
    attacks: tuple[str, ...] = ATTACKS
    seeds: int = 3
    n: int | None = None
    """Texts attacked, where fewer than the plan's."""
    restarts: int = RESTARTS
    """Restarts of the attack."""

    @property
    def heavy(self) -> bool:
        """Whether an answer takes many passes."""
        return self.method.defence in ("rsmi", "safer")

    def texts(self, plan: Plan, n: int | None) -> int:
        """Texts attacked: as many as the command says or the plan has, or fewer where the row is content with fewer."""
        usual = plan.few if self.heavy else (n or plan.n)
        return min(self.n or usual, usual)

    @property
    def options(self) -> dict[str, Any]:
        """How the model is asked; one that does not draw takes no option of drawing."""
        return dict(self.victim) if self.method.defence == "rsmi" else {}


def candidates(plan: Plan) -> list[Method]:
    """What `search` tries."""
    return [Method(f"rsmi s{sigma:g}", "rsmi", {**plan.rsmi, "sigma": sigma}) for sigma in SEARCHED]


def chosen(plan: Plan, out: Path) -> Plan:
    """The plan with the settings that were best on development data; the paper's if none were tried."""
    scored = [
        (sum(judged(folder)) / 2, -place, method)
        for place, method in enumerate(candidates(plan))
        if (folder := method.folder(out / plan.name / "search", 0)).is_dir() and judged(folder)
    ]
    best = max(scored, key=lambda entry: entry[:2])[2] if scored else None
    return plan if best is None else dataclasses.replace(plan, rsmi=best.parameters)


def judged(folder: Path) -> tuple[float, float] | tuple[()]:
    """Accuracy on development data before and after TextFooler, as the model is deployed."""
    for file in RunFolder(folder).attack_files():
        if summary := file.header().get("summary"):
            return float(summary["sacc"]), float(summary["racc"])
    return ()


def rows(plan: Plan) -> list[Row]:
    """The headline rows. AdvAug attacks 1,000 training points, a tenth of the paper's: our sets are a fifth or less."""
    rsmi = Method("rsmi", "rsmi", plan.rsmi)
    steps = {"k1": plan.k1}
    return [
        Row("standard", Method("standard")),
        Row("freelb", Method("freelb", "freelb", CLIMB)),
        Row("infobert", Method("infobert", "infobert", {"preset": "paper", "adversary": "freelb", **CLIMB})),
        Row("safer", Method("safer", "safer")),
        Row("advaug", Method("advaug", "advaug", {"attack": "textfooler", "points": 1000})),
        Row(UNMASKED, rsmi, {**steps, "masking": "none"}),
        Row("rsmi, average", rsmi, steps),
        Row("rsmi, vote", rsmi, {**steps, "aggregate": "vote"}),
    ]


def ablations(plan: Plan) -> list[Row]:
    """One thing changed at a time, under TextFooler, one seed."""
    own = Method("rsmi", "rsmi", plan.rsmi)

    def trained(name: str, **changed: Any) -> Method:
        settings = {**plan.rsmi, **changed}
        return own if settings == plan.rsmi else Method(f"rsmi {name}", "rsmi", settings)

    models: list[tuple[str, Any, Method, dict[str, Any]]] = [
        *(("sigma", sigma, trained(f"sigma{sigma:g}", sigma=sigma), {}) for sigma in (0.1, 0.2, 0.3, 0.4)),
        *(("M", masked, trained(f"m{masked}", masked=masked), {}) for masked in (1, 2, 3, 4)),
        *(("layers", few, trained(f"layers{few.replace(',', '')}", layers=few), {}) for few in ("0", "0,1,2,3,4")),
    ]
    ways: list[tuple[str, Any, Method, dict[str, Any]]] = [
        ("two steps", "off", own, {"masking": "gradient", "k0": 5, "two_step": False}),
        ("two steps", "on", own, {}),
        ("randomness", "the same for every query", own, {"fixed": True}),
    ]
    random = [
        ("random masks, k", k, own, {"masking": "random", "k0": k, "two_step": False})  # beside "two steps = off"
        for k in (1, 5, 10, 50)
    ]
    table = [
        Row(f"{what} = {value}", method, {"k1": plan.k1, **victim}, ("textfooler",), 1)
        for what, value, method, victim in [*(models + random if plan.varied else ()), *ways]
    ]
    if plan.varied:
        table.append(Row("restarts = 2", own, {"k1": plan.k1}, ("textfooler",), 1, n=plan.few // 2, restarts=2))
    if plan.k1 < 50:
        table.append(Row("k1 = 50", own, {"k1": 50}, ("textfooler",), 1, n=20))
    return table


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("work", nargs="?", choices=("search", "train", "attack", "all"))
    options.add_argument("--data", type=Path, help="folder with imdb, ag_news and qnli")
    options.add_argument("--sets", nargs="+", default=[plan.name for plan in PLANS])
    options.add_argument("--backbone", default="minilm", help="another than minilm has folders of its own")
    options.add_argument("--learning-rate", type=float, default=2e-4)
    options.add_argument("--only", choices=("headline", "ablations"))
    options.add_argument("--names", nargs="+", help="only these rows")
    options.add_argument("--n", type=int, help="number of attacked texts")
    options.add_argument("--few", nargs="+", default=[], metavar="SET=N", help="the same for randomised models")
    options.add_argument("--late", nargs="*", default=["imdb"], help="sets whose seeds but the first come last")
    options.add_argument("--attacks", nargs="+", default=list(ATTACKS), choices=ATTACKS, help="only these")
    options.add_argument("--search-n", type=int, default=100, help="development texts attacked while searching")
    options.add_argument("--limit", type=int, help="maximum training texts, for a quick look")
    options.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    return options.parse_args()


def main() -> None:
    options = arguments()
    if options.write is not None:
        from isthmus.report.measure.figure import save
        from proof.rsmi_page import figures, page

        options.write.write_text(page(options.out, options.seeds), encoding="utf-8")
        for plot in figures(options.out, options.seeds):
            save(plot, options.write.with_name(plot.name))
        return
    few = {name: int(count) for name, count in (each.split("=") for each in options.few)}
    plans = [dataclasses.replace(plan, few=few.get(plan.name, plan.few)) for plan in PLANS if plan.name in options.sets]
    missing = [plan.name for plan in plans if not (options.data and (options.data / plan.name).is_dir())]
    if options.work is None:  # an option that takes several words would swallow it
        sys.exit("say what to do, before the options: search, train, attack, all")
    if missing:
        sys.exit(f"give --data, a folder with all it takes; it lacks {', '.join(missing)}")
    number, parts = map(int, options.part.split("/"))
    tasks = list(searching(plans, options) if options.work == "search" else proving(plans, options))
    work_off(tasks[number::parts], workers=options.workers, minutes=options.minutes)


def searching(plans: list[Plan], options: argparse.Namespace) -> Iterator[Task]:
    """A task for every candidate."""
    for plan in plans:
        for method in candidates(plan):
            yield Task(f"{plan.name} {method.name}", functools.partial(try_out, plan, method, options))


def proving(plans: list[Plan], options: argparse.Namespace) -> Iterator[Task]:
    """A task for every training that is asked for, and two for the attacks on every row; what matters most comes first.

    Trainings and attacks on plain models leave most of a GPU idle, so they come before those that fill it: beside
    those they would hardly move.
    """
    tasks: dict[str, tuple[float, Task]] = {}  # several rows may ask one model, and ask it in one way
    for plan in (chosen(plan, options.out) for plan in plans):
        for wanted in [options.only] if options.only else ["headline", "ablations"]:
            table = rows(plan) if wanted == "headline" else ablations(plan)
            table = [row for row in table if options.names is None or row.name in options.names]
            for row, seed in ((each, seed) for each in table for seed in range(min(options.seeds, each.seeds))):
                cells, model = grid(plan, row, options), f"{plan.name} {row.method.name} {seed}"
                late = _LAST if seed and plan.name in options.late else 0
                if options.work != "attack" and model not in tasks:
                    task = Task(model, functools.partial(train_one, cells, row, seed))
                    tasks[model] = training_stage(row) + late, task
                asked = tuple(attack for attack in row.attacks if attack in options.attacks)
                for attacks in (asked[:1], asked[1:]) if options.work != "train" else ():
                    name = attack_name(plan, row, seed, attacks)
                    if attacks and name not in tasks:
                        work = functools.partial(attack_one, cells, plan, row, seed, attacks, options)
                        stage = attack_stage(plan, row, seed, attacks) + late + seed / 10
                        tasks[name] = stage, Task(name, work, (model,))
        for seed in range(options.seeds) if options.work != "train" else ():
            (target,) = (row for row in rows(plan) if row.name == "rsmi, average")
            for source in (row for row in [*rows(plan), *ablations(plan)] if row.name in (UNMASKED, FIXED)):
                needed = attack_name(plan, source, seed, source.attacks[:1])
                if needed in tasks:
                    folder = source.method.folder(place(options.out, plan.name, options.backbone), seed)
                    both = Way(source.name, source.options), Way(target.name, target.options)
                    work = functools.partial(transfer, folder, source.attacks[0], *both, RESTARTS, options.precision)
                    tasks[f"transfer {needed}"] = tasks[needed][0], Task(f"transfer {needed}", work, (needed,))
    for _, task in sorted(tasks.values(), key=lambda entry: entry[0]):
        yield task


def attack_name(plan: Plan, row: Row, seed: int, attacks: tuple[str, ...]) -> str:
    """What a task of attacks is called: rows that ask one model in one way share it."""
    asked = sorted({**row.options, "restarts": row.restarts}.items())
    return f"{plan.name} {row.method.name} {seed} {asked} {' '.join(attacks)}"


_EFFORT = {"advaug": -0.5, "infobert": -0.4, "rsmi": -0.3, "freelb": -0.2, "safer": -0.1}
"""Long trainings begin first."""
_LAST = 20


def training_stage(row: Row) -> float:
    """When its turn comes: the smaller the sooner. Models for ablations alone come after the headline's attacks."""
    if row.attacks == ATTACKS:
        return _EFFORT.get(row.method.defence, 0.0)
    return 8.0 if row.method.name != "rsmi" else 0.0


def attack_stage(plan: Plan, row: Row, seed: int, attacks: tuple[str, ...]) -> float:
    """When its turn comes: the smaller the sooner."""
    first, variant = "textfooler" in attacks, row.name in (UNMASKED, "rsmi, vote")
    if not row.heavy:
        return 2 if first else 3
    if row.options.get("fixed"):
        return 4.5
    if len(row.attacks) == 1:  # an ablation: those that ask the headline model come sooner
        return 9 if row.method.name != "rsmi" else 6 if plan.varied else 9.5
    if first:
        return 4 if seed == 0 or not variant else 6.5
    return 10 if plan.name == "imdb" else 7 if variant else 5


def try_out(plan: Plan, method: Method, options: argparse.Namespace) -> None:
    """One candidate, on development data alone."""
    cells = grid(plan, Row(method.name, method), options)
    folder = dataclasses.replace(cells, out=cells.out / "search").train(method, 0).path
    victim = {"k1": min(plan.k1, 10)}
    how = {"victim": victim, "precision": options.precision, "restarts": RESTARTS, "search_draws": 0}
    attack_run(folder, "textfooler", n=options.search_n, split="dev", **how)


def grid(plan: Plan, row: Row, options: argparse.Namespace) -> Grid:
    """The trainings of one data set.

    RSMI has half as many epochs more, since noise and masks slow learning down; AdvAug has one more, which it attacks.
    """
    more = {"rsmi": -(-plan.epochs // 2), "advaug": 1}
    settings = TrainingSettings(
        epochs=plan.epochs + more.get(row.method.defence, 0),
        max_tokens=plan.max_tokens,
        batch_size=plan.batch,
        learning_rate=options.learning_rate * plan.slower.get(row.method.defence, 1.0),
        warmup=0.1,
        checkpoint_every=None,
    )
    data, out = DataRequest(str(options.data / plan.name)), place(options.out, plan.name, options.backbone)
    return Grid([row.method], row.seeds, data, options.backbone, settings, out, options.limit)


def place(out: Path, name: str, backbone: str = "minilm") -> Path:
    """Where the runs of a data set and a backbone lie."""
    return out / (name if backbone == "minilm" else f"{name}-{Path(backbone).name}")


def train_one(grid: Grid, row: Row, seed: int) -> None:
    grid.train(row.method, seed)


def attack_one(
    grid: Grid, plan: Plan, row: Row, seed: int, attacks: tuple[str, ...], options: argparse.Namespace
) -> None:
    """Some attacks on one row."""
    folder = row.method.folder(grid.out, seed)
    if not (folder / "model").is_dir():
        return
    n = row.texts(plan, options.n)
    for name in attacks:
        how = {"victim": row.options, "precision": options.precision, "restarts": row.restarts, "search_draws": 0}
        attack_run(folder, name, n=n, split="test", **how)


if __name__ == "__main__":
    main()
