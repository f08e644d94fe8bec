import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import UsageError
from isthmus.training import TrainingSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 1.5),
        ("epochs", True),
        ("batch_size", -1),
        ("accumulation", 0),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("warmup", 1.0),
        ("warmup", -0.1),
        ("weight_decay", -1e-3),
        ("max_grad_norm", math.inf),
        ("precision", "fp64"),
        ("optimizer", "sgd"),
        ("schedule", "cosine"),
        ("decay", 0.0),
        ("betas", (0.9, 1.0)),
        ("patience", 0),
        ("log_every", 0),
        ("checkpoint_every", 0),
        ("evaluate_every", -5),
    ],
)
def test_a_setting_that_cannot_be_right_is_named(name, value):
    with pytest.raises(UsageError, match=name):
        TrainingSettings(**{name: value})


def test_fp16_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="bf16"):
        TrainingSettings(precision="fp16")


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingSettings().epochs = 4  # type: ignore[misc]


@given(st.floats(0, 3), st.floats(0, 0.5))
def test_the_linear_schedule_is_the_two_lines_it_says(done, warmup):
    settings = TrainingSettings(epochs=3, learning_rate=2.0, warmup=warmup)
    share = done / 3
    expected = share / warmup if share < warmup else (1 - share) / (1 - warmup)
    assert settings.rate(done) == pytest.approx(2.0 * expected, abs=1e-12)


def test_the_staircase_falls_every_so_many_epochs():
    settings = TrainingSettings(
        epochs=6, learning_rate=1.0, schedule="staircase", warmup=0.0, decay=0.5, decay_epochs=2
    )
    assert [settings.rate(epoch) for epoch in (0, 1.9, 2, 3.5, 4, 5.9)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_constant_schedule_only_warms_up():
    settings = TrainingSettings(epochs=2, learning_rate=1.0, schedule="constant", warmup=0.5)
    assert [settings.rate(epoch) for epoch in (0, 0.5, 1, 2)] == [0, 0.5, 1, 1]
