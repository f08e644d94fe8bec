"""docs/results/vub.md from the runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.files import read_json
from isthmus.runs.folder import RunFolder
from proof.grid import Method
from proof.tables import markdown, rank_sum, spread

PAPER = {
    "standard": ("93.0", "54.3", "100"),
    "vib 0.1": ("89.4 (0.9)", "90.0 (8.0)", "99.1 (0.9)"),
    "vib 0.01": ("90.8 (0.5)", "41.0 (4.8)", "62.9 (14.3)"),
    "vib 0.001": ("91.0 (1.0)", "35.1 (4.4)", "41.6 (6.6)"),
    "vub 0.1": ("89.2 (2.0)", "99.2 (0.5)", "100 (0)"),
    "vub 0.01": ("92.6 (0.8)", "30.8 (2.0)", "50.0 (4.8)"),
    "vub 0.001": ("93.2 (0.5)", "27.5 (2.0)", "28.4 (1.3)"),
}
"""BERT on IMDB: accuracy, success of DeepWordBug and of PWWS, against heads left in training mode."""


def clean(folder: Path) -> dict[str, dict[str, float]]:
    """The clean figures of a run by way; empty where it was not scored."""
    path = folder / "clean.json"
    return read_json(path) if path.is_file() else {}


def attacks(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(attack, way, summary) of everything a run was attacked with."""
    for file in RunFolder(folder).attack_files():
        header = file.header()
        victim = header["settings"].get("victim") or {}
        way = "average" if int(victim.get("draws", 1)) > 1 else victim.get("latent", "mean")
        if header.get("summary"):
            yield header["attack"], way, header["summary"]


def page(out: Path, methods: Sequence[Method], seeds: int) -> str:
    """The tables of every data set under `out`."""
    parts = []
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        parts += section(folder, methods, seeds)
    theirs = [[name, *cells] for name, cells in PAPER.items()]
    head = ["head (paper: BERT, IMDB, heads left in training mode)", "accuracy", "DeepWordBug success", "PWWS success"]
    parts += [markdown(head, theirs), ""]
    return "\n".join(parts)


def section(out: Path, methods: Sequence[Method], seeds: int) -> list[str]:
    """One data set."""
    found = {
        method.name: [
            (clean(method.folder(out, seed)), list(attacks(method.folder(out, seed))))
            for seed in range(seeds)
            if clean(method.folder(out, seed))
        ]
        for method in methods
    }
    first = next((runs[0][0]["mean"] for runs in found.values() if runs), {})
    return [
        f"## {out.name}",
        "",
        f"Test split, n = {first.get('n', 0):,}; mean (standard deviation) over {max(map(len, found.values()))} seeds.",
        "",
        markdown(
            ["head", "seen by", "accuracy", "cross-entropy", "calibration error"],
            [row for name, runs in found.items() for row in clean_rows(name, runs)],
        ),
        "",
        markdown(
            ["head", "seen by", "seeds", "DeepWordBug success", "PWWS success", "DeepWordBug queries", "PWWS queries"],
            [row for name, runs in found.items() for row in attack_rows(name, runs)],
        ),
        "",
        f"Attacks on {attacked(found)} test texts.",
        "",
        markdown(["compared", "figure", "p (rank sum)"], list(tests(found))),
        "",
    ]


def attacked(found: dict[str, list[Any]]) -> str:
    """How many texts were attacked."""
    sizes = {s["n"] for runs in found.values() for _, seen in runs for _, _, s in seen}
    return " or ".join(map(str, sorted(sizes))) or "no"


def clean_rows(name: str, runs: list[Any]) -> Iterator[list[str]]:
    """A row for each way."""
    for way in runs[0][0] if runs else ():
        values = [run[0][way] for run in runs]
        yield [
            name,
            way,
            spread([value["accuracy"] for value in values]),
            spread([value["cross_entropy"] for value in values], 1, 3),
            spread([value["ece"] for value in values], 1, 3),
        ]


def attack_rows(name: str, runs: list[Any]) -> Iterator[list[str]]:
    """A row for each way that was attacked."""
    for way in ("mean", "sample", "average"):
        by_attack = {
            attack: [s for _, seen in runs for a, w, s in seen if (a, w) == (attack, way)]
            for attack in ("deepwordbug", "pwws")
        }
        if not any(by_attack.values()):
            continue
        seeds = [str(len(summaries)) for summaries in by_attack.values()]
        yield [
            name,
            way,
            seeds[0] if len(set(seeds)) == 1 else ", ".join(seeds),
            *(spread([s["asr"] for s in summaries]) for summaries in by_attack.values()),
            *(spread([s["avg_queries"] for s in summaries], 1, 0) for summaries in by_attack.values()),
        ]


def tests(found: dict[str, list[Any]]) -> Iterator[list[str]]:
    """VUB against VIB at every beta, over seeds."""
    for name, runs in found.items():
        other = found.get(name.replace("vub", "vib"), [])
        if not name.startswith("vub") or len(runs) < 2 or len(other) < 2:
            continue
        for figure in ("accuracy", "ece"):
            ours, theirs = ([run[0]["mean"][figure] for run in side] for side in (runs, other))
            yield [f"{name} and {name.replace('vub', 'vib')}", f"{figure}, mean code", f"{rank_sum(ours, theirs):.3f}"]
        for attack in ("deepwordbug", "pwws"):
            for way in ("mean", "sample", "average"):
                ours, theirs = (
                    [s["asr"] for _, seen in side for a, w, s in seen if (a, w) == (attack, way)]
                    for side in (runs, other)
                )
                if len(ours) > 1 and len(theirs) > 1:
                    title = f"{name} and {name.replace('vub', 'vib')}"
                    yield [title, f"success of {attack}, {way}", f"{rank_sum(ours, theirs):.3f}"]
