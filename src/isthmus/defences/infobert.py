"""InfoBERT: penalise information about the words, and anchor words that are robust and useful."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Labelled, Terms, cross_entropy, pass_terms
from isthmus.defences.parts.anchors import Band, find_anchored, most_anchors
from isthmus.defences.parts.bottleneck import Adversary
from isthmus.defences.parts.checks import at_least, fill, one_of
from isthmus.defences.parts.perturbation import Ascent, Climb

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from isthmus.models import Classifier

InfoBERTMode = Literal["released", "paper"]
Preset = Literal["tuned", "paper"]
Density = Literal["encoder", "auxiliary"]
FeatureKind = Literal["local", "global"]
_STRENGTHS: dict[Preset, dict[str, float]] = {
    "tuned": {"alpha": 0.5, "beta": 1e-3, "critic_rate": 1e-3},
    "paper": {"alpha": 5e-3, "beta": 5e-2, "critic_rate": 0.0},
}


@dataclass(frozen=True)
class InfoBERT(Ascent):
    """InfoBERT: an information bottleneck on the words, and anchored words tied to the sentence (Wang et al., 2021).

        loss = -log p(y | x) + β · U - α · N
        U = E ½ ‖t - t'‖²                         over the tokens t of the batch, t the output of the embedding block
        N = InfoNCE(t_k ; z)                      over the anchored tokens t_k of a sentence and its vector z

    Anchored are the tokens whose gradient norm ranks from c_l to c_h of the sentence: below lie the unuseful words,
    above the non-robust ones. With an adversary every step of the climb has this loss. U and N are figures of a batch:
    a step that accumulates passes, or runs in several processes, has the mean of the passes' own.

    References:
        Wang, Wang, Cheng, Gan, Jia, Li and Liu (2021), InfoBERT: Improving Robustness of Language Models from An
        Information Theoretic Perspective, https://arxiv.org/abs/2010.02329

    Where we depart:
        `released` (default) follows the authors' code: negatives are the other anchored words of the chunk, and anchors
        come from the gradient of cross-entropy and bottleneck at the perturbation as it stands. `paper` scores an
        anchor against the words of its sentence that are not anchored, and ranks by the gradient of the cross-entropy
        at the clean text. U has the code's scale in both: ½ and no factor n, for which the values of beta were chosen.
        Gradient accumulation divides every term (the code divides the cross-entropy only), and the critic is clipped
        with the model. Alpha and beta are not the paper's (``preset=paper``): on MiniLM its beta alone has eight times
        the task's gradient and exceeds the clipping norm, its alpha has less than a thousandth, and a critic that takes
        the encoder's small steps hardly learns; here it has a rate of its own. A sentence with no rank in the band has
        one anchor, at rank floor(c_l n). z is the last layer at [CLS], or its mean over tokens where the tokenizer puts
        no [CLS] first. `pgd` climbs on the cross-entropy alone, `freelb` on cross-entropy and bottleneck.

    Relations:
        With adversary=freelb and alpha = beta = 0 it is `freelb`; without an adversary either, `standard`. beta alone
        is a penalty on the variance of the embeddings.

    Example:
        ``train(data, backbone="minilm", defence=defences.InfoBERT(alpha=0.5, adversary="freelb"))``
    """

    takes_objective = True

    alpha: float | None = None
    """Weight of the anchored words' information (0: leave it out); by default that of the preset."""
    beta: float | None = None
    """Weight of the bottleneck (0: leave it out), by default that of the preset; the paper took 1e-3 for BERT."""
    critic_rate: float | None = None
    """Largest step size of the critic, by default that of the preset; 0: the model's own."""
    preset: Preset = "tuned"
    """Whose values: alpha 0.5, beta 1e-3 and a critic at 1e-3 (`tuned`), or 5e-3, 5e-2 and the model's own rate
    (`paper`, for RoBERTa)."""
    lowest: float = 0.5
    """Share of tokens, by gradient norm, below the anchored ones (c_l)."""
    highest: float = 0.9
    """Share of tokens up to the last anchored one (c_h)."""
    adversary: Adversary = "none"
    """Climb by which the embeddings are perturbed; its settings are those of `freelb` and `pgd`."""
    mode: InfoBERTMode = "released"
    """Negatives and anchors as in the authors' code, or as in the paper."""
    p_t_given_x: Density = "encoder"
    """The density behind the bottleneck: a unit Gaussian around the embedding, or a network that is fitted (CLUB)."""
    features: FeatureKind = "local"
    """Input of the bottleneck term: every token, or the sentence's vector."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.name, "preset", self.preset, get_args(Preset))
        fill(self, _STRENGTHS[self.preset])
        for name, value in zip(("alpha", "beta", "critic_rate"), self._strengths, strict=True):
            at_least(self.name, name, value, 0)
        one_of(self.name, "adversary", self.adversary, get_args(Adversary))
        one_of(self.name, "mode", self.mode, get_args(InfoBERTMode))
        one_of(self.name, "p_t_given_x", self.p_t_given_x, get_args(Density))
        one_of(self.name, "features", self.features, get_args(FeatureKind))
        if self.p_t_given_x == "auxiliary" and self.features == "global":
            raise UsageError(
                "infobert: the auxiliary network predicts a token's features from its word, and a sentence is not a "
                "word: use p_t_given_x=encoder with features=global"
            )
        if not 0 <= self.lowest < self.highest <= 1:
            raise UsageError(
                f"infobert: anchors lie between lowest = {self.lowest} and highest = {self.highest}; "
                "choose 0 <= lowest < highest <= 1"
            )

    @property
    def _strengths(self) -> tuple[float, float, float]:
        """alpha, beta and the critic's learning rate, which are set by now."""
        assert self.alpha is not None
        assert self.beta is not None
        assert self.critic_rate is not None
        return self.alpha, self.beta, self.critic_rate

    @property
    def _plain(self) -> bool:
        climbs = self.adversary != "none" and (self.steps > 1 or self.lengths.start > 0 or self.adversary == "pgd")
        return self.alpha == self.beta == 0 and not climbs

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Add the critic, and the auxiliary network if there is one, to the model."""
        from isthmus.arithmetic.randomness import seed_initialisation
        from isthmus.information.mutual_information import Critic

        super().prepare(model, data)
        block, last = _block(model)
        if self.beta and self.features == "local" and not block.requires_grad:
            raise UsageError(
                "infobert: the word embeddings of this model are frozen, so there is nothing for the bottleneck to "
                "narrow: set beta = 0, or features=global"
            )
        local, whole = block.shape[-1], last.shape[-1]
        with seed_initialisation(model.seed, "infobert"):
            if self.alpha:
                model.companions["critic"] = Critic(local, whole, learning_rate=self.critic_rate).to(model.device)
            if self.beta and self.p_t_given_x == "auxiliary":
                from isthmus.information.fitted_gaussian import AuxiliaryGaussian

                model.companions["auxiliary"] = AuxiliaryGaussian(model.table.embedding_dim, local).to(model.device)

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Yield once per step of the climb; once in all without an adversary."""
        import torch

        if self._plain:
            yield from Defence.losses(self, model, batch)
            return
        alpha, beta, _ = self._strengths
        climb = Climb(self, model, batch, still=self.adversary == "none")
        anchoring = _Anchoring(self, model, batch, climb.mask) if self.alpha else None
        anchors = self._clean_anchors(model, batch) if self._looks_back else None
        if self.adversary == "pgd":
            for _ in range(self.steps):
                climb.step(torch.autograd.grad(cross_entropy(climb.forward(), batch), climb.delta)[0])
        steps = self.steps if self.adversary == "freelb" else 1
        for step in range(steps):
            output = climb.forward(hidden=True, last=step + 1 == steps)
            values = {name: value / steps for name, value in pass_terms(model, output, batch).items()}
            of_the_task = Terms(dict(values))
            if beta:
                values["bottleneck"] = beta / steps * self._narrowness(model, batch, climb, output, step)
            gradient: Tensor | None = None
            if anchoring is not None:
                if anchors is None or step + 1 < steps:
                    # The perturbation's gradient alone: half of a backward pass, instead of a second whole one.
                    loss = (of_the_task if self._ranks_by_the_task else Terms(values)).total()
                    gradient = torch.autograd.grad(loss, climb.delta, retain_graph=True)[0]
                chosen = anchors
                if chosen is None:
                    assert gradient is not None
                    chosen = anchoring.band.find_anchored(gradient)
                values["anchored"] = -alpha / steps * anchoring.information(output, chosen, step)
            yield Terms(values)
            if step + 1 < steps:
                climb.step(climb.delta.grad if gradient is None else gradient)

    @property
    def _ranks_by_the_task(self) -> bool:
        """Whether the pass that is made anyway is the clean pass that the paper takes the anchors from."""
        return self.mode == "paper" and self.adversary == "none"

    @property
    def _looks_back(self) -> bool:
        """Whether the paper's anchors need a clean pass of their own."""
        return self.mode == "paper" and self.adversary != "none" and self.alpha != 0

    def _narrowness(self, model: Classifier, batch: Batch, climb: Climb, output: Output, step: int) -> Tensor:
        import torch

        from isthmus.information.mutual_information import sample_spread

        stream = batch.draws(f"{self.name} bottleneck {step}")
        if self.features == "global":
            vectors = sentence_vectors(model, output, climb.mask)
            return sample_spread(vectors, torch.ones(len(vectors), device=vectors.device), stream)
        local = _layers_of(output)[0]
        if self.p_t_given_x == "encoder":
            return sample_spread(local, climb.mask, stream)
        assert output.embeddings is not None
        narrowness: Tensor = model.companions["auxiliary"](output.embeddings, local, climb.mask, stream)
        return narrowness

    def _clean_anchors(self, model: Classifier, batch: Batch) -> Tensor:
        """Anchors by the gradient of the cross-entropy at the clean embeddings."""
        import torch

        climb = Climb(self, model, batch, still=True)
        gradient = torch.autograd.grad(cross_entropy(climb.forward(), batch), climb.delta)[0]
        climb.dice.restore()
        return find_anchored(gradient, climb.mask.squeeze(-1), self.lowest, self.highest)


