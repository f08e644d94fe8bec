"""docs/results/rsmi.md from the runs: the tables alone, which the page's own text surrounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.attacks.result import AttackResult
from isthmus.core.statistics import Interval, bootstrap_mean, wilson
from isthmus.measures.base import Plot, Series
from isthmus.summaries.attack import Summary, summarise, together
from proof import rsmi_paper as paper
from proof.tables import (
    Held,
    held_by,
    lost_share,
    markdown,
    mcnemar_of,
    over_pairs,
    over_seeds,
    paired_change,
    paired_ratio,
    spread,
    with_bounds,
)
from proof.transfer import attacked, transferred

if TYPE_CHECKING:
    from rsmi import Plan, Row

UNION = "all three"
HOW = (
    "With several seeds: mean ± half the 95 % interval over seeds (Student's t). With one: the 95 % interval over its "
    "texts. Differences and ratios are on the same texts, seeds averaged first, with bootstrap intervals over texts. "
    "An attack on a randomised model is one search (an ablation restarts twice), and has succeeded where most of 20 "
    "fresh draws say so; *expected* is the accuracy under attack over those draws. The paper's figures are for "
    "BERT-base (QNLI and ablations: RoBERTa-base), best of three runs."
)
BASELINES = ("standard", "freelb", "infobert", "safer", "advaug")
BASELINES_THAT_DRAW = ("safer",)
OURS, VOTE = "rsmi, average", "rsmi, vote"


@dataclass(frozen=True)
class Seed:
    """One model of a row: what each attack, and all together, made of it."""

    number: int
    figures: Mapping[str, Summary]
    held: Mapping[str, Held]
    """Which texts it still got right."""

    @classmethod
    def of(cls, number: int, rows: Mapping[str, Sequence[AttackResult]]) -> Seed:
        """From the rows of each attack."""
        figures = {attack: summarise(own) for attack, own in rows.items()}
        return cls(number, figures, {attack: held_by(own) for attack, own in rows.items()})


def seeds_of(place: Path, row: Row, seeds: int) -> list[Seed]:
    """The models of a row that were attacked in its way."""
    found = []
    for number in range(min(seeds, row.seeds)):
        rows: dict[str, Sequence[AttackResult]] = {}
        folder = row.method.folder(place, number)
        for attack in row.attacks:
            if file := attacked(folder, attack, row.options, row.restarts):
                rows[attack] = file.results()
        if len(row.attacks) > 1 and rows.keys() >= set(row.attacks):
            rows[UNION] = together([rows[name] for name in row.attacks])
        if rows:
            found.append(Seed.of(number, rows))
    return found


def page(out: Path, seeds: int) -> str:
    """Every table of every data set and backbone."""
    from rsmi import PLANS, chosen

    parts = ["# RSMI, SAFER and AdvAug", HOW]
    for plan in (chosen(plan, out) for plan in PLANS):
        for place in sorted(path for path in (out / plan.name, *out.glob(f"{plan.name}-*")) if path.is_dir()):
            parts += [f"## {place.name}", *section(plan, place, seeds)]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(plan: Plan, place: Path, seeds: int) -> Iterator[str]:
    """The tables of one data set."""
    from rsmi import ablations, rows

    found = {row.name: seeds_of(place, row, seeds) for row in rows(plan)}
    found = {name: models for name, models in found.items() if models}
    changed = {row.name: seeds_of(place, row, 1) for row in ablations(plan)}
    yield searched(plan, place)
    yield headline(plan.name, found)
    yield success(plan.name, found)
    yield compared(found)
    yield ratio(plan.name, found)
    yield randomness(place, found, changed)
    yield carried_over(place, found, seeds)
    yield stability(plan.name, found)
    yield ablated(changed, paper.ablations(int(plan.rsmi["masked"])))


def searched(plan: Plan, place: Path) -> str:
    """What was tried on development data."""
    from rsmi import candidates, judged

    tried = [(method, judged(method.folder(place / "search", 0))) for method in candidates(plan)]
    lines = [
        [
            *(f"{method.parameters[name]:g}" for name in ("sigma", "masked")),
            *(f"{100 * share:.1f}" for share in shares),
            "chosen" if method.parameters == plan.rsmi else "",
        ]
        for method, shares in tried
        if shares
    ]
    return table("On development data", ["sigma", "M", "accuracy", "accuracy under TextFooler", ""], lines)


def headline(name: str, found: dict[str, list[Seed]]) -> str:
    """Accuracy, and what each attack and all together leave of it."""
    lines = []
    for row, models in found.items():
        cells = [rate(models, attack, "racc") for attack in (*attacks(), UNION)]
        lines.append([row, size(models), rate(models, attacks()[0], "sacc"), *cells, published(name, row)])
    head = ["training", "seeds x n", "accuracy", *attacks(), UNION, "paper: accuracy; under each"]
    return table("Accuracy and robust accuracy, %", head, lines)


def success(name: str, found: dict[str, list[Seed]]) -> str:
    """How often each attack succeeds, and what that takes."""
    lines = []
    for row, models in found.items():
        theirs = paper.ROWS.get(name, {}).get(row)
        queries = "/".join(map(str, theirs.queries)) if theirs and theirs.queries else "-"
        shares = [rate(models, attack, "asr") for attack in (*attacks(), UNION)]
        lines.append([row, *shares, *(rate(models, attack, "avg_queries") for attack in attacks()), queries])
    head = ["training", *attacks(), UNION, *(f"queries of {attack}" for attack in attacks()), "paper: queries"]
    return table("Success of the attacks, %, and mean queries", head, lines)


def compared(found: dict[str, list[Seed]]) -> str:
    """Differences on the same texts: every row with standard training, RSMI with the best baseline."""
    pairs = [(row, "standard") for row in found if row != "standard"]
    best = best_baseline(found)
    pairs += [(row, best) for row in found if row.startswith("rsmi") and best not in (None, "standard")]
    lines = []
    for ours, theirs in pairs:
        cells = [change(found[ours], found.get(str(theirs), []), attack) for attack in (*attacks(), UNION)]
        tests = [mcnemar_of(*each) for each in paired(found[ours], found.get(str(theirs), []), attacks()[0])]
        if any(cells):
            lines.append([f"{ours} - {theirs}", *(cell or "-" for cell in cells), "; ".join(tests) or "-"])
    head = ["compared", *attacks(), UNION, "McNemar's p, textfooler, each seed"]
    return table("Robust accuracy, difference in points on the same texts", head, lines)


def ratio(name: str, found: dict[str, list[Seed]]) -> str:
    """RSMI over the best baseline under TextFooler, and over the best of those that draw nothing."""
    lines = []
    for best in dict.fromkeys((best_baseline(found), best_baseline(found, BASELINES_THAT_DRAW))):
        for ours in (OURS, VOTE) if best else ():
            own = paired_ratio(paired(found.get(ours, []), found[str(best)], attacks()[0]))
            if own:
                theirs = paper.RATIOS.get(name, "-") if ours == OURS else "-"
                lines.append([f"{ours} / {best}", own, theirs])
    return table("RSMI over the best baseline", ["accuracy under TextFooler", "ours", "paper, best baseline"], lines)


def randomness(place: Path, found: dict[str, list[Seed]], changed: dict[str, list[Seed]]) -> str:
    """Whether RSMI's gain survives where every query gets the same draws, and whether what fooled these holds."""
    from rsmi import FIXED

    fixed = changed.get(FIXED, [])
    if not fixed or not {"standard", OURS} <= found.keys():
        return ""
    attack = attacks()[0]
    standard, ours = ([model for model in found[row] if model.number == 0] for row in ("standard", OURS))
    sides = [models[0].held.get(attack, {}) if models else {} for models in (ours, fixed, standard)]
    held_by_ours, held_fixed, held_by_standard = sides
    lost = lost_share(held_by_ours, held_fixed, held_by_standard) if all(sides) else "-"
    shares = transferred(place / "rsmi-seed0", FIXED)
    right = sum(share > 0.5 for share in shares.values())
    held = f"{with_bounds(wilson(right, len(shares)))} of {len(shares)}" if shares else ""
    lines = [
        [row, rate(models, attack, "racc"), expected(models, attack), change(models, base, attack) or "-", *more]
        for row, models, base, more in (
            ("standard", standard, [], ("", "")),
            ("rsmi, every query with the same draws", fixed, standard, ("", held)),
            (OURS, ours, standard, (lost, "")),
        )
    ]
    head = ["seed 0, TextFooler", "robust accuracy", "expected over fresh draws", "gain over standard, points"]
    head += ["share of the gain lost with fixed draws, %", "of what fooled it, right on fresh draws"]
    used = len(head) if shares else len(head) - 1
    return table("How much is randomness", head[:used], [line[:used] for line in lines])


