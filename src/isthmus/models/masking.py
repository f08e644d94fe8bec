"""Finds the words that matter to a classifier, and masks some of them.

    saliency    s_t = ‖g_t‖,   g = ∂ cross-entropy / ∂ word embeddings, each row's own
    candidates  the N positions of largest saliency; special and padding tokens are none
    masked      the first M of them, or M drawn from them without replacement, or M drawn from all words

A text with fewer words than M has all of them masked. Masking puts the tokenizer's mask token there (T5, which has
none: ``<extra_id_0>``); recurrent and convolutional networks get a zero vector. Everything is worked out on the device,
and a row's choice depends on its own key alone.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from isthmus.arithmetic.products import lay_out
from isthmus.arithmetic.randomness import draw_uniform
from isthmus.core.errors import ModelError
from isthmus.core.seeds import derive

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier

_SENTINEL = "<extra_id_0>"
_CHOICE = derive(0, "masked positions")


class MaskGradient(NamedTuple):
    """A gradient with respect to word embeddings, and the logits at that point."""

    values: Tensor  # [rows, length, width], float32
    logits: Tensor  # [rows, classes], detached

    def saliency(self) -> Tensor:
        """Norm of the gradient at every token [rows, length]."""
        norms: Tensor = self.values.norm(dim=-1)
        return norms


class MaskCandidates(NamedTuple):
    """Positions that may be masked, the most salient first."""

    positions: Tensor  # [rows, N] int64
    valid: Tensor  # [rows, N] bool: False where a text has fewer


def embedding_gradient(
    model: Classifier,
    ids: Tensor,
    mask: Tensor | None = None,
    types: Tensor | None = None,
    target: Tensor | None = None,
    *,
    rival: Tensor | None = None,
    replaced: Tensor | None = None,
    as_read: bool = False,
) -> MaskGradient:
    """Gradient of each row's cross-entropy, for `target` or for the model's own prediction.

    With a `rival` it is that of the margin f_rival - f_target between two logits. What is differentiated is summed over
    rows, so that a row's gradient does not depend on how many there are. With `replaced` the model reads those
    embeddings, and the gradient passes straight through to the words that stood there. With `as_read` it is that of the
    embeddings as the encoder reads them, which a word mask may have scaled: what belongs to `Classifier.read_table`.
    """
    leaves: list[Tensor] = []

    def leaf(_module: object, _given: object, output: Tensor) -> Tensor:
        if leaves:  # Encoder-decoders read the table twice; the encoder comes first.
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[0]

    # cuDNN's recurrent kernels have no backward pass outside training mode.
    cudnn: Any = torch.backends.cudnn
    hooks: list[Any] = []
    word_mask = model.slots.word_mask
    try:
        with torch.enable_grad(), cudnn.flags(enabled=model.backbone.form != "lstm"), lay_out(model, inputs=True):
            if as_read and word_mask is not None and word_mask.scales_words:
                hooks = [word_mask.register_forward_hook(leaf)]
                logits = model(ids, mask, types, replaced).logits.float()
            elif replaced is not None:
                leaves.append(replaced.detach().requires_grad_())
                logits = model(ids, mask, types, leaves[0]).logits.float()
            else:
                hooks = model.on_embeddings(leaf, prepend=True)
                logits = model(ids, mask, types).logits.float()
            target = logits.detach().argmax(dim=-1) if target is None else target
            if rival is None:
                loss = torch.nn.functional.cross_entropy(logits, target, reduction="sum")
            else:
                loss = (logits.gather(1, rival.unsqueeze(1)) - logits.gather(1, target.unsqueeze(1))).sum()
            values = torch.autograd.grad(loss, leaves[0])[0].float()
    finally:
        for handle in hooks:
            handle.remove()
    return MaskGradient(values, logits.detach())


def mask_of_words(model: Classifier, ids: Tensor, mask: Tensor | None) -> Tensor:
    """True at tokens that may be masked: neither special nor padding [rows, length]."""
    words = ~model.special_mask(ids)
    return words if mask is None else words & mask.bool()


def most_salient(saliency: Tensor, words: Tensor, count: int) -> MaskCandidates:
    """The `count` most salient words of each row; among equals the first, and NaN last."""
    ranked = torch.nan_to_num(saliency, nan=-1.0).masked_fill(~words, -2.0)
    order = ranked.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    return MaskCandidates(order, words.gather(1, order))


def draw_candidates(candidates: MaskCandidates, keys: Tensor, count: int) -> MaskCandidates:
    """Draw `count` of each row's candidates without replacement, by the row's key."""
    return pick_candidates(candidates, _choice(candidates, keys, count))


def pick_candidates(candidates: MaskCandidates, chosen: Tensor) -> MaskCandidates:
    """Select each row's candidates by their numbers [rows, count]."""
    return MaskCandidates(candidates.positions.gather(1, chosen), candidates.valid.gather(1, chosen))