class _Anchoring:
    """The anchored term of a batch: what all passes share, and the value for each pass."""

    def __init__(self, defence: InfoBERT, model: Classifier, batch: Batch, mask: Tensor) -> None:
        from isthmus.information.mutual_information import Chunks

        self.defence, self.model, self.batch, self.mask = defence, model, batch, mask
        self.band = Band(mask.squeeze(-1), defence.lowest, defence.highest)
        most = len(batch) * most_anchors(mask.shape[1], defence.lowest, defence.highest)
        self.chunks = Chunks(self.band.ranks.sum(), most, len(batch))

    def information(self, output: Output, chosen: Tensor, step: int) -> Tensor:
        """InfoNCE of the chosen words with their sentences."""
        from isthmus.information.mutual_information import Critic, info_nce, info_nce_within

        critic = self.model.companions["critic"]
        assert isinstance(critic, Critic)
        local, whole = _layers_of(output)[0], sentence_vectors(self.model, output, self.mask)
        if self.defence.mode == "paper":
            return info_nce_within(critic, local, whole, chosen, self.mask.squeeze(-1).bool() & ~chosen)
        stream = self.batch.draws(f"{self.defence.name} anchored {step}")
        return info_nce(critic, local, whole, chosen, self.chunks, stream)


def sentence_vectors(model: Classifier, output: Output, mask: Tensor) -> Tensor:
    """The last layer at [CLS], or its mean over tokens if the tokenizer adds no [CLS]."""
    from isthmus.models.backbones import mean_pool

    last = _layers_of(output)[-1]
    return last[:, 0] if starts_with_cls(model.tokenizer) else mean_pool(last, mask.squeeze(-1))


@functools.lru_cache(maxsize=8)
def starts_with_cls(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the first token of every text represents the whole text, as [CLS] does."""
    first: int = tokenizer("a")["input_ids"][0]
    return tokenizer.cls_token_id is not None and first == tokenizer.cls_token_id


def _layers_of(output: Output) -> tuple[Tensor, ...]:
    assert output.hidden is not None
    return output.hidden


def _block(model: Classifier) -> tuple[Tensor, Tensor]:
    """The outputs of the embedding block and of the last layer for a one-word text."""
    training = model.training
    inputs = model.eval().encode([dict.fromkeys(model.task.fields, "a")])
    hidden = _layers_of(model(**{name: value.to(model.device) for name, value in inputs.items()}, hidden=True))
    model.train(training)
    return hidden[0], hidden[-1]
