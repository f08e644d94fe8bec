"""SAFER: training texts are draws, the deployed classifier votes over draws, and both share one table with attacks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus.attacks import PWWS
from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import Example, QuestionAnswering, TokenVictim, Victim
from isthmus.defences import SAFER
from isthmus.inference.smoothing import SmoothedVictim, SynonymSmoothing
from isthmus.inference.synonym_draws import DrawnText, draw_keys
from isthmus.lexicon.by_name import load_table
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.models import load_model, load_victim, wrap
from isthmus.training import TrainingSettings, train

TABLE = str(Path(__file__).parents[1] / "support" / "synonyms.json")
QUICK = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=1)


def smoothed(draws: int = 15, answer: str = "vote") -> SmoothedVictim:
    model = toys.classifier(dropout=0.0)
    SAFER(table=TABLE, draws=draws, answer=answer).prepare(model, toys.dataset("train", 8, 0))
    victim = wrap(model, device="cpu")
    assert isinstance(victim, SmoothedVictim)
    return victim


def test_training_texts_are_drawn_anew_in_every_epoch():
    data, model, defence = toys.dataset("train", 40, 0), toys.classifier(), SAFER(table=TABLE)
    epochs = [defence.examples(model, data, epoch, 0) for epoch in range(2)]
    assert epochs[0] == defence.examples(model, data, 0, 0)
    assert epochs[0] != epochs[1]
    table = defence.synonyms()
    changed = 0
    for before, after in zip(data, epochs[0], strict=True):
        assert (before.id, before.label) == (after.id, after.label)
        for old, new in zip(before.texts["text"].split(), after.texts["text"].split(), strict=True):
            assert new in table.draws(old)
            changed += old != new
    assert changed > 20
    assert SAFER(table=TABLE, rate=0.0).examples(model, data, 0, 0) is None
    half = SAFER(table=TABLE, rate=0.5).examples(model, data, 0, 0)
    moved = sum(a != b for x, y in zip(data, half, strict=True)
                for a, b in zip(x.texts["text"].split(), y.texts["text"].split(), strict=True))  # fmt: skip
    assert 0.3 * changed < moved < 0.75 * changed


def test_a_vote_is_the_share_of_draws_and_a_mean_the_mean():
    victim, text, key = smoothed(9), {"text": "the film was fine and dull"}, 12345
    drawn = DrawnText(text, victim.table)
    texts = [drawn.text(choice) for choice in drawn.choices(draw_keys(key, 9)).tolist()]
    scores = victim.base.scores(texts)
    keys = np.array([key], np.uint64)
    shares = np.bincount(scores.argmax(axis=1), minlength=2) / 9
    assert victim.scores([text], keys)[0] == pytest.approx(shares, abs=1e-6)
    assert smoothed(9, "mean").scores([text], keys)[0] == pytest.approx(scores.mean(axis=0), abs=1e-6)


def test_answers_depend_on_their_own_key_alone():
    victim = smoothed(5)
    texts = [
        {"text": text} for text in ("the film was fine", "dull", "warm and stale and cold", "the plot", "fine fine")
    ]
    keys = np.arange(5, dtype=np.uint64) + np.uint64(1 << 60)
    together = victim.scores(texts, keys)
    alone = np.concatenate([victim.scores([text], keys[n : n + 1]) for n, text in enumerate(texts)])
    assert (together == alone).all()
    assert (victim.scores(texts) == victim.scores(texts)).all(), "without keys the text is the key"
    assert victim.stochastic
    fixed = SmoothedVictim(victim.base, victim.table, 5, fixed=True)
    assert not fixed.stochastic
    assert (fixed.scores(texts, keys) == fixed.scores(texts, keys[::-1])).all()
    assert isinstance(victim, Victim)
    assert not isinstance(victim, TokenVictim)


def test_a_run_is_smoothed_after_loading_and_attacked_inside_its_table(tmp_path: Path):
    model = train(toys.splits(64, 16), toys.classifier(), SAFER(table=TABLE, draws=7), settings=QUICK, folder=tmp_path,
                  device="cpu")  # fmt: skip
    assert (tmp_path / "examples/1.jsonl").exists()
    victim = load_victim(tmp_path / "model", device="cpu")
    assert isinstance(victim, SmoothedVictim)
    assert (victim.draws, victim.answer, victim.table.fingerprint) == (
        7,
        "vote",
        SAFER(table=TABLE).synonyms().fingerprint,
    )
    assert load_table(str(tmp_path)).fingerprint == victim.table.fingerprint
    texts = toys.dataset("test", 12, 3).texts()
    keys = np.arange(12, dtype=np.uint64)
    assert (victim.scores(texts, keys) == model.deployment.victim(model).scores(texts, keys)).all()
    fewer = load_victim(tmp_path / "model", device="cpu", draws=3)
    assert isinstance(fewer, SmoothedVictim)
    assert fewer.draws == 3
    assert not load_victim(tmp_path / "model", device="cpu", deployed=False).stochastic
    assert not load_victim(tmp_path / "model", device="cpu", fixed=True).stochastic
    attack = PWWS(table=str(tmp_path))
    assert victim.table.fingerprint in attack.resources()["synonyms"]


def test_an_attack_on_the_smoothed_classifier_stays_inside_the_table(tmp_path: Path):
    table = SynonymTable.of_links({"fine": ["lovely"], "lovely": ["moving"], "moving": ["dull"]}, most=2)
    table.write(tmp_path / "synonyms.json")
    # A word and its synonym may share no draw at all: then the smoothed classifier is as easily fooled as any.
    assert table.draws("lovely") == ("lovely", "fine")
    assert table.draws("moving") == ("moving", "dull")
    bad = wrap(lambda texts: [[0.9, 0.1] if {"moving", "dull"} & set(text.split()) else [0.1, 0.9] for text in texts])
    victim = SmoothedVictim(bad, table, 25)
    examples = [Example(f"test:{n}", {"text": f"the {word} was lovely"}, 1) for n, word in enumerate(["film", "plot"])]
    for result in PWWS(table=str(tmp_path))(victim, examples):
        assert result.outcome == "succeeded"
        assert [(edit.original, edit.replacement) for edit in result.edits] == [("lovely", "moving")]


def test_the_table_is_in_a_file_of_its_own_and_its_loss_is_noticed(tmp_path: Path):
    model = toys.classifier()
    SAFER(table=TABLE).prepare(model, toys.dataset("train", 8, 0))
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model/isthmus.json").read_text())["deployment"]
    assert described == {"kind": "synonyms", "config": {"draws": 15, "answer": "vote"}}
    (tmp_path / "model/synonyms.json").unlink()
    with pytest.raises(Exception, match=r"no file .*synonyms\.json"):
        load_model(tmp_path / "model")


def test_bad_input_is_refused(tmp_path: Path):
    (tmp_path / "one.json").write_text('{"fine": ["lovely"]}')
    assert SAFER(table=str(tmp_path / "one.json")).synonyms().replacements("lovely") == ("fine",)
    with pytest.raises(DataError, match="one way only"):
        SAFER(table=str(tmp_path / "one.json"), one_way="refuse").synonyms()
    with pytest.raises(UsageError, match="no synonym table"):
        SAFER(table=str(tmp_path / "none.json")).synonyms()
    with pytest.raises(UsageError, match="between 0 and 1, not 2"):
        SAFER(rate=2)
    with pytest.raises(UsageError, match="at least one draw"):
        SAFER(draws=0)
    with pytest.raises(UsageError, match="'vote' or by 'mean'"):
        SynonymSmoothing(3, "loudest")
    model = toys.classifier()
    model.task = QuestionAnswering()
    with pytest.raises(UsageError, match="answers of a question"):
        SAFER(table=TABLE).prepare(model, toys.dataset("train", 8, 0))


def test_a_text_whose_words_have_no_synonyms_is_read_as_it_is():
    victim, text = smoothed(), {"text": "this actor is very"}
    with torch.no_grad():
        wanted = int(victim.base.scores([text]).argmax())
    assert victim.scores([text])[0, wanted] == 1.0
    example = Example("x", text, 0)
    assert DrawnText(example.texts, SynonymTable.of_links({})).places == []
