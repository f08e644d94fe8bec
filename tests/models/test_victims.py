"""Every kind of victim: what it answers, and what becomes of it when it misbehaves."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.arithmetic.machine import fewest_rows
from isthmus.core.errors import ModelError, UsageError, VictimError, VictimTimeout, VictimUnreachable
from isthmus.core.hardware import bfloat16_works
from isthmus.core.types import Differentiable, TokenBatch, TokenVictim, Victim
from isthmus.models import (
    CallableVictim,
    Classifier,
    ClassifierVictim,
    HttpVictim,
    Noise,
    OnnxVictim,
    load_victim,
    sklearn_victim,
    wrap,
)
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.victims.answer_parsing import AnswerReader, softmax

LABELS = ("negative", "positive")
TEXTS = ["a fine film", "the story was very dull", "", "it was too long and nobody saw it", "fine", "dull film"]


def as_texts(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"text": text} for text in texts]


@pytest.fixture(scope="module")
def classifier(encoder: Callable[[str], Path]) -> Classifier:
    return Classifier.create(encoder("bert"), LABELS, seed=1)


@pytest.fixture(scope="module")
def minilm_shaped(encoder: Callable[[str], Path]) -> ClassifierVictim:
    """As wide and deep as MiniLM, with random weights and few words."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from isthmus.models import from_transformers

    config = BertConfig(
        vocab_size=120, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    config.architectures = ["BertForSequenceClassification"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
    return ClassifierVictim(from_transformers(model, AutoTokenizer.from_pretrained(encoder("bert"))))


def test_protocols(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    assert isinstance(victim, Victim)
    assert isinstance(victim, TokenVictim)
    assert isinstance(victim, Differentiable)
    assert (victim.labels, victim.fields, victim.device_type) == (LABELS, ("text",), "cpu")
    assert not victim.stochastic
    assert victim.max_tokens == 64


def test_scores_are_the_models_probabilities(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    scores = victim.scores(as_texts(TEXTS))
    assert scores.dtype == np.float32
    assert np.allclose(scores.sum(axis=1), 1.0, atol=1e-6)
    with torch.no_grad():
        expected = classifier(**classifier.encode(as_texts(TEXTS))).logits.softmax(-1).numpy()
    assert np.allclose(scores, expected, atol=1e-6)
    assert victim.scores([]).shape == (0, 2)
    with pytest.raises(UsageError, match="1 text field"):
        victim.scores([{"premise": "a", "hypothesis": "b"}])


@pytest.mark.parametrize("length", [3, 20, 33])
def test_bits_do_not_depend_on_the_batch(minilm_shaped: ClassifierVictim, length: int) -> None:
    ids = np.random.default_rng(length).integers(5, 100, (64, length))
    whole = minilm_shaped.launch([TokenBatch(ids)])()
    for rows in (1, 4, 7, 32):
        assert np.array_equal(minilm_shaped.launch([TokenBatch(ids[:rows])])(), whole[:rows]), rows
    parts = minilm_shaped.launch([TokenBatch(ids[:5]), TokenBatch(ids[5:40]), TokenBatch(ids[40:])])()
    assert np.array_equal(parts, whole)


@pytest.mark.parametrize(
    "architecture", ["bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "xlnet", "t5", "lstm", "cnn"]
)
def test_bits_do_not_depend_on_the_batch_in_any_architecture(architecture: str, encoder: Callable[[str], Path]) -> None:
    if architecture in ("lstm", "cnn"):
        options = {"vectors": None, "width": 50}
        model = Classifier.create(architecture, LABELS, texts=TEXTS, options=options)
        size = len(model.tokenizer)
    else:
        model = Classifier.create(encoder(architecture), LABELS)
        size = 50
    victim = ClassifierVictim(model)
    for length in (1, 6, 19):
        ids = np.random.default_rng(length).integers(5, size, (64, length))
        whole = victim.launch([TokenBatch(ids)])()
        for rows in (1, 2, 3, 4, 7, 32):
            assert np.array_equal(victim.launch([TokenBatch(ids[:rows])])(), whole[:rows]), (length, rows)


def test_scores_equal_launch_to_the_bit(minilm_shaped: ClassifierVictim) -> None:
    texts = as_texts(["a fine film", "the dull film", "it was fine"])  # five tokens each
    ids = np.array([minilm_shaped.tokenizer(text["text"])["input_ids"] for text in texts])
    assert np.array_equal(minilm_shaped.scores(texts), minilm_shaped.launch([TokenBatch(ids)])())
    mixed = minilm_shaped.scores([*texts, *as_texts(["fine", "a very very long film"])])
    assert np.array_equal(mixed[:3], minilm_shaped.scores(texts))


def test_a_full_mask_changes_nothing_that_matters(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    ids = np.random.default_rng(0).integers(5, 50, (5, 9))
    plain = victim.launch([TokenBatch(ids)])()
    masked = victim.launch([TokenBatch(ids, mask=np.ones_like(ids), types=np.zeros_like(ids))])()
    assert np.allclose(plain, masked, atol=1e-6)
    assert victim.launch([])().shape == (0, 2)


def test_training_mode_never_reaches_a_victim(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    before = victim.scores(as_texts(TEXTS))
    classifier.backbone.train()  # one part of the model only, as a forgotten head would be
    assert np.array_equal(victim.scores(as_texts(TEXTS)), before)
    assert not any(module.training for module in classifier.modules())
    classifier.train()
    gradient = victim.embedding_gradients(TokenBatch(np.full((1, 4), 7)), np.array([0]))
    assert np.array_equal(gradient, victim.embedding_gradients(TokenBatch(np.full((1, 4), 7)), np.array([0])))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet", "t5", "lstm", "cnn"])
def test_gradients_are_those_of_the_loss(architecture: str, encoder: Callable[[str], Path]) -> None:
    if architecture in ("lstm", "cnn"):
        options = {"vectors": None, "width": 12, "hidden": 8, "filters": 6}
        model = Classifier.create(architecture, LABELS, texts=TEXTS, options=options)
    else:
        model = Classifier.create(encoder(architecture), LABELS)
    ids, labels = np.array([[5, 6, 7, 8], [6, 6, 5, 7]]), np.array([0, 1])
    gradient = ClassifierVictim(model).embedding_gradients(TokenBatch(ids), labels)
    assert gradient.shape == (2, 4, model.table.embedding_dim)
    embeddings = model.embed(torch.from_numpy(ids)).detach().requires_grad_()

    def losses(model: Classifier, embeddings: torch.Tensor) -> torch.Tensor:
        logits = model(inputs_embeds=embeddings).logits
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="none")

    expected = torch.autograd.grad(losses(model, embeddings).sum(), embeddings)[0]
    assert np.allclose(gradient, expected, atol=1e-6)
    if architecture == "t5":  # It normalises in float32 whatever its type, too coarse for differences.
        return
    direction = torch.from_numpy(np.random.default_rng(1).normal(size=gradient.shape))
    with torch.no_grad():
        ahead, behind = (losses(model.double(), embeddings.double() + step * direction) for step in (1e-5, -1e-5))
    slope = ((ahead - behind) / 2e-5).numpy()
    assert np.allclose((gradient * direction.numpy()).sum(axis=(1, 2)), slope, rtol=1e-3, atol=1e-6)


def test_embedding_table_and_frozen_embeddings(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    assert np.array_equal(victim.embedding_table(), classifier.table.weight.detach().numpy())
    batch, labels = TokenBatch(np.full((2, 5), 9)), np.array([1, 0])
    free = victim.embedding_gradients(batch, labels)
    classifier.requires_grad_(False)
    assert np.array_equal(victim.embedding_gradients(batch, labels), free)
    classifier.requires_grad_(True)
    with pytest.raises(UsageError, match="1 labels for 2 rows"):
        victim.embedding_gradients(batch, labels[:1])


class Jitter(Noise):
    """Always on."""

    stochastic = True
    layers = (0, 2)

    def forward(self, layer: int, hidden: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        return hidden + 0.5 * self.stream.normal(hidden, tag=layer)


def test_a_stochastic_victim_draws_from_the_rows_keys(encoder: Callable[[str], Path]) -> None:
    victim = ClassifierVictim(Classifier.create(encoder("bert"), LABELS).fill(noise=Jitter()))
    assert victim.stochastic
    ids = np.tile(np.arange(5, 13), (6, 1))
    keys = np.array([1, 2**64 - 1, 1, 5, 6, 7], dtype=np.uint64)
    rows = victim.launch([TokenBatch(ids, keys=keys)])()
    assert np.array_equal(rows[0], rows[2])
    assert len({row.tobytes() for row in rows}) == 5
    again = victim.launch([TokenBatch(ids[:1], keys=keys[1:2])])()
    assert np.array_equal(again[0], rows[1])
    free = [victim.launch([TokenBatch(ids)])() for _ in range(2)]
    assert not np.array_equal(free[0], free[1])
    texts = as_texts(["a fine film", "dull"])
    assert np.array_equal(victim.scores(texts, keys[:2]), victim.scores(texts, keys[:2]))
    batch = TokenBatch(ids[:2], keys=keys[:2])
    single = [victim.embedding_gradients(batch, np.array([0, 1])) for _ in range(2)]
    assert np.array_equal(*single)
    many = victim.embedding_gradients(batch, np.array([0, 1]), draws=8)
    assert not np.allclose(many, single[0], atol=1e-6)


@pytest.mark.parametrize("draws", [1, 3])
def test_a_gradient_as_scored_is_that_of_the_draws_that_score(encoder: Callable[[str], Path], draws: int) -> None:
    """Move one embedding by little: the scores of the same key change by what the gradient says."""
    model = Classifier.create(encoder("bert"), LABELS).fill(noise=Jitter())
    victim = ClassifierVictim(model.double(), draws=draws)
    ids, keys, labels = np.arange(5, 13)[None], np.array([77], np.uint64), np.array([1])
    batch = TokenBatch(ids, keys=keys)
    gradient = torch.from_numpy(victim.embedding_gradients(batch, labels, as_scored=True)[0, 3])
    row = model.table.weight.data[8]
    before = row.clone()

    def loss(size: float) -> float:
        row.copy_(before + size * gradient / gradient.norm())
        found = victim.launch([TokenBatch(ids, keys=keys)])()
        row.copy_(before)
        return -float(np.log(found[0, 1]))

    slope = (loss(2e-2) - loss(-2e-2)) / 4e-2
    assert float(gradient.norm()) == pytest.approx(slope, rel=0.02)
    other = victim.embedding_gradients(TokenBatch(ids, keys=keys + np.uint64(1)), labels, as_scored=True)[0, 3]
    assert not np.allclose(other, gradient, rtol=1e-2, atol=0)


def test_nan_rows_come_back_as_they_are(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("bert"), LABELS)
    with torch.no_grad():
        model.table.weight[40] = float("nan")
    ids = np.full((5, 6), 7)
    ids[2, 3] = 40
    scores = ClassifierVictim(model).launch([TokenBatch(ids)])()
    assert np.isnan(scores[2]).all()
    assert np.isfinite(scores[[0, 1, 3, 4]]).all()


def test_ids_the_model_does_not_have(classifier: Classifier) -> None:
    with pytest.raises(VictimError, match="the model failed"):
        ClassifierVictim(classifier).launch([TokenBatch(np.full((4, 5), 10_000))])


def test_bfloat16(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("bert"), LABELS)
    exact = ClassifierVictim(model).scores(as_texts(TEXTS))
    if not bfloat16_works("cpu"):
        with pytest.warns(UserWarning, match="bfloat16"):
            victim = ClassifierVictim(model, "bf16")
        assert victim.precision == "fp32"
        assert np.array_equal(victim.scores(as_texts(TEXTS)), exact)
    else:
        victim = ClassifierVictim(model, "bf16")
        ids = np.random.default_rng(0).integers(5, 50, (32, 9))
        rough = victim.launch([TokenBatch(ids)])()
        assert np.array_equal(
            victim.launch([TokenBatch(ids)], exact=True)(), ClassifierVictim(model).launch([TokenBatch(ids)])()
        )
        assert np.allclose(rough, victim.launch([TokenBatch(ids)], exact=True)(), atol=2e-2)
        assert np.array_equal(victim.launch([TokenBatch(ids[:4])])(), rough[:4])
    with pytest.raises(UsageError, match="fp16"):
        ClassifierVictim(model, "fp16")  # type: ignore[arg-type]


@pytest.mark.parametrize("widths", [(384, 384), (384, 2), (100, 16)])
def test_batches_are_filled_up_no_further_than_this_machine_needs(widths: tuple[int, int]) -> None:
    layer = torch.nn.Linear(*widths)
    least = fewest_rows(layer)
    assert 2 <= least <= 16
    with torch.inference_mode():
        rows = torch.randn(200, widths[0])
        whole = layer(rows)
        fits = {n: torch.equal(layer(rows[:n]), whole[:n]) for n in range(2, 17)}
    assert all(fits[n] for n in range(least, 17))
    if 2 < least < 16:
        assert not fits[least - 1]


# ---------------------------------------------------------------------- functions


def test_functions_get_strings_or_records() -> None:
    seen: list[Any] = []

    def answer(texts: list[Any]) -> list[list[float]]:
        seen.append(list(texts))
        return [[0.25, 0.75]] * len(texts)

    victim = CallableVictim(answer, LABELS, batch_size=2)
    assert isinstance(victim, Victim)
    assert not isinstance(victim, TokenVictim)
    assert victim.scores(as_texts(["a", "b", "c"])).tolist() == [[0.25, 0.75]] * 3
    victim.scores([{"premise": "p", "hypothesis": "h"}])
    assert seen == [["a", "b"], ["c"], [{"premise": "p", "hypothesis": "h"}]]
    assert victim.scores([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([[0.2, 0.8], [1.0, 0.0]], [[0.2, 0.8], [1.0, 0.0]]),
        (np.array([0.8, 0.0]), [[0.2, 0.8], [1.0, 0.0]]),
        (np.array([[0.8], [0.0]]), [[0.2, 0.8], [1.0, 0.0]]),
        ([1, 0], [[0.0, 1.0], [1.0, 0.0]]),
        (np.array([True, False]), [[0.0, 1.0], [1.0, 0.0]]),
        (["positive", "negative"], [[0.0, 1.0], [1.0, 0.0]]),
        (torch.tensor([[0.2, 0.8], [1.0, 0.0]], requires_grad=True), [[0.2, 0.8], [1.0, 0.0]]),
        ([{"label": "positive", "score": 0.8}, {"label": "negative", "score": 1.0}], [[0.2, 0.8], [1.0, 0.0]]),
        (
            [[{"label": "positive", "score": 0.8}, {"label": "negative", "score": 0.2}]] * 2,
            [[0.2, 0.8], [0.2, 0.8]],
        ),
    ],
)
def test_what_a_function_may_return(answer: Any, expected: list[list[float]]) -> None:
    scores = CallableVictim(lambda texts: answer, LABELS).scores(as_texts(["a", "b"]))
    assert np.allclose(scores, expected)
    assert scores.dtype == np.float32


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ([[0.2, 0.8]], r"shape \(1, 2\); expected \(2, 2\)"),
        ([[0.2, 0.3, 0.5]] * 2, r"shape \(2, 3\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (None, "None"),
        ([[0.1, 0.9], [1.0]], "unequal length"),
        ([0, 7], "class 7"),
        (["positive", "happy"], "'happy'"),
        ([0.5, 1.5], "between 0 and 1"),
        ([{"label": "positive"}, {"label": "negative"}], "label and score"),
        ([{"label": "positive", "score": 1}, 5], "label and score"),
        ([{"label": 9, "score": 1}] * 2, "class 9; there are 2"),
        ([{"label": -1, "score": 1}] * 2, "class -1; there are 2"),
        ([{"label": "positive", "score": "much"}] * 2, "score 'much'"),
        ([{"label": "positive", "score": None}] * 2, "score None"),
        (np.array([1j, 2j]), "complex"),
    ],
)
def test_wrong_answers_say_what_was_expected(answer: Any, match: str) -> None:
    with pytest.raises(VictimError, match=match):
        CallableVictim(lambda texts: answer, LABELS).scores(as_texts(["a", "b"]))


def test_logits_are_recognised_once_and_for_all() -> None:
    answers = iter([[[3.0, -1.0]], [[0.5, 0.5]]])
    victim = CallableVictim(lambda texts: next(answers), LABELS)
    with pytest.warns(UserWarning, match="taken as logits"):
        first = victim.scores(as_texts(["a"]))
    assert np.allclose(first, softmax(np.array([[3.0, -1.0]])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(victim.scores(as_texts(["b"])), [[0.5, 0.5]])
        stated = CallableVictim(lambda texts: [[3.0, -1.0]], LABELS, outputs="logits")
        assert np.array_equal(stated.scores(as_texts(["a"])), first)
    answers = iter([[[0.3, 0.7]], [[3.0, -1.0]]])
    victim = CallableVictim(lambda texts: next(answers), LABELS)
    victim.scores(as_texts(["a"]))
    with pytest.raises(VictimError, match="no distribution"):
        victim.scores(as_texts(["b"]))


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_softmax_gives_distributions_in_the_same_order(rows: list[list[float]]) -> None:
    array = np.array(rows)
    chances = softmax(array)
    assert np.allclose(chances.sum(axis=1), 1.0, atol=1e-5)
    assert (chances >= 0).all()
    best = array.argmax(axis=1)
    assert np.allclose(chances[np.arange(len(rows)), best], chances.max(axis=1))
    assert np.allclose(softmax(array + 7.0), chances, atol=1e-5)


def test_nan_passes_through_a_reader() -> None:
    rows = AnswerReader("v", LABELS).read([[0.5, 0.5], [float("nan"), 0.5]], 2)
    assert np.isfinite(rows[0]).all()
    assert np.isnan(rows[1]).any()


def test_functions_that_raise_or_hang() -> None:
    def broken(texts: list[str]) -> None:
        raise ZeroDivisionError("seven")

    with pytest.raises(VictimError, match="ZeroDivisionError: seven") as caught:
        CallableVictim(broken, LABELS).scores(as_texts(["a"]))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(VictimError, match="broken raised ZeroDivisionError"):
        CallableVictim(broken, LABELS, timeout=None).scores(as_texts(["a"]))
    release = threading.Event()
    start = time.monotonic()
    with pytest.raises(VictimTimeout, match=r"2 texts within 0\.05 s"):
        CallableVictim(lambda texts: release.wait(30), LABELS, timeout=0.05).scores(as_texts(["a", "b"]))
    assert time.monotonic() - start < 5
    release.set()

    def own_timeout(texts: list[str]) -> None:
        raise TimeoutError("of the function itself")

    with pytest.raises(VictimError, match="of the function itself") as other:
        CallableVictim(own_timeout, LABELS).scores(as_texts(["a"]))
    assert not isinstance(other.value, VictimTimeout)


def test_a_function_without_labels_is_asked_once() -> None:
    calls: list[list[str]] = []

    def answer(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return [[0.2, 0.3, 0.5]] * len(texts)

    victim = CallableVictim(answer)
    assert victim.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert victim.labels == victim.labels
    assert len(calls) == 1
    with pytest.raises(VictimError, match="labels="):
        _ = CallableVictim(lambda texts: [1] * len(texts)).labels
    with pytest.raises(UsageError, match="at least two"):
        CallableVictim(answer, ["one"])
    with pytest.raises(UsageError, match="timeout"):
        CallableVictim(answer, timeout=-1)


# ---------------------------------------------------------------------- scikit-learn


def fitted(last: Any, labels: Sequence[Any]) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(CountVectorizer(), last).fit(["good fine", "bad dull", "so so"] * 4, list(labels) * 4)


def test_sklearn_pipelines() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    texts = as_texts(["good fine film", "dull", "so"])
    plain = [text["text"] for text in texts]
    numbers = fitted(LogisticRegression(), [2, 0, 1])
    victim = sklearn_victim(numbers, ("bad", "so-so", "good"))
    assert victim.labels == ("bad", "so-so", "good")
    assert np.allclose(victim.scores(texts), numbers.predict_proba(plain), atol=1e-6)
    assert sklearn_victim(numbers).labels == ("0", "1", "2")
    names = fitted(MultinomialNB(), ["good", "bad", "middling"])
    reordered = sklearn_victim(names, ("good", "middling", "bad"))
    assert np.allclose(reordered.scores(texts), names.predict_proba(plain)[:, [1, 2, 0]], atol=1e-6)
    margins = fitted(LinearSVC(), ["good", "bad", "middling"])
    assert np.allclose(sklearn_victim(margins).scores(texts), softmax(margins.decision_function(plain)), atol=1e-6)
    binary = fitted(LinearSVC(), ["yes", "no", "no"])
    scores = sklearn_victim(binary).scores(texts)
    assert np.allclose(scores[:, 1], 1 / (1 + np.exp(-binary.decision_function(plain))), atol=1e-6)

    class OnlyPredicts:
        classes_ = np.array(["bad", "good"])

        def fit(self) -> None: ...

        def predict(self, texts: list[str]) -> list[str]:
            return ["good" if "good" in text else "bad" for text in texts]

    hard = wrap(OnlyPredicts(), labels=("good", "bad"))
    assert hard.scores(texts).tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    with pytest.raises(UsageError, match="3 classes"):
        sklearn_victim(numbers, ("bad", "good"))
    with pytest.raises(UsageError, match="fit it first"):
        sklearn_victim(LogisticRegression())


# ---------------------------------------------------------------------- HTTP


@contextmanager
def service(answer: Callable[[Any, int], tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[Any]]]:
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((time.monotonic(), body, dict(self.headers)))
            status, headers, content = answer(body, len(requests))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/classify", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def lengths(body: Any) -> bytes:
    return json.dumps({"scores": [[0.1, 0.9] if len(text) > 1 else [0.9, 0.1] for text in body["texts"]]}).encode()


def test_http_is_batched_and_rate_limited() -> None:
    with service(lambda body, n: (200, {}, lengths(body))) as (url, requests):
        victim = HttpVictim(url, LABELS, batch_size=2, requests_per_second=20, headers={"Authorization": "Bearer x"})
        assert isinstance(victim, Victim)
        start = time.monotonic()
        scores = victim.scores(as_texts(["aa", "b", "cc", "d", "ee"]))
        assert time.monotonic() - start >= 0.1  # the third request starts two turns after the first
        assert np.allclose(scores[:, 1], [0.9, 0.1, 0.9, 0.1, 0.9])
        assert [len(body["texts"]) for _, body, _ in requests] == [2, 2, 1]
        assert requests[0][2]["Authorization"] == "Bearer x"
        victim.scores([{"premise": "p", "hypothesis": "h"}])
        assert requests[-1][1] == {"texts": [{"premise": "p", "hypothesis": "h"}]}


def test_http_is_asked_again_when_that_may_help() -> None:
    def flaky(body: Any, n: int) -> tuple[int, dict[str, str], bytes]:
        return [(429, {"Retry-After": "0.01"}, b"slow down"), (503, {}, b""), (200, {}, lengths(body))][n - 1]

    with service(flaky) as (url, requests):
        assert HttpVictim(url, LABELS, backoff=0.01).scores(as_texts(["aa"])).shape == (1, 2)
        assert len(requests) == 3
    with service(lambda body, n: (500, {}, b"out of memory")) as (url, requests):
        with pytest.raises(VictimError, match=r"500.*out of memory"):
            HttpVictim(url, LABELS, backoff=0.001, retries=2).scores(as_texts(["a"]))
        assert len(requests) == 3
    with service(lambda body, n: (401, {}, b"who are you?")) as (url, requests):
        with pytest.raises(VictimError, match=r"401.*who are you"):
            HttpVictim(url, LABELS).scores(as_texts(["a"]))
        assert len(requests) == 1


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"<html>", "not answer with JSON"),
        (b'{"probabilities": [[0.5, 0.5]]}', "without 'scores'; it has probabilities"),
        (b'{"scores": [[0.5, 0.2, 0.3]]}', r"shape \(1, 3\)"),
    ],
)
def test_http_answers_that_cannot_be_used(content: bytes, match: str) -> None:
    with service(lambda body, n: (200, {}, content)) as (url, _), pytest.raises(VictimError, match=match):
        HttpVictim(url, LABELS).scores(as_texts(["a"]))


def test_http_labels_other_keys_hanging_and_absent_services() -> None:
    content = json.dumps({"labels": ["ham", "spam"], "scores": [[0.5, 0.5]]}).encode()
    with service(lambda body, n: (200, {}, content)) as (url, _):
        assert load_victim(url).labels == ("ham", "spam")
    with service(lambda body, n: (200, {}, json.dumps({"p": [0.7] * len(body["q"])}).encode())) as (url, _):
        victim = HttpVictim(url, LABELS, texts_key="q", scores_key="p")
        assert np.allclose(victim.scores(as_texts(["a", "b"])), [[0.3, 0.7]] * 2)
    with service(lambda body, n: (200, {}, b"[[0.5, 0.5]]")) as (url, _):
        assert HttpVictim(url, LABELS).scores(as_texts(["a"])).tolist() == [[0.5, 0.5]]

    def hang(body: Any, n: int) -> tuple[int, dict[str, str], bytes]:
        time.sleep(0.5)
        return 200, {}, b"{}"

    with service(hang) as (url, requests):
        with pytest.raises(VictimTimeout, match=r"within 0\.05 s"):
            HttpVictim(url, LABELS, timeout=0.05, retries=1, backoff=0.001).scores(as_texts(["a"]))
        assert len(requests) == 2
    with pytest.raises(VictimUnreachable, match="cannot be reached"):
        HttpVictim(url, LABELS, retries=1, backoff=0.001).scores(as_texts(["a"]))
    for wrong in ({"url": "file:///etc/passwd"}, {"url": url, "batch_size": 0}, {"url": url, "timeout": 0}):
        with pytest.raises(UsageError):
            HttpVictim(labels=LABELS, **wrong)


# ---------------------------------------------------------------------- ONNX


def export(folder: Path, rows: int | str = "rows", length: int | str = "length", *, types: bool = False) -> Path:
    """A model that adds up one number per token and class, written by hand."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    shape = [rows, length]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in ("input_ids", "attention_mask")]
    if types:
        inputs.append(helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, shape))
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["words", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "second"], ["logits"], keepdims=0),
    ]
    tensors = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([-1]), "last"),
        numpy_helper.from_array(np.array([1]), "second"),
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [rows, 3])
    graph = helper.make_graph(nodes, "toy", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def expected_onnx(victim: OnnxVictim, texts: Sequence[str]) -> np.ndarray[Any, Any]:
    table = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    return softmax(np.stack([table[victim.tokenizer(text)["input_ids"]].sum(axis=0) for text in texts]))


@pytest.mark.parametrize(("rows", "length"), [("rows", "length"), (2, 12), (1, "length")])
def test_onnx(rows: int | str, length: int | str, encoder: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = export(tmp_path, rows, length, types=rows == 2)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((encoder("bert") / name).read_bytes())
    (tmp_path / "config.json").write_text('{"id2label": {"0": "a", "1": "b", "2": "c"}}', encoding="utf-8")
    victim = load_victim(file, outputs="logits")
    assert isinstance(victim, OnnxVictim)
    assert isinstance(victim, TokenVictim)
    assert victim.labels == ("a", "b", "c")
    texts = [*TEXTS[:3], "fine"]
    assert np.allclose(victim.scores(as_texts(texts)), expected_onnx(victim, texts), atol=1e-5)
    ids = np.array([victim.tokenizer("a fine film")["input_ids"]] * 3)
    assert np.allclose(victim.launch([TokenBatch(ids)])(), expected_onnx(victim, ["a fine film"] * 3), atol=1e-5)
    assert victim.max_tokens == (12 if length == 12 else 64)
    assert victim.launch([])().shape == (0, 3)
    assert OnnxVictim(file, ("x", "y", "z"), outputs="logits").labels == ("x", "y", "z")
    with pytest.raises(VictimError):
        OnnxVictim(file, ("x", "y"), outputs="logits").scores(as_texts(["a"]))


def test_onnx_files_that_cannot_be_used(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    file = export(tmp_path / "deep" / "deeper")
    with pytest.raises(ModelError, match="no tokenizer beside"):
        OnnxVictim(file)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "deep" / name).write_bytes((encoder("bert") / name).read_bytes())
    assert OnnxVictim(file, outputs="logits").labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    (file.parent / "torn.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="not an ONNX model"):
        OnnxVictim(file.parent / "torn.onnx")
    with pytest.raises(ModelError, match="no file"):
        OnnxVictim(file.parent / "absent.onnx")


# ---------------------------------------------------------------------- by name


def test_load_victim_by_folder(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    stock = AutoModelForSequenceClassification.from_pretrained(encoder("roberta"), num_labels=3)
    stock.save_pretrained(tmp_path / "stock")
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_victim(tmp_path / "stock")
    AutoTokenizer.from_pretrained(encoder("roberta")).save_pretrained(tmp_path / "stock")
    victim = load_victim(str(tmp_path / "stock"), device="cpu")
    assert isinstance(victim, ClassifierVictim)
    assert victim.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert victim.max_tokens == 64
    assert load_victim(tmp_path / "stock", labels=("x", "y", "z")).labels == ("x", "y", "z")
    encoded = victim.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = stock.eval()(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits
    assert np.allclose(victim.scores(as_texts(TEXTS)), expected.softmax(-1), atol=1e-6)
    Classifier.create(encoder("bert"), LABELS).save(tmp_path / "run" / "model")
    assert load_victim(tmp_path / "run").labels == LABELS


def test_load_victim_refuses_what_it_cannot_be(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        load_victim("./no/such/folder")
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        load_victim(tmp_path / "weights.bin")
    with pytest.raises(UsageError, match="cannot import"):
        load_victim("no_such_module:thing")
    with pytest.raises(UsageError, match="no attribute"):
        load_victim("json:thing")
    with pytest.raises(UsageError, match="cannot be attacked"):
        load_victim(3)
    with pytest.raises(UsageError, match="with its tokenizer"):
        load_victim(torch.nn.Linear(2, 2))
    from transformers import AutoModelForSequenceClassification

    for changes, match in (
        ({"num_labels": 1}, "1 outputs, regression"),
        ({"problem_type": "multi_label_classification"}, "multi_label"),
    ):
        model = AutoModelForSequenceClassification.from_pretrained(encoder("bert"), **changes)
        model.save_pretrained(tmp_path / "other")
        with pytest.raises(ModelError, match=match):
            load_victim(tmp_path / "other")


def test_load_victim_by_python_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "isthmus_test_service.py"
    module.write_text(
        "def classify(texts):\n    return [[0.5, 0.5]] * len(texts)\n\n"
        "class Box:\n    inner = staticmethod(classify)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path])
    victim = load_victim("isthmus_test_service:classify", labels=LABELS, timeout=5)
    assert isinstance(victim, CallableVictim)
    assert victim.timeout == 5
    assert victim.scores(as_texts(["a"])).tolist() == [[0.5, 0.5]]
    assert load_victim("isthmus_test_service:Box.inner").labels == ("LABEL_0", "LABEL_1")


def test_wrap_takes_what_a_program_has(classifier: Classifier, encoder: Callable[[str], Path]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    victim = wrap(classifier, device="cpu")
    assert isinstance(victim, ClassifierVictim)
    assert wrap(victim) is victim
    stock = AutoModelForSequenceClassification.from_pretrained(encoder("bert"), id2label={0: "ham", 1: "spam"})
    tokenizer = AutoTokenizer.from_pretrained(encoder("bert"))
    pipe = pipeline("text-classification", model=stock, tokenizer=tokenizer, device="cpu")
    from_pipe = wrap(pipe, device="cpu")
    assert isinstance(from_pipe, TokenVictim)
    assert from_pipe.labels == ("ham", "spam")
    both = {record["label"]: record["score"] for record in pipe("a fine film", top_k=None)}
    assert np.allclose(from_pipe.scores(as_texts(["a fine film"]))[0], [both["ham"], both["spam"]], atol=1e-6)


def test_unknown_backbones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.models.transformers_files.hub_answers", lambda: False)
    with pytest.raises(ModelError, match=r"no folder 'no-such-encoder' here.*cannot be reached$"):
        Classifier.create("no-such-encoder", LABELS)
    with pytest.raises(ModelError, match="Did you mean 'minilm'"):
        Classifier.create("minlm", LABELS)


def test_a_stochastic_bottleneck_is_seen_in_three_ways(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("bert"), ["bad", "good"])
    with pytest.raises(UsageError, match="no stochastic bottleneck"):
        ClassifierVictim(model, latent="sample")
    torch.manual_seed(0)
    model.fill(bottleneck=GaussianBottleneck(model.pooled_size, shift=1.0))
    texts = [{"text": "a fine film"}, {"text": "dull"}]
    keys = np.arange(2, dtype=np.uint64)
    mean = ClassifierVictim(model, latent="mean").scores(texts, keys)
    one = ClassifierVictim(model, latent="sample")
    assert one.stochastic
    assert np.array_equal(one.scores(texts, keys), one.scores(texts, keys))
    assert not np.array_equal(one.scores(texts, keys), one.scores(texts, keys + np.uint64(9)))
    first, many = one.scores(texts, keys), ClassifierVictim(model, latent="sample", draws=400).scores(texts, keys)
    assert np.abs(many.sum(axis=1) - 1).max() < 1e-5
    again = ClassifierVictim(model, latent="sample", draws=400).scores(texts, keys + np.uint64(7))
    assert np.abs(many - again).max() < np.abs(first - many).max() + 0.1
    assert not np.array_equal(mean, many)


@pytest.mark.parametrize("form", ["bert", "lstm"])
@pytest.mark.parametrize("draws", [1, 3])
def test_a_bottleneck_draws_again_without_reading_the_text_again(encoder, monkeypatch, form, draws):
    source = encoder("bert") if form == "bert" else "lstm"
    own = (
        {} if form == "bert" else {"texts": [" ".join(f"w{at}" for at in range(40))] * 3, "options": {"vectors": None}}
    )
    model = Classifier.create(source, LABELS, **own)
    torch.manual_seed(0)
    model.fill(bottleneck=GaussianBottleneck(model.pooled_size, shift=1.0))
    victim = ClassifierVictim(model, latent="sample", draws=draws)
    texts = np.arange(5, 29).reshape(4, 6)
    ids = np.repeat(texts, [8, 1, 3, 8], axis=0)
    keys = np.arange(20, dtype=np.uint64) * np.uint64(2**60 + 7)
    alone = [victim.launch([TokenBatch(ids[at : at + 1], keys=keys[at : at + 1])])()[0] for at in range(20)]
    read: list[int] = []
    encode = type(model.backbone).forward

    def counted(self, given, *others, **options):
        read.append(len(given))
        return encode(self, given, *others, **options)

    monkeypatch.setattr(type(model.backbone), "forward", counted)
    together = victim.launch([TokenBatch(ids, keys=keys)])()
    assert np.array_equal(together, np.array(alone))
    assert len({row.tobytes() for row in together}) == 20
    if form == "bert":
        assert sum(read) < 20


def test_a_gpu_too_small_for_a_batch_is_asked_for_less_of_it(encoder, monkeypatch):
    from isthmus.engine.packing import Packed, launch_batches

    victim = ClassifierVictim(Classifier.create(encoder("bert"), ("no", "yes")))
    ids = np.full((40, 5), 7, np.int64)
    whole = victim.launch([TokenBatch(ids)])()
    forward = type(victim.model).forward

    def small(self, ids, *others, **options):
        if len(ids) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, ids, *others, **options)

    monkeypatch.setattr(type(victim.model), "forward", small)
    with pytest.raises(VictimError, match="out of memory"):
        victim.launch([TokenBatch(ids)])
    scores, lost = launch_batches(victim.launch, Packed([TokenBatch(ids)], np.arange(40)), lambda seconds: None)()
    assert not lost
    assert np.allclose(scores, whole, atol=1e-6)
