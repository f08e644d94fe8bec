"""Tables of docs/results are what the ledger says."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isthmus.core.crossed import crossed_difference, crossed_rate
from isthmus.core.errors import DataError
from isthmus.core.statistics import holm
from ledger import Cell, Key, Ledger
from ledger.pages import Spec, render, stale, written

ROOT = Path(__file__).parents[2]
SPEC = "defences data=sst2 attack=textfooler against=standard"


def key(method: str, seed: int, n: int, attack: str | None = None) -> Key:
    return Key(
        data={"name": "sst2", "split": "test", "fingerprint": "ab" * 8, "trained_on": f"{seed:016x}"},
        backbone="minilm",
        method={"name": method},
        training={"epochs": 3},
        seed=seed,
        n=n,
        attack=None if attack is None else {"name": attack},
    )


def cells(method: str, rate: float, seeds: int = 3, row: str | None = None) -> list[Cell]:
    rng = np.random.default_rng([len(method), round(1000 * rate)])
    found = []
    for seed in range(seeds):
        found.append(Cell.of_answers(key(method, seed, 400), rng.random(400) < 0.9, row=row or method))
        marks = "".join("." if rng.random() < rate else "x" for _ in range(200))
        found.append(Cell(key(method, seed, 200, "textfooler"), marks, {}, row or method))
    return found


@pytest.fixture
def results(tmp_path: Path) -> Path:
    book = Ledger(tmp_path / "results" / "defences.jsonl")
    for cell in [*cells("freelb", 0.7, 5), *cells("standard", 0.1, 5), *cells("smart", 0.105, 5)]:
        book.append(cell)
    return book.path.parent


def page(table: str = "") -> str:
    return f"# Title\n\nBefore.\n\n<!-- table: {SPEC} -->\n{table}<!-- end -->\n\nAfter, with a | bar.\n"


def test_tables_are_written_and_the_prose_stays(results: Path) -> None:
    text = written(page("| old | table |\n"), results)
    assert text.startswith("# Title\n\nBefore.\n")
    assert text.endswith("\n\nAfter, with a | bar.\n")
    assert "old" not in text
    assert written(text, results) == text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [re.split(r" \| ", row)[0] for row in rows[2:]] == ["| standard", "| freelb", "| smart"]


def test_figures_are_those_of_the_statistics(results: Path) -> None:
    book = list(Ledger(results / "defences.jsonl"))
    matrices = {
        (name, attacked): np.array(
            [cell.right for cell in book if cell.row == name and (cell.key.attack is not None) == attacked], float
        )
        for name in ("standard", "freelb", "smart")
        for attacked in (False, True)
    }
    pairs = [(name, attacked) for name in ("freelb", "smart") for attacked in (False, True)]
    compared = [crossed_difference(matrices[pair], matrices["standard", pair[1]]) for pair in pairs]
    corrected = dict(zip(pairs, holm([each.p_value for each in compared]), strict=True))
    text = render(Spec.read(SPEC), book)
    rate = crossed_rate(matrices["freelb", True])
    assert f"| {100 * rate.estimate:.1f} ({100 * rate.low:.1f} to {100 * rate.high:.1f}) |" in text
    assert corrected["freelb", True] < 0.001
    freelb, smart = (
        next(line for line in text.splitlines() if line.startswith(f"| {name}")) for name in ("freelb", "smart")
    )
    assert freelb.endswith("| < 0.001 |")
    assert smart.endswith(f"| {corrected['smart', True]:.3f} |")
    # Beside a null stands what could have been seen, beside a difference it does not.
    assert f"detectable {100 * compared[3].detectable:.1f}" in smart
    assert "detectable" not in freelb.split(" | ")[-2]
    assert "over the 4 comparisons" in " ".join(text.split())


def test_a_changed_figure_or_a_new_cell_makes_a_page_stale(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "defences.md"
    path.write_text(written(page(), results))
    assert stale([path], results) == []
    path.write_text(re.sub(r"\d\d\.\d \(", "99.9 (", path.read_text(), count=1))
    assert stale([path], results) == [path]
    path.write_text(written(page(), results))
    for cell in cells("alum", 0.2):
        Ledger(results / "defences.jsonl").append(cell)
    assert stale([path], results) == [path]


def test_what_was_not_run_is_said(results: Path) -> None:
    assert render(Spec.read("defences data=snli"), Ledger(results / "defences.jsonl")) == "Not yet run.\n"
    only = [cell for cell in cells("vib", 0.3) if cell.key.attack is None]
    text = render(Spec.read(SPEC), [*cells("standard", 0.1), *only])
    assert "not yet run" in text


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ((3, 3), "95 % intervals cover seeds and texts."),
        ((3, 1), "95 % intervals cover seeds and texts, with one seed texts alone."),
        ((1, 1), "95 % intervals cover texts alone (one seed)."),
    ],
)
def test_intervals_of_one_seed_are_not_said_to_cover_seeds(seeds: tuple[int, int], told: str) -> None:
    book = [*cells("standard", 0.1, seeds[0]), *cells("vib", 0.3, seeds[1])]
    assert told in " ".join(render(Spec.read(SPEC), book).split())


def test_rows_and_splits_are_chosen(results: Path) -> None:
    book = list(Ledger(results / "defences.jsonl"))
    text = render(Spec.read(f"{SPEC} rows=standard,free*"), book)
    assert "| freelb |" in text
    assert "smart" not in text
    other = [dataclasses.replace(cell.key, data={**cell.key.data, "split": "test_hard"}) for cell in book]
    hard = [dataclasses.replace(cell, key=key) for cell, key in zip(book, other, strict=True)]
    assert render(Spec.read(f"{SPEC} split=test"), [*book, *hard]) == render(Spec.read(SPEC), book)


def test_rows_may_be_compared_with_rows_of_another_name() -> None:
    names = ("standard", "vib-0.1-mean", "vib-0.01-mean", "vub-0.1-mean", "vub-0.01-mean")
    book = [cell for place, name in enumerate(names) for cell in cells(name, 0.2 + place / 10, row=name)]
    text = render(Spec.read("vub against=vub:vib"), book)
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert lines[""].count("against vib") == 2
    attacked = {
        cell.row: np.array([c.right for c in book if c.row == cell.row and c.key.attack], float) for cell in book
    }
    change = crossed_difference(attacked["vub-0.01-mean"], attacked["vib-0.01-mean"]).difference
    assert f"| {100 * change.estimate:+.1f} (" in lines["vub-0.01-mean"]
    assert lines["vib-0.1-mean"].endswith("|  |  |")
    assert "over the 4 comparisons" in " ".join(text.split())


def test_cells_that_do_not_belong_in_one_row_are_refused() -> None:
    first, *_ = cells("standard", 0.1, seeds=1)
    other = dataclasses.replace(first, key=dataclasses.replace(first.key, seed=1, training={"epochs": 9}))
    with pytest.raises(DataError, match="'standard' differ in training"):
        render(Spec.read(SPEC), [first, other])


def test_rows_of_different_texts_are_not_compared() -> None:
    (first, _), (second, _) = cells("standard", 0.1, 1), cells("smart", 0.1, 1)
    moved = dataclasses.replace(second.key, data={**second.key.data, "fingerprint": "cd" * 8})
    with pytest.raises(DataError, match="different texts"):
        render(Spec.read(SPEC), [first, dataclasses.replace(second, key=moved)])


@pytest.mark.parametrize("text", ["", "defences sst2", "defences data=", "defences colour=red"])
def test_a_marker_that_says_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="a table is named by"):
        Spec.read(text)


def test_an_open_marker_is_an_error(results: Path) -> None:
    with pytest.raises(DataError, match="opened and not closed"):
        written(f"<!-- table: {SPEC} -->\nno end\n", results)


def test_the_command_merges_writes_and_checks(results: Path, tmp_path: Path) -> None:
    pages, back = tmp_path / "pages", tmp_path / "back"
    pages.mkdir()
    (pages / "defences.md").write_text(page())
    for cell in cells("alum", 0.3):
        Ledger(back / "defences.jsonl").append(cell)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        script = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), *words]
        folders = ["--results", str(results), "--pages", str(pages)]
        return subprocess.run([*script, *folders], capture_output=True, text=True, check=False)

    assert run("merge", str(back)).stdout == "defences.jsonl: 6 cells added, 0 replaced\n"
    assert run("check").returncode == 1
    assert run("write").stdout == "wrote defences.md\n"
    assert run("check").returncode == 0
    assert "| alum | 3 |" in (pages / "defences.md").read_text()


def test_the_tables_of_this_repository_are_what_its_ledger_says() -> None:
    pages = sorted((ROOT / "docs" / "results").glob("*.md"))
    assert [page.name for page in stale(pages, ROOT / "results")] == [], "run: python benchmarks/tables.py write"


_NO_LEDGER = (
    "**Measured before the ledger; raw rows not kept.**",
    "Times are not part of the ledger",
    "The paper's own figures, printed here, have no rows in the ledger.",
    "Tables that are not ours hold the paper's own figures",
)


def test_a_page_says_where_its_tables_have_no_raw_results() -> None:
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        by_hand = re.sub(r"<!-- (?:table|readings|figures):.*?<!-- end -->", "", text, flags=re.DOTALL)
        if "\n|" in by_hand:
            assert any(sentence in " ".join(text.split()) for sentence in _NO_LEDGER), (
                f"{page.name} has a table without a ledger"
            )


def test_every_ledger_of_this_repository_has_a_table() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "results").glob("*.md"))
    for path in sorted((ROOT / "results").glob("*.jsonl")):
        shown = any(f"<!-- {kind}: {path.stem} " in pages for kind in ("table", "figures"))
        assert shown, f"no page shows {path.name}"
