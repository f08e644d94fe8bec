from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from isthmus import auxiliary
from isthmus.attacks.parts.limits import Limits, preset
from isthmus.verbs.attack.auxiliary_models import Companions, Names, names_of
from isthmus.verbs.observer import Observer


@dataclass(frozen=True)
class Comparing:
    encoder: str = "own"
    masked_lm: str | None = None


@dataclass(frozen=True)
class Plain:
    pass


@pytest.mark.parametrize(
    ("attack", "limits", "asked", "expected"),
    [
        (Comparing(), Limits(), None, Names("own", None)),
        (Comparing(masked_lm="lm"), Limits(), "other", Names("own", "lm")),
        (Plain(), Limits(), None, Names()),
        (Plain(), Limits(), "other", Names("other", None)),
        (Plain(), preset("textdefender-2021"), None, Names("minilm", None)),
        (Plain(), preset("textdefender-2021"), "other", Names("other", None)),
        (Plain(), Limits(max_drop=1.0), None, Names(None, "minilm")),
    ],
)
def test_the_attack_names_its_models_then_the_command_then_the_limits(
    attack: Any, limits: Limits, asked: str | None, expected: Names
) -> None:
    assert names_of(attack, limits, asked) == expected


def test_limits_compare_with_the_attacks_own_encoder() -> None:
    limits = Names("own", None).within(preset("strict"))
    assert (limits.encoder, limits.masked_lm, limits.similarity) == ("own", "minilm", preset("strict").similarity)


def test_a_model_is_loaded_once_for_all_attacks_and_on_the_device_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str | None]] = []

    def load(name: str, *, device: str | None = None) -> object:
        made.append((name, device))
        return object()

    for name in ("load_encoder", "load_masked_lm", "TransformerSentenceEncoder", "TransformerMaskedLM"):
        monkeypatch.setattr(auxiliary, name, load, raising=False)
    anywhere = Companions(None, Observer())
    assert anywhere.of(Names()) == {"encoder": None, "masked_lm": None}
    assert made == []
    first, second = (anywhere.of(Names("a", "b")) for _ in range(2))
    assert first == second
    assert made == [("a", None), ("b", None)]
    Companions("cpu", Observer()).of(Names("a", "b"))
    assert made[2:] == [("a", "cpu"), ("b", "cpu")]
