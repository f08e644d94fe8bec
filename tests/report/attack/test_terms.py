"""What stands at the top of the page, the words of detectors, tables for every screen, and colours that can be read."""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.report.attack.detector import describe_answer
from isthmus.report.attack.terminal import attack_tables, detection_table, footnotes, print_examples, verdict
from isthmus.report.attack.terms import terms
from isthmus.report.attack.view import AttackView
from isthmus.report.page import _TEMPLATES, render, write_report
from isthmus.report.tables import label_cells
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

AddAttack = Callable[..., None]
MakeRow = Callable[..., dict[str, Any]]
CSS = (_TEMPLATES / "report.css").read_text(encoding="utf-8")


@pytest.fixture
def detector(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> RunFolder:
    """A run whose two attacks evade the detection of "positive" at a threshold."""
    rng = random.Random(0)
    rate = {"estimate": 0.95, "low": 0.88, "high": 0.98}
    found = {
        "label": 1, "threshold": 0.5, "at_fpr": 0.01, "negatives": 100, "negative_scores": [0.1] * 100,
        "tpr_before": rate, "tpr_after": {**rate, "estimate": 0.321}, "fpr": {**rate, "estimate": 0.02},
        "auc_before": 0.987, "auc_after": 0.654,
    }  # fmt: skip
    settings = {
        "goal": {"kind": "evasion", "from_label": "positive", "threshold": None, "at_fpr": 0.01}, "parameters": {},
        "protection": {"columns": None, "pattern": "[0-9]+", "kinds": ["url"]}, "limits": {"budget": 500},
    }  # fmt: skip
    for key in ("deepwordbug", "pwws"):
        rows = [make_row(2 * i + 1, "succeeded" if i % 3 else "failed", rng) for i in range(60)]
        add_attack(run_folder, key, rows, detection=found, threshold=0.5, settings=settings)
    return run_folder


def words_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]).split())


def test_the_page_begins_with_what_was_asked(detector: RunFolder) -> None:
    assert terms(read_run(detector)) == [
        ("attacks", "deepwordbug, pwws; 60 texts of class positive each"),
        ("goal", "texts of class positive pass the detector"),
        (
            "threshold",
            "flagged at a score of 0.5 or more, chosen for a false-positive rate of 1.0 % on clean development data",
        ),
        ("protected", "links, what matches [0-9]+"),
        ("limits", "at most 500 queries per text"),
    ]
    page = render(read_run(detector))
    assert page.index('class="terms"') < page.index('class="headline') < page.index("<table")