def carried_over(place: Path, found: dict[str, list[Seed]], seeds: int) -> str:
    """Whether masks hold the texts, or only blind the search: texts made without masks, put to the model with them."""
    from rsmi import UNMASKED

    attack, lines = attacks()[0], []
    direct = {model.number: model.held.get(attack, {}) for model in found.get(OURS, [])}
    unmasked = {model.number: model.held.get(attack, {}) for model in found.get(UNMASKED, [])}
    for seed in range(seeds):
        shares = transferred(place / f"rsmi-seed{seed}", UNMASKED)
        if not shares or not direct.get(seed) or not unmasked.get(seed):
            continue
        ids = sorted(direct[seed].keys() & unmasked[seed].keys())
        right = sum(share > 0.5 for share in shares.values())
        both = sum(direct[seed][key] and shares.get(key, 1.0) > 0.5 for key in ids)
        lines.append(
            [
                str(seed),
                with_bounds(wilson(sum(unmasked[seed][key] for key in ids), len(ids))),
                f"{with_bounds(wilson(right, len(shares)))} of {len(shares)}",
                with_bounds(wilson(sum(direct[seed][key] for key in ids), len(ids))),
                with_bounds(wilson(both, len(ids))),
            ]
        )
    head = [
        "seed",
        "accuracy without masks",
        "of what fooled that, correct with masks",
        "accuracy with masks",
        "under both attacks",
    ]
    return table("Do masks protect the texts, or mislead the search? TextFooler, %", head, lines)


