"""Do readers still give an attacked text its label? Sheets for blind readers, and their answers scored.

    python benchmarks/readings.py sheets RUN... --data SST2 --preset meaning --out FOLDER
    python benchmarks/readings.py keep FOLDER --as meaning
    python benchmarks/readings.py limits RUN...
    python benchmarks/readings.py write                     (or `check`: exit code 1 where the page differs)

`sheets` takes the successes under a preset from the attack files of runs, evenly over the attacks and no text twice,
and mixes unchanged texts of the same split among them as controls. A sheet has an id and a text a line; what a line is
stands in `key.jsonl`, which no reader sees. A reader writes `answers_1.tsv`: id, tab, one of the labels or `unclear`.
`keep` joins key and answers into `results/readings/NAME.jsonl`; `limits` keeps the outcome of every text under every
preset, a letter each; `write` fills the tables of docs/results/meaning.md from both.

A label is kept if the reader gives the text the label of the original; `unclear` does not keep it. Controls tell how
often the readers agree with the data on texts that nobody changed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import DataError, IsthmusError
from isthmus.core.files import write_atomic
from isthmus.core.statistics import wilson
from isthmus.data import load_data
from isthmus.runs.folder import RunFolder

REPOSITORY = Path(__file__).resolve().parents[1]
UNCLEAR = "unclear"
NO_LIMITS = "none"
ORDER = (NO_LIMITS, "textdefender-2021", "meaning", "strict")
_LETTERS = {"failed": "R", "succeeded": "F", "skipped": "W"}
"""Robust, fooled, wrong already; anything else (an error, a time-out) is E."""
_BLOCK = re.compile(r"(<!-- readings: (?P<name>\w+) -->\n)(?P<table>.*?)(<!-- end -->)", re.DOTALL)

INSTRUCTIONS = """\
# How to read

`sheet_{number}.tsv` has {count} lines: an id, a tab, a text. Each text is one sentence from a film review; spelling,
spacing and choice of words may be odd. Read each by itself and say what its writer thinks of the film:

{labels}

Write `answers_{number}.tsv` with one line for each id, in any order: the id, a tab, your answer, one of {answers}.
Answer `unclear` only where you cannot tell which of the others is more likely. Answer by reading: use no program or
model to classify, look into no other file, and do not look a text up.
"""


@dataclass(frozen=True)
class Reading:
    """A text that was read: what was done to it, the label it should have, and the answers."""

    id: str
    attack: str | None
    label: str
    text: str
    answers: tuple[str, ...]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Reading:
        return cls(row["id"], row["attack"], row["label"], row["text"], tuple(row["answers"]))


# ---------------------------------------------------------------------- sheets


def successes(runs: Iterable[Path], preset: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of all successes under a preset, by attack."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in attack_files(runs):
        if file.header()["settings"].get("preset", NO_LIMITS) == preset:
            rows = [row for row in file.rows() if row["outcome"] == "succeeded"]
            found.setdefault(file.attack, []).extend(rows)
    return found


def attack_files(runs: Iterable[Path]) -> Iterator[Any]:
    for run in runs:
        yield from RunFolder(run).attack_files()


def chosen(found: Mapping[str, Sequence[dict[str, Any]]], count: int, stream: random.Random) -> list[dict[str, Any]]:
    """Some successes, in turn from each attack, of every text at most one."""
    left = {attack: stream.sample(list(rows), len(rows)) for attack, rows in sorted(found.items())}
    taken: list[dict[str, Any]] = []
    texts: set[str] = set()
    while len(taken) < count and any(left.values()):
        # Those with the fewest successes choose first: the others will find texts that are still free.
        for attack in sorted(left, key=lambda name: len(left[name])):
            while left[attack]:
                row = left[attack].pop()
                if row["id"] not in texts and len(taken) < count:
                    texts.add(row["id"])
                    taken.append({**row, "attack": attack})
                    break
    return taken


def make_sheets(options: argparse.Namespace) -> None:
    stream = random.Random(options.seed)
    data = load_data(str(options.data), split=options.split)
    labels = list(data.labels)
    attacked = chosen(successes(options.runs, options.preset), options.successes, stream)
    if len(attacked) < options.successes:
        print(f"only {len(attacked)} of {options.successes} successes: attack more texts", file=sys.stderr)
    used = {row["id"] for row in attacked}
    others = [example for example in data if example.id not in used]
    controls = stream.sample(others, options.controls)
    key = [
        {"attack": row["attack"], "label": labels[row["label"]], "source": row["id"], "text": row["perturbed"]["text"]}
        for row in attacked
    ]
    key += [
        {"attack": None, "label": labels[example.label or 0], "source": example.id, "text": example.texts["text"]}
        for example in controls
    ]
    stream.shuffle(key)
    key = [{"id": f"t{number:03d}", **row} for number, row in enumerate(key, 1)]
    options.out.mkdir(parents=True, exist_ok=True)
    write_lines(options.out / "key.jsonl", key)
    named = "\n".join(f"- `{label}`" for label in labels)
    for number in (1, 2):
        order = stream.sample(key, len(key))
        text = "".join(f"{row['id']}\t{' '.join(str(row['text']).split())}\n" for row in order)
        write_atomic(options.out / f"sheet_{number}.tsv", text)
        told = INSTRUCTIONS.format(
            number=number, count=len(key), labels=named, answers=", ".join(f"`{name}`" for name in [*labels, UNCLEAR])
        )
        write_atomic(options.out / f"INSTRUCTIONS_{number}.md", told)
    print(f"{len(key)} texts:", dict(Counter(row["attack"] or "control" for row in key)))


def read_answers(path: Path, ids: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """A reader's answers, of which none is missing, doubled or unheard of."""
    answers: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        name, _, answer = (part.strip() for part in line.partition("\t"))
        if name not in ids or name in answers or answer not in labels:
            raise DataError(f"{path}, line {number}: expected an id of the sheet, once, and one of {', '.join(labels)}")
        answers[name] = answer
    if missing := [name for name in ids if name not in answers]:
        raise DataError(f"{path} has no answer for {len(missing)} texts: {', '.join(missing[:5])}, …")
    return answers


