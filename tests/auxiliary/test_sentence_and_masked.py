"""Sentence vectors and blanks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertModel

from isthmus import assets
from isthmus.auxiliary import TransformerMaskedLM, TransformerSentenceEncoder, load_encoder, load_masked_lm
from isthmus.auxiliary import masked_lm as masked
from isthmus.auxiliary import sentence_encoder as sentence
from isthmus.auxiliary.minilm_mlm import load_minilm_mlm
from isthmus.core.errors import ModelError, UsageError, VictimError
from isthmus.core.types import MaskedLM, SentenceEncoder, TokenBatch, TokenEncoder, TokenMaskedLM

TEXTS = ["a fine film", "", "the story was dull, and nobody saw it twice", "fine", "dull film !"]


def test_sentence_vectors_are_normalised_means(encoder: Callable[[str], Path]) -> None:
    folder = encoder("mpnet")
    ours = TransformerSentenceEncoder(folder, device="cpu")
    assert isinstance(ours, SentenceEncoder)
    assert isinstance(ours, TokenEncoder)
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


def test_rough_vectors_are_as_near_as_they_say(encoder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = TransformerSentenceEncoder(encoder("bert"), device="cpu")
    assert ours.rough_error is None  # float16 gains nothing on a CPU
    error = ours._largest_error()
    assert error is not None
    assert 0 < error < 0.02
    ids = np.random.default_rng(5).integers(5, 30, (64, 12))
    mask = np.ones_like(ids)
    mask[::2, 9:] = 0
    batches = [TokenBatch(ids[:40]), TokenBatch(ids[40:], mask[40:])]
    exact, rough = (way(batches)() for way in (ours.launch, ours.launch_roughly))
    assert rough.dtype == np.float32
    assert 0 < np.abs(exact @ exact.T - rough @ rough.T).max() <= error
    monkeypatch.setattr(ours, "launch_roughly", lambda batches: lambda: np.full((len(batches[0].ids), 32), np.inf))
    assert ours._largest_error() is None  # it overflows


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


def test_any_number_of_blanks_a_row(masked_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = TransformerMaskedLM(masked_folder, device="cpu")
    assert isinstance(ours, TokenMaskedLM)
    batches = [
        TokenBatch(np.array(ours.tokenizer(texts)["input_ids"]))
        for texts in (["a <mask> film", "it was <mask>"], ["a <mask> film was fine", "it was not a film"])
    ]
    rows, places = np.array([3, 0, 0, 2, 1, 0]), np.array([4, 1, 2, 5, 3, 2])
    reference = AutoModelForMaskedLM.from_pretrained(masked_folder).eval()
    with torch.no_grad():
        logits = [row for batch in batches for row in reference(input_ids=torch.from_numpy(batch.ids)).logits]
    chances = torch.stack([logits[row][place] for row, place in zip(rows, places, strict=True)]).softmax(-1)
    size = chances.shape[1]
    allowed = np.arange(size) % 3 == 1
    best = (chances * torch.from_numpy(allowed)).topk(4)
    tokens, weights = ours.launch_fill(batches, rows, places, 4, allowed)()
    assert np.array_equal(tokens, best.indices)
    assert np.allclose(weights, best.values, atol=1e-6)
    few, none = ours.launch_fill(batches, rows, places, 4, np.arange(size) == 6)()
    assert (few[:, 0] == 6).all()
    assert (none[:, 1:] == 0).all()
    wanted = np.arange(len(rows)) + 5
    found = ours.launch_likelihood(batches, rows, places, wanted)()
    assert np.allclose(found, chances.log()[np.arange(len(rows)), wanted], atol=1e-5)
    # The same bits whatever is filled together.
    monkeypatch.setattr("isthmus.auxiliary.masked_lm._AT_ONCE", {False: (8, 1)})
    apart, alone = ours.launch_fill(batches, rows, places, 4, allowed)()
    assert np.array_equal(apart, tokens)
    assert np.array_equal(alone, weights)
    assert ours.launch_fill([], rows[:0], places[:0], 4, allowed)()[0].shape == (0, 4)
    assert ours.launch_likelihood([], rows[:0], places[:0], wanted[:0])().shape == (0,)


def test_what_cannot_fill_blanks(encoder: Callable[[str], Path], masked_folder: Path) -> None:
    with pytest.raises(ModelError, match="without a masked-language-model head"):
        TransformerMaskedLM(encoder("bert"))
    ours = TransformerMaskedLM(masked_folder, device="cpu")
    batch = TokenBatch(np.full((2, 5), 6))
    for positions, k in ((np.array([1]), 3), (np.array([1, 5]), 3), (np.array([1, 1]), 0), (np.array([1, 1]), 10_000)):
        with pytest.raises(UsageError):
            ours.fill(batch, positions, k)


def test_models_are_loaded_once(
    encoder: Callable[[str], Path], masked_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_encoder(str(encoder("bert"))) is load_encoder(str(encoder("bert")))
    assert load_masked_lm(str(masked_folder)) is load_masked_lm(str(masked_folder))
    for module, load, kind, cached in (
        (masked, load_masked_lm, "TransformerMaskedLM", masked._load_masked_lm),
        (sentence, load_encoder, "TransformerSentenceEncoder", sentence._load_encoder),
    ):
        cached.cache_clear()
        monkeypatch.setattr(module, kind, lambda name: [name])
        assert load() is load("minilm")
        cached.cache_clear()


def test_rows_longer_than_the_model_reads(masked_folder: Path) -> None:
    ours = TransformerMaskedLM(masked_folder, device="cpu")
    row = np.full((1, ours.max_tokens + 1), 6)
    with pytest.raises(UsageError, match=f"at most {ours.max_tokens} tokens"):
        ours.fill(TokenBatch(row), np.array([1]), 3)


def test_shipped_differences_make_a_masked_language_model(tmp_path: Path) -> None:
    """On a random encoder of MiniLM's shape: what the equations of `minilm_mlm` say, written out once more."""
    shape = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        base = BertModel(shape).eval()
    base.save_pretrained(tmp_path)
    ours = load_minilm_mlm(tmp_path).eval()
    before, after = base.state_dict(), ours.bert.state_dict()
    change = after["encoder.layer.2.output.dense.weight"] - before["encoder.layer.2.output.dense.weight"]
    steps = change.abs().max(dim=1, keepdim=True).values / 1.5
    assert torch.allclose((change / steps * 2).round() / 2 * steps, change, atol=1e-6)
    assert set((change / steps * 2).round().unique().tolist()) == {-3.0, -1.0, 1.0, 3.0}
    words = after["embeddings.word_embeddings.weight"] - before["embeddings.word_embeddings.weight"]
    assert words.abs().sum(dim=1).nonzero().flatten().tolist() == [103]
    ids = torch.tensor([[101, 2003, 103, 2000, 102]])
    with torch.inference_mode():
        hidden = ours.bert(input_ids=ids).last_hidden_state
        head = ours.cls.predictions
        inner = torch.nn.functional.gelu(head.transform.dense(hidden))
        inner = torch.nn.functional.layer_norm(
            inner, (384,), head.transform.LayerNorm.weight, head.transform.LayerNorm.bias, 1e-12
        )
        # The decoder reads the encoder's own table, without the mask's shift, up to a correction of rank 16.
        correction = head.decoder.weight - before["embeddings.word_embeddings.weight"]
        assert torch.linalg.matrix_rank(correction[:1000], rtol=1e-3) == 16
        logits = inner @ head.decoder.weight.T + head.bias
        assert torch.allclose(ours(input_ids=ids).logits, logits, atol=1e-4)
    BertModel(
        BertConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=32)
    ).save_pretrained(tmp_path / "small")
    with pytest.raises(ModelError, match="not all-MiniLM-L6-v2"):
        load_minilm_mlm(tmp_path / "small")


@pytest.mark.skipif(not assets.available("minilm"), reason="needs the minilm asset")
def test_minilm_fills_blanks() -> None:
    ours = TransformerMaskedLM("minilm", device="cpu")
    assert ours.max_tokens == 128
    ids = np.array([ours.tokenizer("the capital of france is [MASK] .")["input_ids"]])
    tokens, chances = ours.fill(TokenBatch(ids), np.array([6]), 10)
    words = ours.tokenizer.convert_ids_to_tokens(tokens[0].tolist())
    assert words[0] == "paris"
    assert {"london", "vienna", "rome"} <= set(words)
    assert (np.diff(chances[0]) <= 0).all()