def stability(name: str, found: dict[str, list[Seed]]) -> str:
    """Robust accuracy of every seed."""
    lines = []
    for row, models in found.items():
        shares = [summary.racc.estimate for model in models if (summary := model.figures.get(attacks()[0]))]
        if len(shares) > 1:
            each = ", ".join(f"{100 * share:.1f}" for share in shares)
            lines.append([row, each, spread(shares), paper.STABILITY.get(name, {}).get(row, "-")])
    return table("Stability", ["training", "accuracy under TextFooler, each seed", "mean (sd)", "paper (BERT)"], lines)


def ablated(changed: dict[str, list[Seed]], theirs: dict[str, str]) -> str:
    """One thing changed at a time."""
    lines = [
        [
            row,
            size(models),
            *(rate(models, attacks()[0], key) for key in ("sacc", "racc")),
            expected(models, attacks()[0]),
            *(rate(models, attacks()[0], key) for key in ("asr", "avg_queries")),
            theirs.get(row, "-"),
        ]
        for row, models in changed.items()
        if models
    ]
    head = ["changed", "seeds x n", "accuracy", "robust accuracy", "expected", "success", "queries", "paper (RoBERTa)"]
    return table("Ablations of RSMI under TextFooler, %", head, lines)


# ---------------------------------------------------------------------- figures