def keep(options: argparse.Namespace) -> None:
    key = read_lines(options.folder / "key.jsonl")
    labels = [*sorted({row["label"] for row in key}), UNCLEAR]
    paths = sorted(options.folder.glob("answers_*.tsv"))
    if len(paths) < 2:
        raise DataError(f"{options.folder} has {len(paths)} files answers_*.tsv: two readers are needed")
    ids = [row["id"] for row in key]
    readers = [read_answers(path, ids, labels) for path in paths]
    told = ("id", "attack", "label", "text")
    rows = [
        {**{name: row[name] for name in told}, "answers": [answers[row["id"]] for answers in readers]} for row in key
    ]
    write_lines(options.results / f"{options.name}.jsonl", rows)
    print(labels_table([Reading.of(row) for row in rows]))


# ---------------------------------------------------------------------- figures


def labels_table(readings: Sequence[Reading]) -> str:
    """How often each reader gave the label of the original: all successes, each attack, controls; and who agrees."""
    attacked = [reading for reading in readings if reading.attack is not None]
    controls = [reading for reading in readings if reading.attack is None]
    number = len(readings[0].answers)
    attacks = sorted({reading.attack for reading in attacked if reading.attack})
    groups = [
        ("all successes", attacked),
        ("controls, unchanged", controls),
        *((f"`{attack}`", [reading for reading in attacked if reading.attack == attack]) for attack in attacks),
    ]
    head = ["", "texts"]
    for reader in range(1, number + 1):
        head += [f"label kept, reading {reader}", "unclear"]
    head.append("readings agree")
    lines = [head, ["---"] * len(head)]
    for name, group in groups:
        line = [name, str(len(group))]
        for reader in range(number):
            line.append(rate(sum(each.answers[reader] == each.label for each in group), len(group)))
            line.append(str(sum(each.answers[reader] == UNCLEAR for each in group)))
        line.append(rate(sum(len(set(each.answers)) == 1 for each in group), len(group)))
        lines.append(line)
    return table(lines)


def lowest(readings: Sequence[Reading]) -> float:
    """The lower end of the interval of "label kept", in the reading in which it is lower."""
    attacked = [reading for reading in readings if reading.attack is not None]
    readers = range(len(readings[0].answers))
    kept = [sum(each.answers[reader] == each.label for each in attacked) for reader in readers]
    return wilson(min(kept), len(attacked)).low


