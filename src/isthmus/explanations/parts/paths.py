"""Gradients along straight paths in the embeddings of many texts, batched over texts and steps.

    e(α) = b + α (e - b)          b = 0 at words, e itself at special tokens
    g(α) = ∂ F_c(e(α)) / ∂ e(α)   F_c: logit or probability of class c

Rows of equal length share a batch and nothing is padded. Gradients are summed over steps as they come, so memory
depends on neither the steps nor the number of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus.arithmetic.transfer import any_shape
from isthmus.core.errors import VictimError
from isthmus.core.types import Doubles, Example, Victim
from isthmus.engine.gradients import with_positions
from isthmus.explanations.base import Explanation
from isthmus.explanations.parts.outputs import OutputKind
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_TOKENS_AT_ONCE = {"cpu": 2_048, "cuda": 131_072}


class Path(NamedTuple):
    """Points from the baseline (0) to the text (1) where gradients are taken, all with the same weight."""

    steps: tuple[float, ...]


class _Text(NamedTuple):
    example: Example
    words: int
    ids: NDArray[np.int64]
    types: NDArray[np.int64] | None
    position_of: NDArray[np.int32]
    """The word of every token; -1 for special ones."""


def explain_by_path(
    victim: Victim,
    examples: Sequence[Example],
    classes: tuple[int, ...] | None,
    path: Path,
    *,
    output: OutputKind,
    method: str,
    whole_path: bool,
) -> Iterator[Explanation]:
    """Explain examples by (e - b) times the mean gradient on the path.

    With `whole_path` the sum of the weights should be F(x) - F(b); `details` has by how much it is not.
    """
    found: list[Explanation | None] = [None] * len(examples)
    model: Any = victim.model  # type: ignore[attr-defined]
    if any(module.training for module in model.modules()):
        model.eval()
    vocabulary = Vocabulary()
    texts = [_read_text(victim, example, vocabulary) for example in examples]
    most = _TOKENS_AT_ONCE.get(model.device.type, _TOKENS_AT_ONCE["cpu"])
    try:
        with any_shape():
            for group in _groups(texts, most):
                results = _LengthGroup(model, [texts[place] for place in group], classes, output).run(path, most)
                for place, result in zip(group, results, strict=True):
                    found[place] = _make_explanation(texts[place], result, victim.labels, method, whole_path)
    except (RuntimeError, IndexError, ValueError) as error:
        raise VictimError(f"the model cannot be differentiated on {len(examples)} texts: {error}") from error
    yield from (each for each in found if each is not None)


def _read_text(victim: Any, example: Example, vocabulary: Vocabulary) -> _Text:
    draft = Draft.of(example.texts, vocabulary)
    encoded = with_positions(victim, draft)
    types = None if encoded.types is None else np.array(encoded.types, np.int64)
    return _Text(example, len(draft), np.array(encoded.ids, np.int64), types, encoded.position_of)


def _groups(texts: Sequence[_Text], most: int) -> Iterator[list[int]]:
    """Yield groups of texts of one length whose embeddings and gradients fit in a few batches."""
    of_length: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        of_length.setdefault(len(text.ids), []).append(place)
    for length, places in sorted(of_length.items()):
        size = max(1, 2 * most // max(1, length))
        for start in range(0, len(places), size):
            yield places[start : start + size]


class _Result(NamedTuple):
    classes: tuple[int, ...]
    tokens: Doubles  # [classes, tokens]
    scores: Doubles  # [all classes]
    gap: Doubles  # [classes] F(x) - F(b)


class _LengthGroup:
    """Texts of one length."""

    def __init__(self, model: Any, texts: Sequence[_Text], classes: tuple[int, ...] | None, output: OutputKind) -> None:
        device = model.device
        self.model, self.output = model, output
        self.ids = torch.from_numpy(np.stack([text.ids for text in texts])).to(device)
        kinds = [text.types for text in texts if text.types is not None]
        self.types = torch.from_numpy(np.stack(kinds)).to(device) if kinds else None
        with torch.no_grad():
            self.end = model.embed(self.ids)
            special = model.special_mask(self.ids).unsqueeze(-1)
            self.start = torch.where(special, self.end, torch.zeros_like(self.end))
            # Both ends at once: a pass over a single row costs several times its share of a batch.
            ids, types = self.ids.repeat(2, 1), None if self.types is None else self.types.repeat(2, 1)
            logits, baseline = self._logits(torch.cat([self.end, self.start]), ids, types).chunk(2)
        self.scores = torch.softmax(logits, dim=-1)
        own = logits.argmax(dim=-1, keepdim=True)
        chosen = own if classes is None else torch.tensor(classes, device=device).expand(len(texts), -1)
        self.classes = chosen  # [texts, classes explained]
        self.gap = self._outputs(logits).gather(1, chosen) - self._outputs(baseline).gather(1, chosen)

    def run(self, path: Path, most: int) -> list[_Result]:
        """Compute the weights of all tokens."""
        texts, length = self.ids.shape
        count = self.classes.shape[1]
        total = torch.zeros(count, *self.end.shape, device=self.end.device)
        rows = [(text, step) for text in range(texts) for step in path.steps]
        size = max(1, most // max(1, length))
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            owner = torch.tensor([text for text, _ in part], device=self.end.device)
            alpha = torch.tensor([step for _, step in part], device=self.end.device, dtype=self.end.dtype)
            for place, gradient in enumerate(self._gradients(owner, alpha.view(-1, 1, 1))):
                total[place].index_add_(0, owner, gradient)
        weights = ((self.end - self.start) * total).sum(dim=-1).double() / len(path.steps)  # [classes, texts, tokens]
        columns = [each.double().cpu().numpy() for each in (weights.transpose(0, 1), self.scores, self.gap)]
        chosen = self.classes.tolist()
        return [_Result(tuple(chosen[text]), *(column[text] for column in columns)) for text in range(texts)]

    def _gradients(self, owner: Tensor, alpha: Tensor) -> Iterator[Tensor]:
        """The gradient for each explained class at the points of some rows."""
        start, end = self.start[owner], self.end[owner]
        cudnn: Any = torch.backends.cudnn
        # cuDNN's recurrent kernels have no backward pass outside training mode.
        with torch.enable_grad(), cudnn.flags(enabled=self.model.backbone.form != "lstm"):
            leaf = (start + alpha * (end - start)).detach().requires_grad_()
            types = None if self.types is None else self.types[owner]
            outputs = self._outputs(self._logits(leaf, self.ids[owner], types))
            chosen = outputs.gather(1, self.classes[owner])
            last = chosen.shape[1] - 1
            for place in range(last + 1):
                yield torch.autograd.grad(chosen[:, place].sum(), leaf, retain_graph=place < last)[0]

    def _logits(self, embeddings: Tensor, ids: Tensor, types: Tensor | None) -> Tensor:
        logits: Tensor = self.model(ids, None, types, embeddings).logits
        return logits.float()

    def _outputs(self, logits: Tensor) -> Tensor:
        return logits if self.output == "logit" else torch.softmax(logits, dim=-1)


def _make_explanation(
    text: _Text, result: _Result, labels: tuple[str, ...], method: str, whole_path: bool
) -> Explanation:
    weights = np.zeros((len(result.classes), text.words))
    inside = text.position_of >= 0
    for row, tokens in zip(weights, result.tokens, strict=True):
        np.add.at(row, text.position_of[inside], tokens[inside])
    details = {"outside words": result.tokens[:, ~inside].sum(axis=1).tolist()}
    if whole_path:
        details["completeness error"] = np.abs(result.tokens.sum(axis=1) - result.gap).tolist()
    return Explanation(
        id=text.example.id,
        texts=text.example.texts,
        method=method,
        labels=labels,
        scores=tuple(result.scores.tolist()),
        classes=result.classes,
        weights=weights,
        details=details,
    )
