"""What enters the first block of an encoder is its embedding block's output, whichever encoder it is."""

import contextlib

import pytest
import torch

from isthmus.defences.base import Batch
from isthmus.information.mutual_information import mean_spread
from isthmus.models import Classifier
from isthmus.training.epoch_information import EpochInformation, Tally, first_block_width

TEXTS = [{"text": "a moving, quiet film"}, {"text": "the story was very very dull"}, {"text": "fine."}]


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5"])
def test_of_every_encoder(encoder, name):
    check(Classifier.create(encoder(name), ["bad", "good"]))


@pytest.mark.parametrize("name", ["lstm", "cnn"])
def test_of_word_models(name):
    check(Classifier.create(name, ["bad", "good"], texts=[text["text"] for text in TEXTS]))


def check(model: Classifier) -> None:
    inputs = model.eval().encode(TEXTS)
    information = EpochInformation(
        model, contextlib.nullcontext, lambda: [], first_block_width(model), 2, model.backbone.blocks()[0]
    )
    with torch.no_grad(), information.watching(True) as tally:
        assert isinstance(tally, Tally)
        tally(model(**inputs), Batch(inputs, torch.tensor([0, 1, 1])))
    with torch.no_grad():
        hidden = model(**inputs, hidden=True).hidden
    wanted = float(mean_spread(hidden[0], inputs["attention_mask"]))
    assert tally.figures()["spread"] == pytest.approx(wanted, rel=1e-4, abs=1e-6)
