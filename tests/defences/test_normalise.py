"""A front end that normalises: what it takes from attackers, and that they meet the whole pipeline."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus import attacks, defences
from isthmus.core.errors import IsthmusError, ModelError, UsageError
from isthmus.core.types import QuestionAnswering, TokenVictim, Victim
from isthmus.models import load_model
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.models.victims import load_victim, wrap
from isthmus.training import TrainingSettings, train

SETTINGS = TrainingSettings(precision="fp32", epochs=8, batch_size=8, learning_rate=1e-2)
INVISIBLE = attacks.BadChars(kinds=("invisible", "homoglyph", "reorder", "delete"), max_edits=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that normalises, spelling included; its texts are clean, so the weights are those of plain training."""
    path = tmp_path_factory.mktemp("normalised")
    model = toys.classifier(dropout=0.0)
    train(toys.splits(64, 16), model, defences.Normalise(spelling=True), settings=SETTINGS, folder=path, device="cpu")
    return path


@pytest.fixture
def pipeline(folder: Path) -> Any:
    return load_victim(folder, device="cpu")


@pytest.fixture
def single(folder: Path) -> Any:
    """The model behind the normaliser, by itself."""
    return load_victim(folder, device="cpu", deployed=False)


def succeeded(attack: Any, victim: Any) -> list[Any]:
    return [result for result in attack(victim, toys.dataset("test", 24, 3).examples) if result.outcome == "succeeded"]


def test_the_model_knows_how_it_reads(folder: Path, pipeline: Any) -> None:
    described = json.loads((folder / "model/isthmus.json").read_text())["deployment"]
    assert described["kind"] == "normalise"
    assert set(described["config"]["words"]) == {*toys.GOOD, *toys.BAD, *toys.PLAIN}
    assert load_model(folder).deployment == pipeline.steps
    assert isinstance(pipeline, Victim)
    assert not isinstance(pipeline, TokenVictim)  # rows spliced of tokens would pass it by


def test_it_scores_what_it_reads(pipeline: Any, single: Any) -> None:
    hidden = [{"text": "a l\u200bovely fi\u04cfm"}, {"text": "a l0vely film"}, {"text": "a lvoely film"}]
    clean = [{"text": "a lovely film"}]
    assert np.array_equal(pipeline.scores(hidden), np.repeat(single.scores(clean), 3, axis=0))
    assert not np.array_equal(single.scores(hidden[:1]), single.scores(clean))
    assert pipeline.scores([]).shape == (0, 2)


def test_training_reads_through_it_too(folder: Path) -> None:
    model = load_model(folder)
    hidden, clean = model.encode([{"text": "a l\u200bovely fi\u04cfm"}]), model.encode([{"text": "a lovely film"}])
    assert torch.equal(hidden["input_ids"], clean["input_ids"])
    model.deployment = None
    assert not torch.equal(model.encode([{"text": "a l\u200bovely fi\u04cfm"}])["input_ids"], clean["input_ids"])


def test_training_on_disguised_texts_is_training_on_the_clean_ones() -> None:
    splits = toys.splits(16, 8)
    hidden = tuple(
        dataclasses.replace(example, fields={"text": str(example.fields["text"]).replace("a", "\u0430")})
        for example in splits.train
    )
    disguised = type(splits)("toy", {**splits, "train": dataclasses.replace(splits.train, examples=hidden)})
    quick = dataclasses.replace(SETTINGS, epochs=1)
    trained = [
        toys.weights(train(data, toys.classifier(), defence, settings=quick, device="cpu"))
        for data, defence in ((disguised, defences.Normalise()), (splits, defences.Standard()))
    ]
    assert toys.same_bits(*trained)


def test_attacks_that_live_from_what_nobody_sees_stop_working(pipeline: Any, single: Any) -> None:
    assert len(succeeded(INVISIBLE, single)) > 5
    assert succeeded(INVISIBLE, pipeline) == []
    assert len(succeeded(attacks.Leet(), single)) > len(succeeded(attacks.Leet(), pipeline))


