from __future__ import annotations

import pytest

from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import Answer, Classification, Example, QuestionAnswering
from isthmus.data import Dataset, Splits


def question(identity: str, context: str, answer: str = "x") -> Example:
    return Example(identity, {"question": "who?", "context": context}, (Answer(0, answer),))


def questions(*rows: Example, split: str = "train") -> Dataset:
    return Dataset("toy", split, QuestionAnswering(), rows)


def test_samples_keep_variants_together_and_are_nested() -> None:
    data = questions(*(question(f"q{n}{suffix}", "x") for n in range(10) for suffix in ("", "-a", "-b")))
    small, large = data.sample(6, seed=2), data.sample(9, seed=2)
    assert [e.id for e in large][:6] == [e.id for e in small]
    bases = [e.id.split("-")[0] for e in small]
    assert bases == [bases[0]] * 3 + [bases[3]] * 3
    assert [e.id for e in small] != [e.id for e in data][:6]
    assert len(data.sample(None)) == 30


def test_questions_about_one_text_are_not_parted() -> None:
    data = questions(*(question(f"q{n}-{k}", f"text {n}") for n in range(20) for k in range(3)))
    splits = Splits("toy", {"train": data}).with_dev(seed=1)
    train, dev = ({e.fields["context"] for e in splits[part]} for part in ("train", "dev"))
    assert not train & dev
    assert len(splits.dev) == 6
    with pytest.raises(DataError, match="all about the same text"):
        Splits("toy", {"train": questions(question("a", "t"), question("b", "t"))}).with_dev()


def test_the_fingerprint_knows_answers_and_ids() -> None:
    one = questions(question("a", "x"))
    assert one.fingerprint == questions(question("a", "x")).fingerprint
    others = [questions(question("b", "x")), questions(question("a", "y")), questions(question("a", "x", "z"))]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_questions_have_no_labels() -> None:
    data = questions(question("a", "x"))
    assert data.align_labels(()) is data
    assert "qa" in repr(data)
    with pytest.raises(DataError, match="holds questions, and the model is one for examples with the labels a, b"):
        data.align_labels(("a", "b"))
    with pytest.raises(DataError, match="no class label"):
        data.label_indices()
    with pytest.raises(UsageError, match="no labels"):
        data.sample(1, only_label="a")
    labelled = Dataset("l", "test", Classification(("a", "b")), (Example("1", {"text": "x"}, 0),))
    with pytest.raises(DataError, match="holds examples with the labels a, b, and the model is one for questions"):
        labelled.align_labels(())
