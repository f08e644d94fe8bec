from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.calibration import expected_calibration_error
from isthmus.core.errors import RunError
from isthmus.report.evaluation.figure import of_run
from isthmus.report.figures import spread
from isthmus.report.page import render, write_report
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

AddAttack = Callable[..., None]
MakeRow = Callable[..., dict[str, Any]]


class Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link", "br", "path", "use", "rect", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_holds_figures_examples_and_provenance(run_folder: RunFolder) -> None:
    path = write_report(run_folder)
    page = Page(path.read_text(encoding="utf-8"))
    run = read_run(run_folder)
    for view in run.attacks:
        assert f"{100 * view.summary.racc.estimate:.1f} %" in page.text
        assert f"{100 * view.summary.racc.low:.1f}–{100 * view.summary.racc.high:.1f}" in page.text
    assert page.tags.count("svg") == 5
    assert page.tags.count("mark") > 20
    for word in ("rotten_tomatoes", "1a2b3c4d5e6f7a8b", "torch", "isthmus train --data rotten_tomatoes", "83.0 %"):
        assert word in page.text
    assert page.open == []


def test_the_page_needs_no_network_and_runs_nothing(run_folder: RunFolder) -> None:
    source = render(read_run(run_folder))
    page = Page(source)
    assert not {"script", "link", "iframe", "img", "object", "base"} & set(page.tags)
    assert not any(name.startswith("on") for name, _ in page.attributes)
    linked = [value for name, value in page.attributes if name in ("src", "href", "xlink:href") and value]
    assert all(value.startswith("#") for value in linked)
    assert "default-src 'none'" in source
    assert not re.search(r"url\((?!#)", source)
    assert "@import" not in source


def test_every_text_is_escaped(run_folder: RunFolder, nasty: str, add_attack: AddAttack, make_row: MakeRow) -> None:
    row = make_row(0, "succeeded", random.Random(0), text=nasty)
    row["id"] = nasty
    row["perturbed"]["text"] = nasty + " " + nasty
    bad = make_row(1, "error", random.Random(0), text=nasty)
    bad["reason"] = nasty
    add_attack(run_folder, "deepwordbug", [row, bad], labels=[nasty, nasty], command=nasty)
    source = render(read_run(run_folder))
    page = Page(source)
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", source)
    write_report(run_folder).read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_page(run_folder: RunFolder) -> None:
    assert write_report(run_folder).read_bytes() == write_report(run_folder).read_bytes()


def test_figures_share_no_ids(run_folder: RunFolder) -> None:
    ids = re.findall(r'<clipPath id="([^"]+)"', render(read_run(run_folder)))
    assert len(ids) == len(set(ids)) > 0


def test_a_run_that_was_never_attacked_says_so(run_folder: RunFolder) -> None:
    for path in run_folder.attacks_path.iterdir():
        path.unlink()
    page = Page(render(read_run(run_folder)))
    assert "Not attacked yet" in page.text
    assert page.tags.count("svg") == 1


def test_an_attack_that_fooled_nothing_has_a_page(
    run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow
) -> None:
    rng = random.Random(0)
    for key in ("deepwordbug", "pwws"):
        add_attack(run_folder, key, [make_row(i, "failed", rng) for i in range(30)])
    page = Page(render(read_run(run_folder)))
    assert "Of these, 30 withstood every attack tried; 0 were fooled." in page.text
    add_attack(run_folder, "pwws", [make_row(i, "skipped", rng) for i in range(30)])
    add_attack(run_folder, "deepwordbug", [])
    assert "The model classifies 0 of 30 examples correctly" in Page(render(read_run(run_folder))).text


def test_a_reader_is_warned_of_what_weakens_the_figures(
    run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow
) -> None:
    rng = random.Random(0)
    rows = [make_row(i, "failed" if i % 2 else "error", rng) for i in range(30)]
    add_attack(run_folder, "pwws", rows, n=200)
    text = Page(render(read_run(run_folder))).text
    assert "pwws is not finished: 30 of 200" in text
    assert "15 errors in 30 examples, never counted as robust. Most frequent: the model answered NaN" in text
    assert "the intervals are wide" in text


