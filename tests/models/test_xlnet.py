"""XLNet: no limit on positions, tokens before texts inside, and the last token for the whole text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isthmus.core.errors import ModelError
from isthmus.core.types import QuestionAnswering, TokenBatch
from isthmus.models import Classifier, ClassifierVictim, load_model
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise
from isthmus.models.pretrained import token_limit

LABELS = ("negative", "positive")


@pytest.fixture(scope="module")
def classifier(encoder: Callable[[str], Path]) -> Classifier:
    return Classifier.create(encoder("xlnet"), LABELS, seed=1)


def test_where_nothing_limits_the_length_512_tokens_are_read(classifier: Classifier) -> None:
    encoder: Any = classifier.backbone.model
    config = encoder.config
    assert config.max_position_embeddings == -1
    assert classifier.max_tokens == 64  # as its tokenizer says
    without = classifier.tokenizer.__class__(tokenizer_object=classifier.tokenizer.backend_tokenizer)
    assert token_limit(without, config) == 512


def test_padding_on_either_side_changes_nothing(classifier: Classifier) -> None:
    rows = [[2, 5, 6, 7, 3], [2, 9, 3], [2, 5, 8, 9, 10, 11, 3]]
    alone = [classifier(torch.tensor([row])) for row in rows]
    for on_the_left in (False, True):
        ids, mask = torch.zeros(3, 9, dtype=torch.long), torch.zeros(3, 9, dtype=torch.long)
        for number, row in enumerate(rows):
            place = slice(9 - len(row), 9) if on_the_left else slice(0, len(row))
            ids[number, place], mask[number, place] = torch.tensor(row), 1
        together = classifier(ids, mask, hidden=True)
        assert together.embeddings.shape == (3, 9, 32)
        for number, (row, single) in enumerate(zip(rows, alone, strict=True)):
            own = mask[number].bool()
            assert torch.allclose(together.logits[number], single.logits[0], atol=1e-5)
            assert torch.equal(together.embeddings[number, own], single.embeddings[0])
            whole = classifier(torch.tensor([row]), hidden=True)
            for states, expected in zip(together.hidden, whole.hidden, strict=True):
                assert torch.allclose(states[number, own], expected[0], atol=1e-5)


def test_a_padded_batch_scores_as_rows_of_their_own(classifier: Classifier) -> None:
    victim = ClassifierVictim(classifier)
    ids = np.array([[2, 5, 6, 3, 0, 0], [2, 5, 6, 7, 8, 3]])
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    padded = victim.launch([TokenBatch(ids, mask)])()
    assert np.allclose(padded[0], victim.launch([TokenBatch(ids[:1, :4])])()[0], atol=1e-5)
    assert np.allclose(padded[1], victim.launch([TokenBatch(ids[1:])])()[0], atol=1e-5)


def test_answers_are_found_where_they_are_despite_padding(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("xlnet"), task=QuestionAnswering(), seed=1)
    row = torch.tensor([[2, 5, 6, 7, 3]])
    padded, mask = torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 8, dtype=torch.long)
    padded[0, :5], mask[0, :5] = row[0], 1
    assert torch.allclose(model(padded, mask).logits[:, :, :5], model(row).logits, atol=1e-5)


def test_the_spread_of_what_enters_the_first_block_leaves_padding_out(classifier: Classifier) -> None:
    from isthmus.defences.base import Batch
    from isthmus.training.epoch_information import EpochInformation

    found = []
    for padding in (0, 4):
        ids = torch.tensor([[2, 5, 6, 7, 3, *[0] * padding]])
        mask = torch.tensor([[1] * 5 + [0] * padding])
        information = EpochInformation(
            classifier, torch.no_grad, lambda: [], 32, 2, first_block=classifier.backbone.blocks()[0]
        )
        batch = Batch({"input_ids": ids, "attention_mask": mask}, torch.tensor([0]))
        with information.watching(True) as tally, torch.no_grad():
            assert tally is not None
            tally(classifier.eval()(**batch.inputs), batch)
        found.append(tally.figures()["spread"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_it_is_saved_and_read_back_to_the_bit(classifier: Classifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "model")
    row = torch.tensor([[2, 5, 6, 7, 3]])
    assert torch.equal(load_model(tmp_path / "model")(row).logits, classifier(row).logits)


def test_noise_on_its_blocks_is_refused(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("xlnet"), LABELS)
    with pytest.raises(ModelError, match="noise cannot be put on the blocks of XLNet"):
        model.fill(noise=GaussianNoise(0.1, layers=(1,)))


def test_noise_on_its_word_embeddings_works(encoder: Callable[[str], Path]) -> None:
    model = Classifier.create(encoder("xlnet"), LABELS).fill(noise=GaussianNoise(0.5, layers=(EMBEDDINGS,)))
    row = torch.tensor([[2, 5, 6, 3]])
    assert not torch.equal(model(row).logits, model(row).logits)
    assert model(row, copies=3).logits.shape == (3, 2)
