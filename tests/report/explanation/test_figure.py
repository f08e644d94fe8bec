"""Figures of explained texts: nothing lies on anything else, and nothing hangs over the edge."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

from isthmus.explanations import Explanation
from isthmus.report.explanation import figure as drawn
from isthmus.runs.explained import Explained, Reading

pytest.importorskip("matplotlib")


def explanation(text: str, classes: int = 2) -> Explanation:
    labels = tuple(f"class {number}" for number in range(classes))
    scores = tuple((np.arange(classes) + 1.0) / sum(range(1, classes + 1)))
    found = Explanation("0", {"text": text}, "made", labels, scores, tuple(range(classes)), np.zeros((classes, 0)))
    weights = np.random.default_rng(0).normal(size=(classes, len(found.words)))
    return Explanation("0", {"text": text}, "made", labels, scores, tuple(range(classes)), weights)


def attacked(text: str, classes: int = 2, models: int = 1) -> Explained:
    one = explanation(text, classes)
    return Explained("0", tuple(Reading(f"model {number}", one, one) for number in range(models)))


@pytest.mark.parametrize("models", [1, 2])
def test_columns_of_all_classes_lie_beside_each_other(models: int) -> None:
    columns = drawn._make_columns(attacked("a fine film that goes on and on " * 4, models=models))
    assert len(columns) == 2
    width = drawn._column_width(2)
    for blocks in columns:
        assert len(blocks) == 2 * models  # One block per class, of each side.
        assert max(word.x + word.width for block in blocks for word in block.words) <= width


def test_a_word_that_no_line_holds_is_cut() -> None:
    ((block,), _) = drawn._make_columns(attacked(f"a {'x' * 600} film", classes=1))
    assert max(word.x + word.width for word in block.words) <= drawn._column_width(2)
    assert any(word.text.endswith("x…") for word in block.words)
    for one, other in itertools.pairwise(block.words):
        assert other.line > one.line or other.x >= one.x + one.width


def test_many_classes_and_texts_fit_into_a_picture() -> None:
    original, _ = drawn._make_columns(attacked("a film", classes=40))
    assert [block.heading.split()[2] for block in original] == ["34", "35", "36", "37", "38", "39"]  # The likeliest.
    block = drawn._Block("", [], drawn._LONGEST)  # One word a line.
    fitting = drawn._that_fit([[[block] * 12] * 2] * 12)
    assert len(fitting) == 1
    assert sum(drawn._height(each) for each in fitting) * 160 / 72 < 2**16
    assert len(drawn._that_fit([[[block]]] * 12)) == 12


def test_signs_that_the_type_face_lacks_are_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn.save([attacked("a 電影 film", classes=1)], "made", [tmp_path / "words.png"])
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
