import pytest
import torch
import training_toys as toys

from isthmus.core.errors import UsageError
from isthmus.core.types import Classification
from isthmus.measures import AnchoredWords, Subject
from isthmus.measures.anchored_words import ANCHORED, NON_ROBUST, UNUSEFUL, token_kinds
from isthmus.measures.base import Asked, Facts
from isthmus.models import Classifier


def test_the_kinds_are_the_bands_of_the_ranks():
    norms = torch.tensor([5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 10.0, 6.0])
    kinds, ranks = token_kinds(norms, 0.5, 0.9)
    assert ranks == [4, 0, 8, 2, 6, 1, 7, 3, 9, 5]
    assert [kind for _, kind in sorted(zip(ranks, kinds, strict=True))] == [UNUSEFUL] * 5 + [ANCHORED] * 4 + [
        NON_ROBUST
    ]


@pytest.mark.parametrize("length", range(1, 8))
def test_a_short_sentence_has_an_anchor(length):
    kinds, ranks = token_kinds(torch.rand(length), 0.5, 0.55)
    assert kinds.count(ANCHORED) >= 1
    if kinds.count(ANCHORED) == 1 and length < 8:
        assert ranks[kinds.index(ANCHORED)] == length // 2
    # Below the anchors lies what is unuseful, above them what is not robust.
    by_rank = [kind for _, kind in sorted(zip(ranks, kinds, strict=True))]
    assert by_rank == sorted(by_rank, key=[UNUSEFUL, ANCHORED, NON_ROBUST].index)


def test_pieces_are_the_text():
    model, splits = toys.classifier(), toys.splits()
    found = AnchoredWords()(model, splits, n=5, splits=("dev",))
    assert len(found.texts) == 5
    shown = {"".join(piece for piece, _ in text.pieces) for text in found.texts}
    assert shown == {example.texts["text"] for example in splits.dev.sample(5)}
    assert sum(figure.estimate for figure in found.figures) == pytest.approx(1.0)
    assert AnchoredWords()(model, splits, n=5, splits=("dev",)) == found


def test_a_word_is_its_most_influential_sub_word():
    """`fine-dull` is one word of three tokens here: it has the largest of their ranks."""
    model, splits = toys.classifier(), toys.splits()
    found = AnchoredWords()(model, splits, texts=("the fine-dull film was very",))
    (row,) = found.details["texts"]
    words = {word["word"]: word for word in row["words"]}
    assert set(words) == {"the", "fine-dull", "film", "was", "very"}
    ids = model.encode([{"text": "the fine-dull film was very"}])["input_ids"]
    embeddings = model.embed(ids).detach().requires_grad_()
    logits = model(input_ids=ids, inputs_embeds=embeddings).logits
    loss = torch.nn.functional.cross_entropy(logits, logits.argmax(-1))
    norms = torch.autograd.grad(loss, embeddings)[0][0].norm(dim=-1)
    ranks = norms.argsort().argsort()
    assert words["fine-dull"]["rank"] == int(ranks[2:5].max())
    assert words["the"]["rank"] == int(ranks[1])


def test_the_run_s_own_band_is_taken():
    subject = Subject.of(toys.classifier(), toys.splits(), Asked(texts=("a film",)))
    subject.facts = Facts("infobert", {"lowest": 0.25, "highest": 0.75})
    assert AnchoredWords().measure(subject).details["lowest"] == 0.25
    assert AnchoredWords(lowest=0.1).measure(subject).details["lowest"] == 0.1
    with pytest.raises(UsageError, match="choose 0 <= lowest < highest <= 1"):
        AnchoredWords(lowest=0.9).measure(subject)


def test_pairs_are_cut_field_by_field():
    base = toys.classifier()
    model = Classifier(
        base.backbone, base.tokenizer, Classification(("bad", "good"), ("premise", "hypothesis")), max_tokens=24
    )
    subject = Subject.of(model.eval(), toys.splits(), Asked(texts=("the film was dull ||| a fine plot",)))
    (text,) = AnchoredWords().measure(subject).texts
    assert "".join(piece for piece, _ in text.pieces) == "the film was dull ||| a fine plot"
    subject = Subject.of(model.eval(), toys.splits(), Asked(texts=("one text",)))
    with pytest.raises(UsageError, match="premise and hypothesis"):
        AnchoredWords().measure(subject)


def test_words_behind_the_limit_have_no_kind():
    model = toys.classifier()
    text = " ".join(["film"] * 40)
    (row,) = AnchoredWords()(model, toys.splits(), texts=(text,)).details["texts"]
    kinds = [word["kind"] for word in row["words"]]
    assert all(kinds[: model.max_tokens - 2])
    assert not any(kinds[model.max_tokens - 2 :])