def limits_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Robust accuracy of one model under each preset, attack by attack and against all together, on the same texts."""
    attacks = sorted({row["attack"] for row in rows})
    by = {(row["limits"], row["attack"]): row for row in rows}
    presets = [name for name in ORDER if any(limits == name for limits, _ in by)]
    everywhere = [attack for attack in attacks if all((name, attack) in by for name in presets)]
    groups = [(f"`{attack}`", [attack]) for attack in attacks]
    groups.append((f"all {len(everywhere)} together", everywhere))
    lines = [["", *presets], ["---"] * (1 + len(presets))]
    for title, own in groups:
        cells = [[by[name, attack] for attack in own if (name, attack) in by] for name in presets]
        lines.append([title, *(_robust(found) if found else "-" for found in cells)])
    return table(lines)


def _robust(rows: Sequence[Mapping[str, Any]]) -> str:
    outcomes = list(zip(*(row["outcomes"] for row in rows), strict=True))
    return rate(sum(set(text) == {"R"} for text in outcomes), len(outcomes))


def rate(count: int, of: int) -> str:
    if not of:
        return "-"
    interval = wilson(count, of)
    return f"{100 * count / of:.1f} ({100 * interval.low:.1f}-{100 * interval.high:.1f})"


def table(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def keep_limits(options: argparse.Namespace) -> None:
    """The outcome of every text under every preset, on texts that every attack of every preset saw."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for file in attack_files(options.runs):
        preset = file.header()["settings"].get("preset", NO_LIMITS)
        outcomes = {row["id"]: _LETTERS.get(row["outcome"], "E") for row in file.rows()}
        found.setdefault((preset, file.attack), {}).update(outcomes)
    if not found:
        raise DataError("these runs hold no attacks")
    texts = sorted(set.intersection(*(set(own) for own in found.values())))
    rows = [
        {"limits": preset, "attack": attack, "n": len(texts), "outcomes": "".join(own[name] for name in texts)}
        for (preset, attack), own in sorted(found.items())
    ]
    write_lines(options.results / "limits.jsonl", rows)
    print(limits_table(rows))


# ---------------------------------------------------------------------- the page


def written(page: str, results: Path) -> str:
    """The page with its tables as the kept readings and outcomes have them."""

    def fill(found: re.Match[str]) -> str:
        path = results / f"{found['name']}.jsonl"
        if not path.is_file():
            raise DataError(f"the page names readings {found['name']!r}, and {path} does not exist")
        rows = read_lines(path)
        filled = limits_table(rows) if "outcomes" in rows[0] else labels_table([Reading.of(row) for row in rows])
        return f"{found[1]}{filled}{found[4]}"

    return _BLOCK.sub(fill, page)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", type=Path, default=REPOSITORY / "results" / "readings")
    options.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "results" / "meaning.md")
    works = options.add_subparsers(dest="work", required=True)
    sheets = works.add_parser("sheets")
    sheets.add_argument("runs", nargs="+", type=Path)
    sheets.add_argument("--data", required=True)
    sheets.add_argument("--split", default="test")
    sheets.add_argument("--preset", default="meaning")
    sheets.add_argument("--successes", type=int, default=100)
    sheets.add_argument("--controls", type=int, default=50)
    sheets.add_argument("--seed", type=int, default=0)
    sheets.add_argument("--out", type=Path, required=True)
    kept = works.add_parser("keep")
    kept.add_argument("folder", type=Path)
    kept.add_argument("--as", dest="name", required=True)
    works.add_parser("limits").add_argument("runs", nargs="+", type=Path)
    works.add_parser("write")
    works.add_parser("check")
    return options.parse_args()


def main() -> None:
    options = arguments()
    try:
        if options.work in ("write", "check"):
            page = options.page.read_text(encoding="utf-8")
            now = written(page, options.results)
            if options.work == "write":
                write_atomic(options.page, now)
            elif now != page:
                sys.exit(f"{options.page.name} differs from the readings; run `write`")
            return
        {"sheets": make_sheets, "keep": keep, "limits": keep_limits}[options.work](options)
    except IsthmusError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
