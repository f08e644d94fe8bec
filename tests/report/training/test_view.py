from __future__ import annotations

from typing import Any

from isthmus.report.training.view import Curves, read_curves


def test_terms_and_accuracy_are_told_apart() -> None:
    log: list[dict[str, Any]] = [
        {"step": 10, "epoch": 0.1, "cross_entropy": 0.7, "penalty": 0.1, "loss": 0.8, "learning_rate": 1e-4},
        {"step": 20, "epoch": 0.2, "cross_entropy": 0.5, "penalty": 0.1, "loss": 0.6, "gradient_norm": 2.0},
        {"step": 20, "epoch": 0.2, "dev_accuracy": 0.8, "dev_loss": 0.4},
        {"step": 20, "epoch": 1, "examples": 100},
    ]
    curves = read_curves(log)
    assert curves.terms == {
        "cross_entropy": ([10, 20], [0.7, 0.5]),
        "penalty": ([10, 20], [0.1, 0.1]),
        "loss": ([10, 20], [0.8, 0.6]),
    }
    assert curves.accuracy == ([20], [0.8])


def test_a_loss_of_one_term_is_drawn_once() -> None:
    assert list(read_curves([{"step": 1, "cross_entropy": 0.7, "loss": 0.7}]).terms) == ["cross_entropy"]


def test_no_log_gives_no_curves() -> None:
    assert read_curves([]) == Curves({}, None)
    assert read_curves([{"loss": 1.0}]).terms == {}


def test_weights_count_from_where_the_selection_begins() -> None:
    log: list[dict[str, Any]] = [
        {"step": 10, "dev_accuracy": 0.9},
        {"step": 10, "examples": 120, "attack": {"succeeded": 20}},
        {"step": 10, "selection": "begins"},
        {"step": 20, "dev_accuracy": 0.8},
    ]
    assert read_curves(log).judged_from == 1
    assert read_curves(log).terms == {}
    assert read_curves(log[:3]).judged_from == 0
