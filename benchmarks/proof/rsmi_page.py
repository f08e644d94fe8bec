"""docs/results/rsmi.md from the runs: the tables alone, which the page's own text surrounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.runs.summary import summarise, together
from proof.tables import held, markdown, over_seeds, paired_change

PAPER = {
    "imdb": {
        "standard": "90.6; 5.9/0.6/27.3",
        "freelb": "92.9; 10.5/14.2/45.3",
        "infobert": "92.9; 26.4/26.8/50.0",
        "safer": "91.8; 23.8/30.9/38.2",
        "advaug": "92.6; 32.0/36.6/52.1",
        "rsmi, nothing masked": "91.0; 34.9/57.0/58.4",
        "rsmi, average": "92.2; 56.4/58.7/80.2",
        "rsmi, vote": "91.7; 77.2/77.8/-",
    },
    "ag_news": {
        "standard": "93.9; 16.8/34.0/81.0",
        "freelb": "95.0; 24.4/48.2/84.1",
        "infobert": "94.8; 19.9/40.9/84.9",
        "safer": "93.7; 46.3/64.0/80.0",
        "advaug": "93.9; 54.9/66.0/80.1",
        "rsmi, nothing masked": "92.6; 60.4/75.3/77.9",
        "rsmi, average": "92.7; 63.2/76.1/86.1",
        "rsmi, vote": "92.9; 85.4/87.2/-",
    },
    "qnli": {
        "standard": "91.9; 19.8/34.0/51.2",
        "freelb": "92.1; 27.3/37.7/55.7",
        "infobert": "91.6; 23.0/36.5/53.8",
        "safer": "90.8; 33.8/45.5/49.7",
        "rsmi, nothing masked": "91.5; 34.1/46.8/50.5",
        "rsmi, average": "91.8; 49.0/60.1/60.6",
        "rsmi, vote": "91.9; 68.0/76.4/-",
    },
}
"""Accuracy; accuracy left by TextFooler / PWWS / BAE. BERT-base, QNLI RoBERTa-base."""


def files(folder: Path, victim: Mapping[str, Any]) -> dict[str, AttackFile]:
    """The finished attacks on one model that was asked in one way."""
    found = {}
    for file in RunFolder(folder).attack_files():
        header = file.header()
        if header.get("summary") and dict(header["settings"].get("victim") or {}) == dict(victim):
            found[header["attack"]] = file
    return found


def page(out: Path, seeds: int) -> str:
    """Every table of every data set."""
    from rsmi import PLANS, ablations, chosen, rows

    parts = ["# RSMI, SAFER and AdvAug"]
    for plan in (chosen(plan, out) for plan in PLANS):
        place = out / plan.name
        if place.is_dir():
            parts += [f"## {plan.name}", headline(place, rows(plan), seeds), against_standard(place, rows(plan), seeds)]
            parts.append(ablated(place, ablations(plan)))
    return "\n\n".join(part for part in parts if part) + "\n"


def seen(place: Path, row: Any, seeds: int) -> list[dict[str, AttackFile]]:
    """The attacks on every seed of a row."""
    victim = row.victim if row.method.defence == "rsmi" else {}
    folders = [row.method.folder(place, seed) for seed in range(min(seeds, row.seeds))]
    return [found for folder in folders if folder.is_dir() and (found := files(folder, victim))]


def headline(place: Path, table: Sequence[Any], seeds: int) -> str:
    """Accuracy, what each attack and all together leave of it, and queries."""
    lines = []
    for row in table:
        runs = seen(place, row, seeds)
        if not runs:
            continue
        summaries = {name: [run[name].header()["summary"] for run in runs if name in run] for name in row.attacks}
        whole = [summarise(together([file.rows() for file in run.values()])) for run in runs if len(run) > 1]
        first = next(iter(summaries.values()))
        lines.append(
            [
                row.name,
                f"{len(runs)} x {first[0]['n'] if first else '-'}",
                over_seeds([each["sacc"] for each in first]),
                *(over_seeds([each["racc"] for each in of]) for of in summaries.values()),
                over_seeds([each.racc.estimate for each in whole]),
                over_seeds([each["avg_queries"] for each in summaries["textfooler"]], 1, 0),
                PAPER.get(place.name, {}).get(row.name, "-"),
            ]
        )
    head = ["training", "seeds x n", "accuracy", "TextFooler", "PWWS", "BAE", "all three", "queries of TextFooler"]
    return markdown([*head, "paper: accuracy; TextFooler/PWWS/BAE"], lines) if lines else ""


def against_standard(place: Path, table: Sequence[Any], seeds: int) -> str:
    """Differences to standard training on the same texts."""
    standard = seen(place, table[0], seeds)
    lines = []
    for row in table[1:]:
        pairs = zip(seen(place, row, seeds), standard, strict=False)
        change = paired_change(
            (held(own["textfooler"]), held(base["textfooler"]))
            for own, base in pairs
            if "textfooler" in own and "textfooler" in base
        )
        if change is not None:
            lines.append([row.name, change])
    return markdown(["compared with standard", "TextFooler, difference in points"], lines) if lines else ""


def ablated(place: Path, table: Sequence[Any]) -> str:
    """One thing changed at a time."""
    lines = []
    for row in table:
        for run in seen(place, row, 1):
            if "textfooler" in run:
                summary = run["textfooler"].header()["summary"]
                cells = [
                    f"{100 * summary[key]:.1f}" if summary[key] is not None else "-" for key in ("sacc", "racc", "asr")
                ]
                low, high = summary["intervals"]["racc"]
                cells[1] += f" ({100 * low:.1f}-{100 * high:.1f})"
                lines.append([row.name, str(summary["n"]), *cells])
    return markdown(["changed", "n", "accuracy", "robust accuracy", "success"], lines) if lines else ""