def test_attacks_that_differ_are_told_apart(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> None:
    same = read_run(run_folder).attacks[1].settings
    rows = [make_row(number, "failed", random.Random(0)) for number in range(9)]
    add_attack(run_folder, "pwws", rows, settings={**same, "limits": {"budget": 9}})
    add_attack(run_folder, "leet", rows, settings={**same, "goal": {"kind": "targeted", "target": "positive"}})
    found = dict(terms(read_run(run_folder)))
    assert found["goal"] == "any wrong class"
    assert found["limits"] == "deepwordbug: no limit on queries or time; pwws: at most 9 queries per text"
    assert found["not counted above"].startswith("leet:")


def test_a_detector_flags_or_lets_pass(detector: RunFolder) -> None:
    run = read_run(detector)
    text = words_of(render(run))
    assert "positive caught before the attack 100.0 %" in text
    assert "positive caught after the attack 33.3 %" in text
    assert "positive caught (true-positive rate)" in text
    assert "catches 60, at a false-positive rate of 2.0 % (88.0–98.0)" in text
    assert "caught before caught after attack success" in text
    for word in ("clean accuracy", "robust accuracy", "correct"):
        assert word not in text.partition("How to read the figures")[0]
    assert "original flagged , score of positive" in text
    assert "adversarial passed , score of positive" in text
    assert "adversarial negative" not in text
    stream = io.StringIO()
    console = Console(file=stream, width=100)
    print_examples(console, run.attacks[0], 1)
    console.print(detection_table(run.attacks[0]))
    console.print(verdict(run))
    for table in attack_tables(run):
        console.print(table)
    console.print(footnotes(run))
    assert "flagged → passed" in stream.getvalue()
    assert "positive caught (threshold 0.5)" in stream.getvalue()
    assert "0.654" not in stream.getvalue()
    for word in ("clean", "robust", "correct"):
        assert word not in stream.getvalue().replace("clean texts", "")


@pytest.mark.parametrize(
    ("threshold", "scores", "prediction", "said"),
    [
        (0.2, [0.7, 0.3], 0, "flagged"),
        (0.2, [0.9, 0.1], 0, "passed"),
        (None, [0.7, 0.3], 0, "passed"),
        (None, [0.3, 0.7], 1, "flagged"),
        (0.2, (), None, "no answer"),
    ],
)
def test_the_threshold_decides(threshold: float | None, scores: Any, prediction: Any, said: str) -> None:
    settings = {"goal": {"kind": "evasion", "from_label": "spam"}}
    view = AttackView("leet", {"settings": settings, "labels": ["ham", "spam"], "threshold": threshold}, [])
    assert describe_answer(view, prediction, scores) == (said, scores[1] if scores else None)


def test_cells_know_their_columns() -> None:
    table = "<table>\n<thead><tr><th>set</th><th>no can-<br>didates</th><th>cross-<br>entropy</th></tr></thead>\n"
    table += '<tbody>\n<tr class="all"><td>a<br>b</td><td>1</td><td class="words">2</td></tr>\n</tbody>\n</table>'
    found = label_cells(f"before {table} after")
    assert '<th scope="col">set</th>' in found
    assert '<tr class="all"><th scope="row">a<br>b</th>' in found
    assert '<td data-name="no candidates">1</td><td data-name="cross-entropy" class="words">2</td>' in found
    assert (found.startswith("before "), found.endswith(" after")) == (True, True)


def test_every_heading_has_a_scope_and_every_link_a_target(rich_run: RunFolder, detector: RunFolder) -> None:
    for folder in (rich_run, detector):
        page = render(read_run(folder))
        assert re.findall(r"<th(?! scope=)[^a-z]", page) == []
        assert page.count('scope="row"') > 3
        targets = re.findall(r'<a href="#([^"]+)"', page)
        assert {"attacks", "examples", "examples-1"} <= set(targets)
        assert [target for target in targets if f'id="{target}"' not in page] == []


# Colours

TEXTS = (
    ("ink", "paper"), ("ink", "sheet"), ("ink", "soft"), ("muted", "paper"), ("muted", "sheet"), ("accent", "paper"),
    ("accent", "sheet"), ("warn-ink", "warn"), ("gone-ink", "gone"), ("new-ink", "new"), ("severe", "paper"),
    ("weak", "paper"), ("holds", "paper"), *((f"series-{number}", "paper") for number in range(1, 7)),
)  # fmt: skip
"""Colours that texts have, and what is behind them; names beside curves have the colours of the series."""


def palette(dress: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return colours if dress == "light" else colours | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


@pytest.mark.parametrize("dress", ["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), TEXTS)
def test_texts_can_be_read(dress: str, text: str, behind: str) -> None:
    colours = palette(dress)
    assert contrast(colours[text], colours[behind]) >= 4.5


def test_no_text_is_made_fainter_than_its_colour() -> None:
    faint = re.findall(r"^([^\n{}]+)\{[^}]*opacity: [^}]*\}", CSS, re.MULTILINE)
    assert [rule.strip() for rule in faint] == [".bar .to-clean"]


# In a browser

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=2000",
)  # fmt: skip


def browse(folder: Path, *words: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'browser'}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_nothing_is_wider_than_a_narrow_screen(rich_run: RunFolder, tmp_path: Path) -> None:
    """The page in a frame of 400 pixels says how wide its tables want to be."""
    page = write_report(rich_run).read_text(encoding="utf-8")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', page)
    assert policy is not None
    probe = "<script>document.title = [document.documentElement.scrollWidth, innerWidth, ...[...document."
    probe += "querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)].join(' ')</script>"
    bare = page.replace(policy[0], "").replace("</body>", f"{probe}</body>")
    (tmp_path / "page.html").write_text(bare, encoding="utf-8")
    shown = browse(tmp_path, "--window-size=400,900", "--dump-dom", (tmp_path / "page.html").as_uri())
    width, window, *beyond = map(int, re.findall(r"<title>([^<]*)</title>", shown)[0].split())
    assert width <= window <= 500
    assert beyond
    assert max(beyond) <= 0


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_print_opens_what_is_folded(run_folder: RunFolder, tmp_path: Path) -> None:
    """Folded examples take paper: with them the printed page is much longer than without."""
    page = write_report(run_folder).read_text(encoding="utf-8")
    lengths = []
    for name, source in {
        "folded": page,
        "open": page.replace("<details>", "<details open>"),
        "without": re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL),
    }.items():
        (tmp_path / f"{name}.html").write_text(source, encoding="utf-8")
        paper = tmp_path / f"{name}.pdf"
        browse(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", (tmp_path / f"{name}.html").as_uri())
        lengths.append(len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes())))
    assert lengths[0] == lengths[1] > lengths[2] + 2