def test_evasion_gets_its_own_section(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> None:
    rng = random.Random(0)
    rows = [make_row(2 * i + 1, "succeeded" if i % 3 else "failed", rng) for i in range(60)]
    rate = {"estimate": 0.9, "low": 0.8, "high": 0.95, "level": 0.95}
    found = {
        "label": 1, "threshold": 0.5, "at_fpr": 0.01,
        "negatives": 100, "negative_scores": [i / 200 for i in range(100)],
        "tpr_before": rate, "tpr_after": {**rate, "estimate": 0.321}, "fpr": {**rate, "estimate": 0.01},
        "auc_before": 0.987, "auc_after": 0.654,
    }  # fmt: skip
    add_attack(run_folder, "pwws", rows, detection=found)
    page = Page(render(read_run(run_folder)))
    assert "Evasion of positive" in page.text
    assert "32.1 %" in page.text
    assert "0.987" in page.text
    assert "0.654" not in page.text  # The attack stops at the threshold: an AUC after it measures where it stopped.
    assert page.tags.count("svg") == 6


def test_a_row_that_is_none_is_named(run_folder: RunFolder) -> None:
    with (run_folder.attacks_path / "pwws.jsonl").open("a") as stream:
        stream.write('{"id": "x"}\n')
    with pytest.raises(RunError, match=r"pwws\.jsonl line 201"):
        read_run(run_folder)


def test_the_page_says_what_was_not_tried_and_what_was_used(rich_run: RunFolder) -> None:
    run = read_run(rich_run)
    source = render(run)
    page = Page(source)
    (view,) = [view for view in run.attacks if view.key == "textfooler"]
    assert f'<span class="loud">{view.summary.no_candidates}</span>' in source
    assert 'class="stand-in">word vectors: GloVe (stand-in: not the published vectors)' in source
    for words in (
        "had no candidates", "encoder: minilm", "hotflip was left out: it needs gradients",
        "All together: deepwordbug, pwws, textfooler.", "limits textdefender-2021",
        f"similarity {view.successes[0].similarity:.2f}",
    ):  # fmt: skip
        assert words in page.text
    assert page.open == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=16))
def test_names_beside_the_curves_do_not_overlap(heights: list[float]) -> None:
    placed = spread(heights, gap := 1 / 16)
    assert max(placed) <= 1 + gap / 2 + 1e-9
    assert min(placed) >= -gap / 2 - 1e-9
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(sorted(placed)))
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    assert [placed[index] for index in order] == sorted(placed)


def test_how_sure_the_model_is_of_the_texts_it_was_attacked_on(run_folder: RunFolder, add_attack: AddAttack) -> None:
    view = read_run(run_folder)
    ((name, panel),) = of_run(view)
    rows = run_folder.attack_files()[0].rows()
    sure = [max(row["score_before"]) for row in rows if row["score_before"]]
    right = [row["prediction_before"] == row["label"] for row in rows if row["score_before"]]
    assert name == "examples before the attack"
    assert panel.ece.estimate == pytest.approx(expected_calibration_error(sure, right), abs=1e-6)
    assert 'id="calibration"' in render(view)
    # Nothing can be said of a victim that gives labels alone, or of an attack on one class alone.
    labels = [{**row, "score_before": row["score_before"] and [0.0, 1.0]} for row in rows]
    for path in run_folder.attacks_path.iterdir():
        path.unlink()
    add_attack(run_folder, "pwws", labels)
    assert not of_run(read_run(run_folder))
    add_attack(run_folder, "pwws", rows, settings={"attack": "pwws", "goal": {"kind": "evasion", "label": 1}})
    assert not of_run(read_run(run_folder))
    assert 'id="calibration"' not in render(read_run(run_folder))