def _choice(candidates: MaskCandidates, keys: Tensor, count: int) -> Tensor:
    """Draw numbers of candidates by keys [rows, count]."""
    order = draw_uniform(keys, candidates.positions.shape, _CHOICE).masked_fill(~candidates.valid, -1.0)
    return order.sort(dim=-1, descending=True, stable=True).indices[:, :count]


MOST_NUMBERED = 62
"""Candidates whose sets have numbers of 64 bits."""


@functools.lru_cache(maxsize=64)
def subsets(width: int, count: int, device: torch.device) -> Tensor:
    """All sets of `count` out of `width` candidates [sets, count]; the set of all of them if there are fewer."""
    every = sorted(itertools.combinations(range(width), min(count, width)), key=lambda one: sum(1 << at for at in one))
    return torch.tensor(every, dtype=torch.int64, device=device).view(len(every), -1)


def draw_subset(candidates: MaskCandidates, keys: Tensor, count: int) -> Tensor:
    """Draw one of the `subsets` by each row's key [rows], as `draw_candidates`; at most `MOST_NUMBERED` candidates."""
    if candidates.positions.shape[1] > MOST_NUMBERED:
        raise ValueError(f"sets of more than {MOST_NUMBERED} candidates have no number of 64 bits")
    every = subsets(candidates.positions.shape[1], count, keys.device)
    one = torch.ones((), dtype=torch.int64, device=keys.device)
    return torch.searchsorted((one << every).sum(dim=1), (one << _choice(candidates, keys, count)).sum(dim=1))


def draw_from_all(words: Tensor, keys: Tensor, count: int) -> MaskCandidates:
    """Draw `count` of each row's words without replacement."""
    places = torch.arange(words.shape[1], device=words.device).expand_as(words)
    return draw_candidates(MaskCandidates(places, words), keys, count)


def first(candidates: MaskCandidates, count: int) -> MaskCandidates:
    """The `count` most salient candidates."""
    return MaskCandidates(candidates.positions[:, :count], candidates.valid[:, :count])


def flags(chosen: MaskCandidates, length: int) -> Tensor:
    """True at the chosen positions [rows, length]."""
    places = torch.zeros(len(chosen.positions), length, dtype=torch.bool, device=chosen.positions.device)
    return places.scatter(1, chosen.positions, chosen.valid)


class Masked(NamedTuple):
    """A text with some words masked: other ids, or the same ids and other embeddings."""

    ids: Tensor
    embeddings: Tensor | None


def mask_rows(model: Classifier, ids: Tensor, chosen: Tensor, embeddings: Tensor | None = None) -> Masked:
    """Mask the chosen positions of the rows; read them with ``model(ids, mask, types, embeddings)``.

    `embeddings` are what stands at the other positions, if not the table's rows.
    """
    if embeddings is not None:
        return Masked(ids, embeddings.where(~chosen.unsqueeze(-1), mask_embeddings(model, ids, chosen)))
    if _by_zeros(model):
        return Masked(ids, model.embed(ids).masked_fill(chosen.unsqueeze(-1), 0.0))
    return Masked(ids.masked_fill(chosen, mask_id(model)), None)


def mask_embeddings(model: Classifier, ids: Tensor, chosen: Tensor, embeddings: Tensor | None = None) -> Tensor:
    """Word embeddings of the rows with the chosen positions masked."""
    text = mask_rows(model, ids, chosen, embeddings)
    return model.embed(text.ids) if text.embeddings is None else text.embeddings


def mask_id(model: Classifier) -> int:
    """The id of the mask token."""
    tokenizer: Any = model.tokenizer
    if tokenizer.mask_token_id is not None:
        return int(tokenizer.mask_token_id)
    found = tokenizer.get_vocab().get(_SENTINEL)
    if found is None or found >= model.table.num_embeddings:
        raise ModelError(
            f"this tokenizer has neither a mask token nor {_SENTINEL!r}, so no word can be masked: "
            "choose masking=none, or a backbone with one"
        )
    return int(found)


def _by_zeros(model: Classifier) -> bool:
    """Whether masked words become zero vectors: so for word-level networks, whose mask token is trained."""
    return model.backbone.form in ("lstm", "cnn")


def check(model: Classifier) -> None:
    """Refuse a model whose words cannot be masked."""
    if not _by_zeros(model):
        mask_id(model)
