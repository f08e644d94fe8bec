"""The comparison as a table on the terminal, as a page of the documentation, and example by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agreement.attacks import ATTACKS, stand_ins
from agreement.compare import Comparison
from isthmus.core.statistics import Interval

COLUMNS = (
    "attack",
    "n",
    "seeds",
    "same outcome",
    "same text",
    "success: isthmus",
    "TextAttack",
    "difference",
    "queries: isthmus",
    "TextAttack",
    "ratio",
    "rows: ratio",
    "holds",
    "given to both",
)


def show(title: str, found: Sequence[Comparison], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if number in (0, len(COLUMNS) - 1) else "right")
    for one in found:
        table.add_row(*cells(one))
    console.print(table)
    for one in found:
        broken = [promise for promise, holds in one.verdict(ATTACKS[one.attack].random).items() if not holds]
        if broken and ATTACKS[one.attack].required:
            console.print(f"  {one.attack}: not so: {', '.join(broken)}")
        if one.errors:
            console.print(f"  {one.attack}: {one.errors} examples of isthmus ended in an error or ran out of time")


def cells(one: Comparison) -> tuple[str, ...]:
    attack = ATTACKS[one.attack]
    verdict = one.verdict(attack.random)
    holds = "yes" if all(verdict.values()) else f"no ({', '.join(key for key, ok in verdict.items() if not ok)})"
    return (
        one.attack,
        str(one.n),
        str(one.seeds),
        f"{one.same_outcome}/{one.attacked} = {_percent(one.agreement)}",
        _texts(one),
        _percent(one.ours),
        _percent(one.theirs),
        f"{100 * one.difference.estimate:+.1f} ({100 * one.difference.low:+.1f}, {100 * one.difference.high:+.1f})",
        f"{one.our_queries:.1f}",
        f"{one.their_queries:.1f}",
        f"{one.query_ratio:.3f}",
        f"{one.row_ratio:.3f}",
        holds if attack.required else f"not promised: {holds}",
        stand_ins(attack),
    )


def _texts(one: Comparison) -> str:
    exact, loose = (f"{count / max(1, one.attacked):.1%}" for count in (one.same_text, one.same_letters))
    return exact if exact == loose else f"{exact}, {loose} in lower case"


def _percent(interval: Interval) -> str:
    return f"{interval.estimate:.1%} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


INTRODUCTION = """# Agreement with TextAttack

The same victims, the same first test texts, the same lexical resources and the same sentence encoder on both sides:
TextAttack 0.3.11 as it is, and isthmus with `semantics="textattack"`. Measured with `benchmarks/parity.py`, in fp32,
against MiniLM classifiers that were fine-tuned on each data set.

- *Same outcome*: of the examples that either side attacked (misclassified ones are skipped by both), those on which
  both succeeded or both failed; Wilson's 95 % interval. For attacks that draw at random this is for information.
- *Success*: succeeded / attacked. With one seed the interval is Wilson's over examples; with several it is Student's
  over seeds, and the difference has Welch's interval.
- *Queries*: average per attacked example, counted as TextAttack does, hits of its cache included. *Rows* are the texts
  really forwarded to the model.
- *Holds*: for the deterministic attacks outcome agrees for 95 %, success within 2 points, queries within 5 %; for the
  random ones 0 lies in the interval of the difference.
- *Given to both*: stand-ins for resources that are not available. Word vectors: GloVe 100d, counter-fitted, not the
  published ones. The Universal Sentence Encoder is replaced by MiniLM at the recipe's thresholds, metric and window.
"""


def write(path: Path, found: Mapping[str, Sequence[Comparison]], remarks: str) -> None:
    """The page, with one table per data set; text below the line `## Where they differ` of the old page is kept."""
    parts = [INTRODUCTION]
    for name, comparisons in found.items():
        parts.append(f"## {name}\n")
        parts.append("| " + " | ".join(COLUMNS) + " |")
        parts.append("|" + "---|" * len(COLUMNS))
        parts += ["| " + " | ".join(cells(one)) + " |" for one in comparisons]
        parts.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n" + remarks, encoding="utf-8")


REMARKS = "## Where they differ"


def remarks_of(path: Path) -> str:
    """What a person wrote below the tables."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[text.index(REMARKS) :] if REMARKS in text else f"{REMARKS}\n"


def show_disagreements(one: Comparison, console: Console) -> None:
    """Every example that ended differently, for finding out why; other texts only where nothing is drawn."""
    for ours, theirs in one.differing:
        if ATTACKS[one.attack].random and ours["outcome"] == theirs["outcome"]:
            continue
        console.rule(f"{one.attack}: isthmus {ours['outcome']}, TextAttack {theirs['outcome']}", align="left")
        for name, row in (("original", {"perturbed": ours["text"]}), ("isthmus", ours), ("TextAttack", theirs)):
            queries = f" ({row['queries']} queries)" if "queries" in row else ""
            console.print(f"{name}{queries}: {row['perturbed']}", markup=False, highlight=False)
        if ours.get("reason"):
            console.print(f"reason: {ours['reason']}", markup=False)
