"""Sentence vectors and blanks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from isthmus.core.errors import ModelError, UsageError, VictimError
from isthmus.core.types import MaskedLM, SentenceEncoder, TokenBatch
from isthmus.models import TransformerMaskedLM, TransformerSentenceEncoder

TEXTS = ["a fine film", "", "the story was dull, and nobody saw it twice", "fine", "dull film !"]


def test_sentence_vectors_are_normalised_means(encoder: Callable[[str], Path]) -> None:
    folder = encoder("mpnet")
    ours = TransformerSentenceEncoder(folder, device="cpu")
    assert isinstance(ours, SentenceEncoder)
    assert ours.name == str(folder)
    vectors = ours.encode(TEXTS)
    assert vectors.shape == (5, 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = encoded["attention_mask"].unsqueeze(-1)
    with torch.no_grad():
        hidden = model(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]).last_hidden_state
    mean = (hidden * mask).sum(1) / mask.sum(1)
    assert np.allclose(vectors, torch.nn.functional.normalize(mean, dim=-1), atol=1e-5)
    assert np.array_equal(ours.encode(TEXTS[::-1])[::-1], vectors)
    assert ours.encode([]).shape == (0, 32)


def test_sentence_settings_of_the_folder_are_kept(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    for file in encoder("bert").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 7}', encoding="utf-8")
    ours = TransformerSentenceEncoder(tmp_path, device="cpu")
    assert ours.max_tokens == 7
    long = ours.encode(["fine film " * 40, "fine film " * 50])
    assert np.array_equal(long[0], long[1])
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    first = TransformerSentenceEncoder(tmp_path, device="cpu").encode(TEXTS)
    assert not np.allclose(first, ours.encode(TEXTS), atol=1e-3)


def test_a_sentence_that_cannot_be_encoded_is_an_error(encoder: Callable[[str], Path]) -> None:
    ours = TransformerSentenceEncoder(encoder("bert"), device="cpu")
    with torch.no_grad():
        ours.model.get_input_embeddings().weight[8] = float("nan")
    bad = ours.tokenizer.convert_ids_to_tokens(8)
    with pytest.raises(VictimError, match=f"NaN for 'fine {bad}'"):
        ours.encode(["fine", f"fine {bad}"])


@pytest.fixture(scope="module", params=["bert", "roberta", "distilbert", "mpnet", "electra", "deberta-v2", "albert"])
def masked_folder(
    request: pytest.FixtureRequest, encoder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = AutoModelForMaskedLM.from_pretrained(encoder(request.param))
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder(request.param)).save_pretrained(folder)
    return folder


def test_blanks_are_filled_as_the_model_says(masked_folder: Path) -> None:
    ours = TransformerMaskedLM(masked_folder, device="cpu")
    assert isinstance(ours, MaskedLM)
    ids = np.array(ours.tokenizer(["a <mask> film", "it was <mask>"])["input_ids"])
    positions = np.array([2, 3])
    assert (ids[[0, 1], positions] == ours.tokenizer.mask_token_id).all()
    tokens, chances = ours.fill(TokenBatch(ids), positions, 5)
    assert tokens.shape == chances.shape == (2, 5)
    with torch.no_grad():
        reference = AutoModelForMaskedLM.from_pretrained(masked_folder).eval()(input_ids=torch.from_numpy(ids)).logits
    best = reference[torch.arange(2), torch.from_numpy(positions)].softmax(-1).topk(5)
    assert np.array_equal(tokens, best.indices)
    assert np.allclose(chances, best.values, atol=1e-6)
    many = np.repeat(ids, 900, axis=0)
    again, _ = ours.fill(TokenBatch(many, mask=np.ones_like(many)), np.repeat(positions, 900), 5)
    assert (again[::900] == tokens).all()


def test_what_cannot_fill_blanks(encoder: Callable[[str], Path], masked_folder: Path) -> None:
    with pytest.raises(ModelError, match="without a masked-language-model head"):
        TransformerMaskedLM(encoder("bert"))
    ours = TransformerMaskedLM(masked_folder, device="cpu")
    batch = TokenBatch(np.full((2, 5), 6))
    for positions, k in ((np.array([1]), 3), (np.array([1, 5]), 3), (np.array([1, 1]), 0), (np.array([1, 1]), 10_000)):
        with pytest.raises(UsageError):
            ours.fill(batch, positions, k)
