"""Question answering on every encoder: windows, spans, answers, and what is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from isthmus import defences
from isthmus.core.errors import DataError, ModelError, UsageError
from isthmus.core.types import OUTSIDE, Answer, Example, QuestionAnswering
from isthmus.inference.question_answering import answer, predict_answers, window_logits, windows_of
from isthmus.inference.question_windows import Window, best_spans, cut_windows, most_given
from isthmus.models import Classifier, Noise, WordMask, load_model, register_slot
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.training.questions import EncodedWindows

Cut = Callable[..., list[Window]]
ENCODERS = ("bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5")
CONTEXT = "the story was dull, and nobody saw the quiet film twice. it is a very fine movie but too long !"


def question(identity: str = "q", text: str = "film ?", context: str = CONTEXT, found: str = "quiet film") -> Example:
    place = context.find(found)
    answers = (Answer(place, found),) if place >= 0 else ()
    return Example(identity, {"question": text, "context": context}, answers)


EXAMPLES = [question("a"), question("b", "who saw it ?", found="nobody"), question("c", "long ?", "a film", "film")]


@register_slot
class Shake(Noise):
    stochastic = True
    layers = (0,)

    def config(self) -> dict[str, Any]:
        return {}

    def forward(self, layer: int, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        return hidden + 0.5 * self.stream.normal(hidden)


@register_slot
class Fade(WordMask):
    def config(self) -> dict[str, Any]:
        return {}

    def forward(
        self, embeddings: Tensor, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor
    ) -> Tensor:
        return embeddings * torch.where(special_mask, 1.0, 0.5).unsqueeze(-1)


def make(encoder: Callable[[str], Path], architecture: str = "bert", max_tokens: int = 24, stride: int = 5) -> Any:
    task = QuestionAnswering(stride=stride)
    return Classifier.create(encoder(architecture), task=task, seed=5, max_tokens=max_tokens)


def inputs_of(model: Classifier, window: Window) -> dict[str, Tensor]:
    return {name: torch.from_numpy(column.astype(np.int64))[None] for name, column in window.inputs.items()}


# Windows.


@pytest.fixture(scope="session")
def tokenizer(encoder: Callable[[str], Path]) -> Any:
    return AutoTokenizer.from_pretrained(encoder("bert"))


@pytest.fixture(scope="session")
def cut(tokenizer: Any) -> Cut:
    def windows(
        text: str, context: str, found: str | None = None, max_tokens: int = 16, stride: int = 4
    ) -> list[Window]:
        answers = None if found is None else [(Answer(context.find(found), found),)]
        return cut_windows(tokenizer, [text], [context], answers, max_tokens=max_tokens, stride=stride)

    return windows


def test_a_short_pair_is_one_window_and_the_tokenizers_own(cut: Cut, tokenizer: Any) -> None:
    (window,) = cut("film ?", "a quiet film", "quiet")
    whole = tokenizer("film ?", "a quiet film")
    assert {name: column.tolist() for name, column in window.inputs.items()} == dict(whole)
    assert window.inside.tolist() == [False] * 4 + [True] * 3 + [False]
    assert window.offsets[window.inside].tolist() == [[0, 1], [2, 7], [8, 12]]
    assert window.target == (5, 5)


def test_windows_cover_the_context_by_strides_and_only_the_context_is_cut(cut: Cut, tokenizer: Any) -> None:
    windows = cut("film ?", CONTEXT)
    tokens = tokenizer(CONTEXT, add_special_tokens=False)["input_ids"]
    question_ids = tokenizer("film ?")["input_ids"]
    room = 16 - len(question_ids) - 1
    pieces = [window.inputs["input_ids"][window.inside].tolist() for window in windows]
    begins = list(range(0, len(tokens) - room + 4, 4))
    assert pieces == [tokens[begin : begin + room] for begin in begins]
    assert pieces[-1][-1] == tokens[-1]
    assert len(pieces[-2]) == room, "the window before the last must not have held everything already"
    for window in windows:
        assert window.inputs["input_ids"][: len(question_ids)].tolist() == question_ids
        assert len(window) <= 16
        assert window.inputs["token_type_ids"][window.inside].tolist() == [1] * int(window.inside.sum())


def test_the_target_is_the_answer_where_the_window_holds_all_of_it(cut: Cut) -> None:
    windows = cut("film ?", CONTEXT, "quiet film")
    holding = [window for window in windows if window.target != (0, 0)]
    assert 0 < len(holding) < len(windows)
    for window in holding:
        start, end = window.target
        assert CONTEXT[window.offsets[start, 0] : window.offsets[end, 1]] == "quiet film"
    place = CONTEXT.find("quiet film")
    for window in windows:
        seen = window.offsets[window.inside]
        assert (window.target != (0, 0)) == (seen[0, 0] <= place and seen[-1, 1] >= place + len("quiet film"))


def test_a_question_is_trained_on_the_answer_most_annotators_gave(tokenizer: Any) -> None:
    places = [Answer(8, "film"), Answer(0, "a"), Answer(2, "quiet"), Answer(2, "quiet"), Answer(0, "a")]
    assert most_given(places) == places[1], "of equals the first"
    (window,) = cut_windows(tokenizer, ["film ?"], ["a quiet film"], [[*places, places[2]]], max_tokens=16, stride=4)
    assert window.offsets[window.target[0]].tolist() == [2, 7]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param("oving", "moving", id="begins-within-a-token"),
        pytest.param(" moving ", "moving", id="white-space-around"),
        pytest.param("moving story", "moving story", id="two-words"),
    ],
)
def test_answers_and_tokens_need_not_end_together(found: str, expected: str, cut: Cut) -> None:
    context = "a moving story was"
    (window,) = cut("film ?", context, found)
    start, end = window.target
    assert context[window.offsets[start, 0] : window.offsets[end, 1]] == expected


def test_a_question_longer_than_the_window_leaves_half_of_it(cut: Cut, tokenizer: Any) -> None:
    windows = cut("very " * 40, CONTEXT, "quiet film", max_tokens=17, stride=100)
    assert {len(window) for window in windows[:-1]} == {17}
    assert {int((~window.inside).sum()) for window in windows} == {3 + 7}
    assert sum(window.target != (0, 0) for window in windows) <= len(windows)
    pieces = np.concatenate([window.inputs["input_ids"][window.inside] for window in windows])
    tokens = tokenizer(CONTEXT, add_special_tokens=False)["input_ids"]
    assert pieces.tolist() == tokens, "a stride longer than the room leaves nothing out"
    (short,) = cut("very " * 12, "a film", max_tokens=17)
    assert len(short) == 17, "a question is not cut where there is room for it"
    (empty,) = cut("very " * 40, "", max_tokens=17)
    assert not empty.inside.any()
    with pytest.raises(UsageError, match="no room"):
        cut("film ?", CONTEXT, max_tokens=3)


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        def __call__(self, *_: Any, **__: Any) -> Any:
            return type("Encoded", (dict,), {"encodings": None})()

    with pytest.raises(ModelError, match="fast version"):
        cut_windows(Slow(), ["a"], ["b"], max_tokens=8, stride=2)  # type: ignore[arg-type]


# Spans.


def test_the_best_spans_are_those_of_all_pairs(cut: Cut) -> None:
    window = cut("film ?", CONTEXT, max_tokens=30)[0]
    logits = np.random.default_rng(0).normal(size=(2, len(window))).astype(np.float32)
    places = np.flatnonzero(window.inside)
    every = sorted(
        (
            (float(logits[0, i]) + float(logits[1, j]), int(window.offsets[i, 0]), int(window.offsets[j, 1]))
            for i in places
            for j in places
            if i <= j < i + 4
        ),
        reverse=True,
    )
    found = best_spans(window, logits, 12, longest=4)
    assert [(span.start, span.end) for span in found] == [(start, end) for _, start, end in every[:12]]
    assert [span.score for span in found] == pytest.approx([score for score, _, _ in every[:12]])
    assert len(best_spans(window, logits, 10**6, longest=4)) == len(every)


def test_a_span_never_leaves_the_context_nor_turns_round(cut: Cut) -> None:
    (window,) = cut("film ?", "a quiet film", max_tokens=16)
    logits = np.full((2, len(window)), -1.0, np.float32)
    logits[0, [0, 1, 6]] = [9, 8, 5]  # outside, outside, "film"
    logits[1, [0, 2, 4]] = [9, 8, 5]  # outside, outside, "a"
    best = best_spans(window, logits, 1)[0]
    # Valid are film-film (5 - 1), a-a (-1 + 5): equal, and the first of them is taken.
    assert (best.start, best.end, best.score) == (0, 1, 4.0)
    logits[0, 4] = np.nan
    with pytest.raises(ModelError, match="not numbers"):
        best_spans(window, logits, 1)


def test_windows_are_compared_by_score_and_a_span_in_two_counts_once(cut: Cut) -> None:
    example = question()
    windows = cut("film ?", CONTEXT, "quiet film")
    logits = [np.zeros((2, len(window)), np.float32) for window in windows]
    for number, window in enumerate(windows):
        if window.target != (0, 0):
            logits[number][0, window.target[0]] = logits[number][1, window.target[1]] = 3 + number
    (found,) = predict_answers(windows, logits, [example], ("question", "context"), n_best=5)
    assert found.text == "quiet film"
    best = max(number for number, window in enumerate(windows) if window.target != (0, 0))
    assert found.candidates[0].score == 2 * (3 + best)
    assert len({(c.start, c.text) for c in found.candidates}) == len(found.candidates) == 5
    assert sum(c.probability for c in found.candidates) == pytest.approx(1)
    for candidate in found.candidates:
        assert CONTEXT[candidate.start :].startswith(candidate.text)


# Models.


@pytest.mark.parametrize("architecture", ENCODERS)
def test_every_encoder_answers(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = make(encoder, architecture)
    windows = windows_of(model, EXAMPLES, labelled=True)
    assert len(windows) > len(EXAMPLES)
    inputs = inputs_of(model, windows[0])
    output = model(**inputs, hidden=True)
    assert output.logits.shape == (1, 2, len(windows[0]))
    assert output.hidden is not None
    assert output.hidden[-1].shape[-1] == model.hidden_size
    moved = model(**inputs, inputs_embeds=model.embed(inputs["input_ids"]) * 2)
    assert not torch.allclose(moved.logits, output.logits, atol=1e-3)
    found = answer(model, EXAMPLES, n_best=3)
    assert [prediction.id for prediction in found] == ["a", "b", "c"]
    for prediction, example in zip(found, EXAMPLES, strict=True):
        assert prediction.text
        assert prediction.text in example.texts["context"]


@pytest.mark.parametrize("architecture", ENCODERS)
@pytest.mark.parametrize(
    "defence", [defences.InfoBERT(adversary="freelb", steps=2), defences.SMART(mode="released")], ids=lambda d: d.name
)
def test_defences_move_the_words_of_every_encoder(
    architecture: str, defence: Any, encoder: Callable[[str], Path]
) -> None:
    model = make(encoder, architecture).train()
    defence.prepare(model, EXAMPLES)
    (batch,) = EncodedWindows(model, EXAMPLES).batches(100, torch.device("cpu"))
    seen = set()
    for terms in defence.losses(model, batch):
        seen |= set(terms.values)
        terms.total().backward()
    assert seen > {"cross_entropy"}
    assert model.table.weight.grad is not None
    assert model.table.weight.grad.abs().sum() > 0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("architecture", ENCODERS)
def test_padding_has_a_low_finite_logit_and_changes_nothing_else(
    architecture: str, encoder: Callable[[str], Path]
) -> None:
    model = make(encoder, architecture)
    windows = windows_of(model, EXAMPLES)
    together = dict(window_logits(model, windows, EXAMPLES, batch_size=64))
    alone = dict(window_logits(model, windows, EXAMPLES, batch_size=1))
    for number, window in enumerate(windows):
        assert together[number].shape == (2, len(window))
        assert np.allclose(together[number], alone[number], atol=1e-5)
    inputs = inputs_of(model, windows[0])
    padded = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in inputs.items()}
    logits = model(**padded).logits
    assert (logits[..., -3:] == OUTSIDE).all()
    assert torch.isfinite(logits.log_softmax(-1)).all()
    assert logits.softmax(-1)[..., -3:].sum() == 0


@pytest.mark.parametrize("architecture", ENCODERS)
@pytest.mark.parametrize("slots", ["none", "noise", "word_mask"])
def test_what_is_saved_is_read_back(
    architecture: str, slots: str, encoder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make(encoder, architecture)
    if slots != "none":
        model.fill(**{slots: Shake() if slots == "noise" else Fade()})
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "isthmus.json").read_text())
    assert (described["task"], described["stride"], described["format"]) == ("qa", 5, 2)
    again = load_model(tmp_path / "model")
    assert again.task == model.task
    assert again.answers_questions
    assert again.max_tokens == 24
    assert answer(again, EXAMPLES, n_best=4) == answer(model, EXAMPLES, n_best=4)


def test_a_plain_folder_is_transformers_own(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make(encoder)
    model.save(tmp_path / "model")
    stock = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model").eval()
    inputs = inputs_of(model, windows_of(model, EXAMPLES)[0])
    theirs = stock(**inputs)
    ours = model(**inputs).logits
    assert torch.equal(ours, torch.stack((theirs.start_logits, theirs.end_logits), dim=1))
    (tmp_path / "model" / "isthmus.json").unlink()
    foreign = load_model(tmp_path / "model")
    assert foreign.task == QuestionAnswering()
    assert foreign.max_tokens == 64
    assert torch.equal(foreign(**inputs).logits, ours)


@pytest.mark.parametrize(("reads", "expected"), [(512, 384), (64, 64)])
def test_windows_are_384_tokens_unless_the_model_reads_fewer(
    reads: int, expected: int, encoder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.models.pretrained.token_limit", lambda *_: reads)
    assert Classifier.create(encoder("bert"), task=QuestionAnswering()).max_tokens == expected
    assert Classifier.create(encoder("bert"), ["no", "yes"]).max_tokens == reads


def test_noise_depends_on_the_question_and_not_on_its_batch(encoder: Callable[[str], Path]) -> None:
    model = make(encoder).fill(noise=Shake())
    together = answer(model, EXAMPLES, batch_size=64, n_best=2)
    alone = [answer(model, [example], batch_size=1, n_best=2)[0] for example in EXAMPLES]
    for one, other in zip(together, alone, strict=True):
        assert one.text == other.text
        assert one.candidates[0].score == pytest.approx(other.candidates[0].score, abs=1e-4)
    scores = [found.candidates[0].score for found in together]
    assert scores != [found.candidates[0].score for found in answer(model, EXAMPLES, seed=1, batch_size=64)]


def test_what_cannot_be(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    model = make(encoder)
    with pytest.raises(UsageError, match="squeezes one vector per text"):
        model.fill(bottleneck=GaussianBottleneck(model.pooled_size))
    for backbone in ("lstm", "cnn"):
        with pytest.raises(UsageError, match="cannot answer questions"):
            Classifier.create(backbone, task=QuestionAnswering(), texts=["a b"])
    with pytest.raises(UsageError, match="chooses one of no, yes"):
        answer(Classifier.create(encoder("bert"), ["no", "yes"]), EXAMPLES)
    with pytest.raises(DataError, match="example x has no text in the field 'context'"):
        answer(model, [Example("x", {"question": "a"}, ())])
    with pytest.raises(DataError, match="no answers to learn from"):
        windows_of(model, [question(found="absent")], labelled=True)
    assert answer(model, [question("e", context="")])[0].text == ""
    assert answer(model, []) == []
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "isthmus.json"
    for change, blamed in ({"labels": ["a", "b"]}, "labels"), ({"stride": 0}, "stride"), ({"task": "vision"}, "task"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        with pytest.raises(ModelError, match=f"no valid '{blamed}'"):
            load_model(tmp_path / "model")
        model.save(tmp_path / "model")