def figures(out: Path, seeds: int) -> Iterator[Plot]:
    """What TextFooler leaves of every row, and how its success grows with the draws it may average over."""
    from rsmi import PLANS, ablations, chosen, rows

    plans = [chosen(plan, out) for plan in PLANS]
    names = [row.name for row in rows(plans[0])]
    series, sweeps = [], []
    for plan in plans:
        found = {row.name: seeds_of(out / plan.name, row, seeds) for row in rows(plan)}
        left = [(names.index(row), pooled(models)) for row, models in found.items()]
        known = [(float(at), share) for at, share in left if share]
        if known:
            series.append(_series(plan.name, known))
        random = {row.name: seeds_of(out / plan.name, row, 1) for row in ablations(plan) if "random masks" in row.name}
        known = [
            (float(at), summary.asr)
            for at, models in enumerate(random.values())
            for model in models
            if (summary := model.figures.get(attacks()[0]))
        ]
        if known:
            theirs = [value / 100 for value in paper.random_masks(int(plan.rsmi["masked"]))]
            sweeps += [
                _series(f"{plan.name}, MiniLM", known),
                Series("paper, RoBERTa", tuple(map(float, range(len(theirs)))), tuple(theirs), reference=True),
            ]
    if series:
        title = "Accuracy accuracy under TextFooler"
        yield Plot("rsmi_textfooler", title, "", "right", tuple(series), "bars", percent="y", ticks=tuple(names))
    if sweeps:
        ticks = tuple(f"k = {k}" for k in (1, 5, 10, 50))
        title = "Random masks: the more draws an attack sees averaged, the more often it succeeds"
        yield Plot("rsmi_draws", title, "draws averaged", "success", tuple(sweeps), percent="y", ticks=ticks)


def pooled(models: Sequence[Seed]) -> Interval | None:
    """Share of the texts that TextFooler left; several seeds are averaged for every text first."""
    held = [own for model in models if (own := model.held.get(attacks()[0]))]
    if len(held) > 1:
        return bootstrap_mean(over_pairs(zip(held, held, strict=True))[:, 0])
    return wilson(sum(held[0].values()), len(held[0])) if held else None


def _series(name: str, points: Sequence[tuple[float, Interval]]) -> Series:
    at, shares = zip(*points, strict=True)
    bounds = tuple((share.low, share.high) for share in shares)
    return Series(name, tuple(at), tuple(share.estimate for share in shares), y_bounds=bounds)


# ---------------------------------------------------------------------- cells


def attacks() -> tuple[str, ...]:
    """The attacks of a headline row; the first is that of the ablations."""
    from rsmi import ATTACKS

    return ATTACKS


def table(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table under its title; nothing where it has no line."""
    return f"### {title}\n\n{markdown(head, lines)}" if lines else ""


def rate(models: Sequence[Seed], attack: str, key: str) -> str:
    """One figure of a row: with its own interval where there is one seed, with that over seeds where there are more."""
    found: list[Interval] = [getattr(summary, key) for model in models if (summary := model.figures.get(attack))]
    scale, digits = (1.0, 0) if key == "avg_queries" else (100.0, 1)
    if len(found) == 1:
        return with_bounds(found[0], scale, digits)
    return over_seeds([interval.estimate for interval in found], scale, digits)


def expected(models: Sequence[Seed], attack: str) -> str:
    """Accuracy to be expected under attack, over fresh draws."""
    found = [summary.fresh for model in models if (summary := model.figures.get(attack)) and summary.fresh]
    return with_bounds(found[0].expected_racc) if found else "-"


def size(models: Sequence[Seed]) -> str:
    """Seeds and texts of each."""
    texts = sorted({summary.n for model in models for summary in model.figures.values()})
    return f"{len(models)} x {'/'.join(map(str, texts))}"


def published(name: str, row: str) -> str:
    """The paper's cell."""
    theirs = paper.ROWS.get(name, {}).get(row)
    if theirs is None:
        return "-"
    return f"{theirs.accuracy}; " + "/".join("-" if value is None else str(value) for value in theirs.left)


def best_baseline(found: dict[str, list[Seed]], without: Sequence[str] = ()) -> str | None:
    """The baseline that TextFooler leaves most of."""

    def left(row: str) -> float:
        shares = [summary.racc.estimate for model in found[row] if (summary := model.figures.get(attacks()[0]))]
        return sum(shares) / len(shares) if shares else -1.0

    return max((row for row in BASELINES if row in found and row not in without), key=left, default=None)


def paired(ours: Sequence[Seed], theirs: Sequence[Seed], attack: str) -> list[tuple[Held, Held]]:
    """What both held, seed by seed."""
    other = {model.number: model.held.get(attack, {}) for model in theirs}
    pairs = [(model.held.get(attack, {}), other.get(model.number, {})) for model in ours]
    return [pair for pair in pairs if all(pair)]


def change(ours: Sequence[Seed], theirs: Sequence[Seed], attack: str) -> str | None:
    """Difference in points with its interval."""
    return paired_change(paired(ours, theirs, attack))
