"""Defences and tiny encoders of every kind, for tests that combine them."""

from __future__ import annotations

import copy
import functools
import tempfile
from pathlib import Path

import training_toys as toys
from encoder_toys import save_encoder

from isthmus import defences
from isthmus.defences import Defence
from isthmus.models import Classifier

ARCHITECTURES = ["bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5", "lstm", "cnn"]
WORD_LEVEL = {"lstm", "cnn"}
SIZES = {"vectors": None, "width": 12, "hidden": 16, "filters": 6, "widths": (2, 3), "dropout": 0.3}

DEFENCES: dict[str, Defence] = {
    "freelb": defences.FreeLB(steps=2),
    "pgd": defences.PGD(steps=2, clean=0.5),
    "smart": defences.SMART(),
    "smart-released": defences.SMART(mode="released", proximal=0.0),
    "alum": defences.ALUM(),
    "infobert": defences.InfoBERT(),
    "infobert-freelb": defences.InfoBERT(adversary="freelb", steps=2),
    "infobert-paper-pgd": defences.InfoBERT(mode="paper", adversary="pgd", steps=2),
    "infobert-global": defences.InfoBERT(features="global"),
    "infobert-auxiliary": defences.InfoBERT(p_t_given_x="auxiliary"),
    "vib": defences.VIB(),
    "vub": defences.VUB(),
    "vub-batch-freelb": defences.VUB(cap="batch", adversary="freelb", steps=2),
}


@functools.cache
def built(architecture: str) -> Classifier:
    """A classifier on a tiny encoder; T5's tokenizer has no [CLS], and the word-level ones have none either."""
    if architecture in WORD_LEVEL:
        texts = [text for example in toys.dataset("train", 6, 0) for text in example.texts.values()]
        return Classifier.create(architecture, toys.TASK.labels, texts=texts, options=SIZES)
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(architecture, Path(folder), cls=architecture != "t5")
        return Classifier.create(folder, toys.TASK.labels)


def classifier(architecture: str) -> Classifier:
    return copy.deepcopy(built(architecture)).train()
