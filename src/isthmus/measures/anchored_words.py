"""Which words of a sentence are anchored, and which drive the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.measures.base import Figure, MarkedText, Measure, Measurement, Option, Subject

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.data import Dataset
    from isthmus.models import Classifier

UNUSEFUL, ANCHORED, NON_ROBUST = "unuseful", "anchored", "non-robust"
BETWEEN = " ||| "
"""Between the two texts of a pair, where one string holds both."""

WordPiece = tuple[str, str]


@dataclass(frozen=True)
class AnchoredWords(Measure):
    """The words of a sentence that are anchored, non-robust and unuseful by InfoBERT's definition (its Table 7).

        rank of a token = its place by ‖∂ℓ/∂e‖, smallest first, among the n tokens of its sentence
        unuseful < ceil(c_l n) <= anchored < ceil(c_h n) <= non-robust

    The model hardly reads the unuseful words; the non-robust ones move its answer most, so that an attack changes them
    first. A word is what the most influential of its sub-words is.

    References:
        Wang, Wang, Cheng, Gan, Jia, Li and Liu (2021), InfoBERT: Improving Robustness of Language Models from An
        Information Theoretic Perspective, https://arxiv.org/abs/2010.02329

    Where we depart:
        ℓ is the cross-entropy at the clean text, outside training: of the true label for texts of the data, of the
        predicted one for texts that were given. Special tokens take part in the ranks, as they do in training. In a
        sentence with no rank between the bounds the one token at rank floor(c_l n) is anchored.

    Relations:
        `anchored_information` says how much these words tell of the sentence. `infobert` trains on them.

    Example:
        ``isthmus measure runs/demo --measure anchored_words --text "a moving, quiet film"``
    """

    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "texts")

    lowest: float | None = None
    """Share of tokens below the anchored ones (c_l); none takes the run's own, or 0.5."""
    highest: float | None = None
    """Share of tokens up to the last anchored one (c_h); none takes the run's own, or 0.9."""

    def measure(self, subject: Subject) -> Measurement:
        """Mark the words of the given texts, or of the first ten of the split."""
        lowest, highest = band(self, subject)
        _check_model(subject.model)
        given = subject.asked.texts
        data = _make_dataset(subject, given) if given else _first_texts(subject)
        texts: list[MarkedText] = []
        rows: list[dict[str, Any]] = []
        for example, read in zip(data, read_word_list(subject, data, lowest, highest, bool(given)), strict=True):
            truth = None if given else subject.model.labels[int(example.label)]  # type: ignore[arg-type]
            predicted = subject.model.labels[read.prediction]
            title = f"{predicted}" if truth in (None, predicted) else f"{predicted}, truly {truth}"
            texts.append(MarkedText(title if given else f"{example.id} · {title}", read.pieces))
            rows.append({"id": example.id, "prediction": predicted, "label": truth, "words": read.words})
        kinds = [str(word["kind"]) for row in rows for word in row["words"]]
        shares = {kind: kinds.count(kind) / max(1, len(kinds)) for kind in (UNUSEFUL, ANCHORED, NON_ROBUST)}
        return Measurement(
            figures=tuple(Figure(f"{kind} words", share, share=True) for kind, share in shares.items()),
            texts=tuple(texts),
            legend={
                UNUSEFUL: f"the lowest {lowest:.0%} of gradients: hardly read",
                ANCHORED: f"from {lowest:.0%} to {highest:.0%}: useful and stable",
                NON_ROBUST: f"above {highest:.0%}: the words that drive the prediction",
            },
            details={"lowest": lowest, "highest": highest, "texts": rows},
        )


def band(given: Any, subject: Subject) -> tuple[float, float]:
    """The bounds of the anchored ranks: the given ones, else those of the run's InfoBERT, else the paper's for NLI."""
    facts, mark = subject.facts, "infobert."
    own = facts.parameters if facts.defence == "infobert" else {}
    if "infobert" in (facts.defence or "").split("+"):  # in a composition every parameter has its address
        own = {
            name.removeprefix(mark): value for name, value in facts.parameters.items() if name.startswith(mark)
        } or own
    lowest = float(given.lowest if given.lowest is not None else own.get("lowest", 0.5))
    highest = float(given.highest if given.highest is not None else own.get("highest", 0.9))
    if not 0 <= lowest < highest <= 1:
        raise UsageError(
            f"{given.name}: anchors lie between lowest = {lowest} and highest = {highest}; "
            "choose 0 <= lowest < highest <= 1"
        )
    return lowest, highest


