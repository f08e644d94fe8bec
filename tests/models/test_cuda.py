"""What differs on a GPU: one copy in, one wait, other kernels, the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from isthmus.auxiliary import TransformerMaskedLM, TransformerSentenceEncoder
from isthmus.core.types import TokenBatch
from isthmus.models import Classifier, ClassifierVictim, Noise

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

LABELS = ("negative", "positive")


class Shake(Noise):
    """Always on."""

    stochastic = True
    layers = (0, 1)

    def forward(self, layer: int, hidden: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        return hidden + 0.3 * self.stream.normal(hidden, tag=layer)


def rows(count: int, length: int, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(5, 50, (count, length))


def batches() -> list[TokenBatch]:
    padded = rows(6, 9)
    mask = np.ones_like(padded)
    padded[3:, 5:], mask[3:, 5:] = 0, 0
    keys = np.arange(3, dtype=np.uint64)
    return [
        TokenBatch(rows(5, 4), types=np.zeros((5, 4), dtype=np.int64)),
        TokenBatch(padded, mask=mask),
        TokenBatch(rows(3, 30), keys=keys),
        TokenBatch(rows(1, 2)),
    ]


@pytest.mark.parametrize("noisy", [False, True])
def test_the_gpu_gives_the_cpus_numbers(noisy: bool, encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("bert"), LABELS)
    work = [batch for batch in batches() if batch.keys is not None] if noisy else batches()
    if noisy:
        model.fill(noise=Shake())
    expected = ClassifierVictim(model).launch(work)()
    victim = ClassifierVictim(model.to("cuda"), "bf16")
    assert victim.device_type == "cuda"
    exact = victim.launch(work, exact=True)
    assert np.allclose(exact(), expected, atol=1e-4)
    assert np.array_equal(exact(), victim.launch(work, exact=True)())
    assert np.allclose(victim.launch(work)(), expected, atol=3e-2)
    assert victim.launch([])().shape == (0, 2)


@pytest.mark.parametrize("architecture", ["roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5"])
def test_padding_on_the_gpu(architecture: str, encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder(architecture), LABELS)
    expected = ClassifierVictim(model).launch(batches()[1:2])()
    assert np.allclose(ClassifierVictim(model.to("cuda")).launch(batches()[1:2])(), expected, atol=1e-4)


def test_a_launch_waits_for_nothing(encoder: Callable[[str], Path]) -> None:
    victim = ClassifierVictim(Classifier.create(encoder("bert"), LABELS).to("cuda"))
    victim.launch(batches())()
    torch.cuda.set_sync_debug_mode("error")
    try:
        pending = victim.launch(batches())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.isfinite(pending()).all()


@pytest.mark.parametrize("architecture", ["bert", "lstm", "cnn"])
def test_gradients_on_the_gpu(architecture: str, encoder: Callable[[str], Path]) -> None:
    if architecture == "bert":
        model = Classifier.create(encoder("bert"), LABELS)
    else:
        texts = [" ".join(f"w{n}" for n in range(60))]
        model = Classifier.create(architecture, LABELS, texts=texts, options={"vectors": None, "width": 16})
    batch, labels = TokenBatch(rows(6, 7)), np.array([0, 1, 0, 1, 1, 0])
    expected = ClassifierVictim(model).embedding_gradients(batch, labels)
    assert np.allclose(ClassifierVictim(model.to("cuda")).embedding_gradients(batch, labels), expected, atol=1e-4)


def test_sentences_on_the_gpu(encoder: Callable[[str], Path]) -> None:
    texts = ["a fine film", "dull", ""]
    expected = TransformerSentenceEncoder(encoder("mpnet"), device="cpu").encode(texts)
    assert np.allclose(TransformerSentenceEncoder(encoder("mpnet"), device="cuda").encode(texts), expected, atol=1e-4)


def test_sentences_and_blanks_wait_for_nothing(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_pretrained(encoder("bert")).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder("bert")).save_pretrained(tmp_path)
    blanks, places = np.array([5, 0, 2, 0]), np.array([2, 1, 3, 0])
    allowed = np.arange(50) > 7
    expected, found = list[object](), list[object]()
    for device, results in (("cpu", expected), ("cuda", found)):
        sentences = TransformerSentenceEncoder(encoder("bert"), device=device)
        filler = TransformerMaskedLM(tmp_path, device=device)

        def launches(
            sentences: TransformerSentenceEncoder = sentences, filler: TransformerMaskedLM = filler
        ) -> list[Callable[[], object]]:
            return [
                sentences.launch(batches()[:2]),
                filler.launch_likelihood(batches()[:2], blanks, places, np.array([9, 8, 7, 6])),
                filler.launch_fill(batches()[:2], blanks, places, 3, allowed),
            ]

        for wait in launches():  # what is done once only
            wait()
        torch.cuda.set_sync_debug_mode("error")
        try:
            pending = launches()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        results += [wait() for wait in pending]
    assert np.allclose(found[0], expected[0], atol=1e-4)
    assert np.allclose(found[1], expected[1], atol=1e-3)
    assert np.array_equal(found[2][0], expected[2][0])  # type: ignore[index]
    assert np.allclose(found[2][1], expected[2][1], atol=1e-4)  # type: ignore[index]


def test_normal_draws_of_one_kernel_are_those_of_many_to_the_bit():
    from isthmus.arithmetic import randomness

    keys = torch.randint(-(2**62), 2**62, (37,), device="cuda")
    at_once = randomness._draw_at_once(keys, 33 * 64, 5)
    assert at_once is not None
    assert torch.equal(at_once, randomness._draw_in_parts(keys, 33 * 64, 5))
    odd = randomness.draw_normal(keys, (37, 3, 5), 5)
    assert torch.allclose(odd.cpu(), randomness.draw_normal(keys.cpu(), (37, 3, 5), 5), atol=1e-5)