def test_an_attack_that_queries_the_pipeline_finds_what_is_left(folder: Path, pipeline: Any, single: Any) -> None:
    unspelled = load_victim(folder, device="cpu", spelling=False)
    attack = attacks.DeepWordBug()
    victim: Any
    broken, left, kept = (len(succeeded(attack, victim)) for victim in (single, unspelled, pipeline))
    assert broken == left > kept  # without correction misspelling works as well as before
    for victim in (unspelled, pipeline):
        for result in succeeded(attack, victim):
            read = victim.steps.read([result.original, result.perturbed])
            assert read[0] != read[1]
            before, after = single.scores(read).argmax(axis=1)
            assert before == result.label != after


def test_what_reads_alike_is_scored_once(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    inner = pipeline.inner.scores

    def counted(texts: Any, keys: Any = None) -> Any:
        seen.append(len(texts))
        return inner(texts, keys)

    monkeypatch.setattr(pipeline.inner, "scores", counted)
    rows = pipeline.scores(
        [{"text": text} for text in ("a film", "a fi\u200blm", "dull", "a film\u2060", "du\u200bll")]
    )
    assert seen == [2]
    assert np.array_equal(rows[[0, 2]], rows[[3, 4]])
    assert not np.array_equal(rows[0], rows[2])


def test_a_text_of_nothing_visible_is_the_empty_text(pipeline: Any, single: Any) -> None:
    rows = pipeline.scores([{"text": "\u200b\u2060"}, {"text": ""}])
    assert np.array_equal(rows, np.repeat(single.scores([{"text": ""}]), 2, axis=0))
    assert np.isfinite(rows).all()


def test_a_randomised_model_draws_by_key_behind_it(folder: Path) -> None:
    model = load_model(folder)
    model.fill(noise=GaussianNoise(1.0, (0,)))
    victim = wrap(model, device="cpu")
    assert victim.stochastic
    keys = np.array([1, 2, 1], np.uint64)
    rows = victim.scores([{"text": "a dull film"}, {"text": "a dull film"}, {"text": "a du\u200bll film"}], keys)
    assert np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[1])


def test_augmentation_attacks_the_pipeline_and_learns_behind_it(folder: Path) -> None:
    model = load_model(folder)
    data = toys.dataset("train", 16, 0)
    made = defences.AdvAug(attack="badchars", base="normalise").with_adversarial(model, data, 0, 0)
    assert made.notes["attack"]["succeeded"] == 0
    model.deployment = None
    assert defences.AdvAug(attack="badchars").with_adversarial(model, data, 0, 0).notes["attack"]["succeeded"] > 0


def test_what_cannot_be(folder: Path, pipeline: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="min_count"):
        defences.Normalise(min_count=0)
    with pytest.raises(IsthmusError, match="NFKC"):
        defences.Normalise(form="NFKK")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="gradient"):
        attacks.HotFlip()(pipeline, toys.dataset("test", 2, 0).examples)
    with pytest.raises(UsageError, match="normalise has no setting 'spellings'"):
        load_victim(folder, device="cpu", spellings=True)
    model = toys.classifier()
    model.task = QuestionAnswering()
    with pytest.raises(UsageError, match="positions in the text"):
        defences.Normalise().prepare(model, toys.dataset("train", 4, 0))


@pytest.mark.parametrize(
    "config", [{"words": "great"}, {"form": "NFX"}, {"steps": 3}], ids=lambda value: next(iter(value))
)
def test_a_folder_that_describes_it_badly_is_refused(folder: Path, config: Any, tmp_path: Path) -> None:
    load_model(folder).save(tmp_path / "model")
    path = tmp_path / "model/isthmus.json"
    described = json.loads(path.read_text())
    described["deployment"]["config"] = config
    path.write_text(json.dumps(described))
    with pytest.raises(ModelError, match="normalise"):
        load_model(tmp_path / "model")