@dataclass(frozen=True)
class Read:
    """One text with its words and their kinds."""

    pieces: tuple[WordPiece, ...]
    words: list[dict[str, Any]]
    prediction: int


def read_word_list(
    subject: Subject, data: Dataset, lowest: float, highest: float, of_prediction: bool
) -> Iterator[Read]:
    """Find the kind of every word of every text."""
    from isthmus.measures._features import gradients_of

    model = subject.model
    found = gradients_of(model, data, subject.asked.seed, of_prediction=of_prediction)
    for number, (example, gradient) in enumerate(zip(data, found, strict=True)):
        kinds, ranks = token_kinds(gradient.norms, lowest, highest)
        pieces, words = _cut_words(model, example, kinds, ranks)
        yield Read(tuple(pieces), words, int(gradient.prediction or 0))
        subject.step("reading", number + 1, len(data))


def _check_model(model: Classifier) -> None:
    if model.task.name != "classification":
        raise UsageError(f"anchored words are those of a text classifier; this model's task is {model.task.name}")
    if not model.tokenizer.is_fast:
        raise UsageError(
            "this tokenizer does not say where in the text its tokens lie: anchored words need a fast tokenizer"
        )


def token_kinds(norms: Tensor, lowest: float, highest: float) -> tuple[list[str], list[int]]:
    """Kind and rank of every token of one sentence."""
    import torch

    from isthmus.defences.parts.anchors import find_anchored, ranks

    gradient, mask = norms.view(1, -1, 1), torch.ones(1, len(norms))
    rank = ranks(gradient, mask)[0]
    chosen = find_anchored(gradient, mask, lowest, highest)[0]
    top = int(rank[chosen].max()) if bool(chosen.any()) else -1
    kinds = [
        ANCHORED if inside else NON_ROBUST if place > top else UNUSEFUL
        for inside, place in zip(chosen.tolist(), rank.tolist(), strict=True)
    ]
    return kinds, rank.tolist()


def _cut_words(
    model: Classifier, example: Example, kinds: Sequence[str], ranks: Sequence[int]
) -> tuple[list[WordPiece], list[dict[str, Any]]]:
    """Split the texts of an example into words; a word beyond the model's limit has no kind."""
    from isthmus.arithmetic.batching import columns_of
    from isthmus.text.words import Words

    encoded = model.tokenizer(
        *columns_of([example.texts], model.task.fields),
        truncation="longest_first",
        max_length=model.max_tokens,
        return_offsets_mapping=True,
    )
    spans, sides = encoded["offset_mapping"][0], encoded.sequence_ids(0)
    pieces: list[WordPiece] = []
    rows: list[dict[str, Any]] = []
    for side, field in enumerate(model.task.fields):
        text = example.texts[field]
        here = [
            (*span, rank, kind) for span, own, rank, kind in zip(spans, sides, ranks, kinds, strict=True) if own == side
        ]
        words = Words.of(text)
        end = 0
        for start, stop in words.offsets():
            over = [(rank, kind) for first, last, rank, kind in here if first < stop and last > start]
            rank, kind = max(over, default=(-1, ""))
            pieces += [(text[end:start], ""), (text[start:stop], kind)]
            rows.append({"field": field, "word": text[start:stop], "kind": kind, "rank": rank if over else None})
            end = stop
        pieces.append((text[end:] + (BETWEEN if side + 1 < len(model.task.fields) else ""), ""))
    return [piece for piece in pieces if piece[0]], rows


def _make_dataset(subject: Subject, texts: Sequence[str]) -> Dataset:
    """Make data without labels from the given texts."""
    from isthmus.data import Dataset

    task = subject.model.task
    examples = []
    for number, text in enumerate(texts):
        parts = text.split(BETWEEN.strip()) if len(task.fields) > 1 else [text]
        if len(parts) != len(task.fields):
            raise UsageError(f"the model reads {' and '.join(task.fields)}: give them as 'one{BETWEEN}other'")
        fields = dict(zip(task.fields, (part.strip() if len(parts) > 1 else part for part in parts), strict=True))
        examples.append(Example(f"text:{number}", fields, 0))
    return Dataset("given", "given", task, tuple(examples))


def _first_texts(subject: Subject) -> Dataset:
    split = subject.asked.splits[0] if subject.asked.splits else subject.splits.evaluation().split
    data = subject.sample(split, default=10)
    return replace(data, rejected=())
