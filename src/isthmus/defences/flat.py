"""FLAT: adversarial training with word attacks, and word masks that learn how important each word is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from isthmus.core.errors import UsageError
from isthmus.defences.adversarial import Adversarial, freeze
from isthmus.defences.base import Batch, Labelled, Terms
from isthmus.defences.parts.checks import at_least, check_whole, fill, needs_words, one_of

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier
    from isthmus.models.word_mask import VariationalWordMask

FLATMode = Literal["default", "paper", "released"]
_THEIRS = {"gamma": 0.001, "initial": 0.5, "mask_learning_rate": 0.0}
_DEFAULTS: dict[str, dict[str, float]] = {
    "default": {"gamma": 0.1, "initial": 0.9, "mask_learning_rate": 1e-3},
    "paper": _THEIRS,
    "released": _THEIRS,
}


@dataclass(frozen=True)
class FLAT(Adversarial):
    """FLAT: feature-level adversarial training with variational word masks (Chen and Ji, 2022).

        φ(w) = softmax(W₂ tanh(W₁ e(w)))[1]            the word's importance; e(w) stays as it is
        loss = -log p(y | W ⊙ x) - β H̄(φ(x)) + γ L_imp(x, x')      over (x, y) in D ∪ A_t, as in `adversarial`
        W_i ~ Bernoulli(φ(x_i)) by a hard Gumbel-softmax sample, straight through;     x_i ← φ(x_i) x_i once trained
        H̄ = mean entropy of the masks over words;      L_imp = Σ |φ(x_i) - φ(x'_i)| over the words the attack replaced

    The masks make the model rely on few words, entropy pulls the others to 0.5, and L_imp makes a word and what
    replaced it equally important. What is attacked, saved and explained is the model with scaled embeddings;
    `isthmus.models.word_importance` reads φ, and `fold_word_mask` puts it into the embedding table.

    References:
        Chen and Ji (2022), Adversarial Training for Improving Model Robustness? Look at Both Prediction and
        Interpretation, https://arxiv.org/abs/2203.12709
        Chen and Ji (2020), Learning Variational Word Masks to Improve the Interpretability of Neural Text Classifiers
        (VMASK), https://arxiv.org/abs/2010.00667

    Where we depart:
        φ depends on the word alone, as the paper says: the released code reads BERT's embedding block, position and
        normalisation included (mode=released; a replaced word then counts as a text of its own). L_imp keeps its
        gradient, which the released code loses for BERT and DeBERTa; it has no dropout, leaves unchanged words out,
        and is a mean over the texts that have replaced words (mode=released: over all). γ is .1: at the paper's .001
        (mode=paper) L_imp has about a thousandth of the task's gradient, at 1 every word ends at φ = 1
        (docs/defences.md). Masks begin at φ = .9, not .5, and their network learns at 1e-3, whatever the encoder's
        rate. Masks and entropy leave special tokens and padding alone; entropy is a mean over words (the paper: a
        sum). Attacks meet the model in evaluation mode, the step size follows all epochs, and cross-entropy reads
        logits. `beta` stays as it is unless `anneal` lowers it every epoch as VMASK does (beta = 1, anneal = .099).
        Masks are there from the first epoch on.

    Relations:
        With masks = false it is `adversarial`, bit for bit; its fair baselines are `adversarial` with and without
        freeze_embeddings, from the same start for as many epochs and rounds. With base=freelb the climb goes on under
        the masks.

    Example:
        ``isthmus train --data rotten_tomatoes --backbone cnn --defence flat -P attack=pwws -P points=500 --epochs 4``
    """

    slots = ("word_mask",)

    masks: bool = True
    """Whether words are masked; without masks there is no entropy and no importance."""
    beta: float = 0.1
    """β: strength of the masks' entropy (0: left out)."""
    gamma: float | None = None
    """γ: strength of equal importance (0: left out); by default .1, in the modes paper and released .001."""
    mode: FLATMode = "default"
    """Importance of the word alone, the same with the paper's γ, or what the released code does."""
    anneal: float = 0.0
    """Amount by which β falls every epoch."""
    least_beta: float = 0.01
    """Minimum of β."""
    temperature: float = 1.0
    """Temperature of the Gumbel-softmax sample."""
    width: int = 400
    """Number of hidden units of the network for φ."""
    initial: float | None = None
    """Approximate initial φ of every word; in the modes paper and released .5."""
    mask_learning_rate: float | None = None
    """Learning rate of this network (0: the model's own, as in the modes paper and released)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masks and self._moves_pixels:
            raise UsageError(f"{self.name} masks words, and {self.attack} moves pixels: take adversarial for images")
        one_of(self.name, "mode", self.mode, get_args(FLATMode))
        fill(self, _DEFAULTS[self.mode])
        for name in ("beta", "gamma", "anneal", "least_beta", "mask_learning_rate"):
            at_least(self.name, name, getattr(self, name), 0)
        check_whole(self.name, "width", self.width, 1)
        if not 0 < self.temperature < float("inf"):
            raise UsageError(f"{self.name}: temperature is {self.temperature}; it must be a number above 0")
        if self.initial is None or not 0 < self.initial < 1:
            raise UsageError(f"{self.name}: initial is {self.initial}; it must lie between 0 and 1")

    @property
    def moves_inputs(self) -> bool:
        """True with masks, which change the word embeddings."""
        return self.masks or super().moves_inputs

    @property
    def draws_as(self) -> str:
        """The baseline's name, so that both draw the same attacks."""
        return "adversarial"

    def beta_at(self, epoch: int) -> float:
        """β in an epoch, counted from 0."""
        return max(self.beta - self.anneal * epoch, min(self.beta, self.least_beta))

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Prepare as the base does; then add the masks and freeze the word embeddings."""
        super().prepare(model, data)
        if not self.masks:
            return
        needs_words(self.name, model)
        freeze(model.table)
        block = model.backbone.embedding_block() if self.mode == "released" else None
        if block is not None:
            freeze(block)
        # A model that was trained so goes on with what it has learned.
        fresh, there = self._mask(model), model.slots.word_mask
        if there is None or type(there) is not type(fresh) or there.config() != fresh.config():
            model.fill(word_mask=fresh)
        model.slots.word_mask.own_learning_rate = self.mask_learning_rate or None  # type: ignore[union-attr]

    def _mask(self, model: Classifier) -> VariationalWordMask:
        import torch

        from isthmus.arithmetic.randomness import seed_initialisation
        from isthmus.models.word_mask import VariationalWordMask

        block = model.backbone.embedding_block() if self.mode == "released" else None
        width = model.table.embedding_dim
        if block is not None:
            with torch.no_grad():
                width = block(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device)).shape[-1]
        with seed_initialisation(model.seed, "word mask"):
            mask = VariationalWordMask(
                width, model.table.num_embeddings, self.width, self.temperature, after_block=block is not None
            )
        assert self.initial is not None
        mask.begin_at(self.initial)
        return mask

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The base's losses under the masks, then entropy and importance."""
        yield from super().losses(model, batch)
        if terms := self.penalties(model, batch):
            yield Terms(terms)

    def penalties(self, model: Classifier, batch: Batch) -> dict[str, Tensor]:
        """The entropy of the masks, and the difference in importance of a word and its replacement."""
        from isthmus.models.word_mask import VariationalWordMask

        mask = model.slots.word_mask
        if not self.masks or not isinstance(mask, VariationalWordMask):
            return {}
        from isthmus.defences.parts.word_terms import importance_difference, mean_entropy

        terms: dict[str, Tensor] = {}
        if beta := self.beta_at(batch.epoch):
            terms["entropy"] = -beta * mean_entropy(model, mask, batch)
        if self.gamma:
            found = importance_difference(model, mask, batch.examples, over_all=self.mode == "released")
            if found is not None:
                terms["importance"] = self.gamma * found
        return terms
