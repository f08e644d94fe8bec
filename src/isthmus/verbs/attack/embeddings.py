"""Gradient attacks on the word embeddings of a command's texts.

Nobody can send an embedding: such an attack says how far the classifier's answers reach around a text, not that it can
be fooled by one. So its rows lie in ``embeddings/`` and not in ``attacks/``, are part of no union and of no gate, and
``--attack all`` leaves them out. A radius has the unit of the embeddings themselves; the mean length of a token's
embedding stands beside it. All tokens of a text may move, those the tokenizer adds too, and padding never does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import ABSTAINS, Example, ImageClassification
from isthmus.runs.folder import AttackFile
from isthmus.verbs.attack.gradient import COHORT, OF_WORDS, Cohort, PreparedGradientAttacks, gradient_attacks
from isthmus.verbs.attack.suite import ALL
from isthmus.verbs.request import AttackRequest

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.attacks.gradient.base import GradientAttack, GradientSettings
    from isthmus.attacks.gradient.parts.targets import EmbeddingTarget
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Texts, Victim

_TOKENS = 1 << 12
"""Tokens, padding included, that are attacked at once."""


def divide(request: AttackRequest) -> tuple[AttackRequest | None, AttackRequest | None]:
    """Split a request about texts into word attacks and attacks on embeddings."""
    every = gradient_attacks()
    named = {name: catalog.find("attacks", name).name for name in request.attacks if name != ALL}
    gradient = tuple(name for name in named.values() if name in every)
    words = tuple(name for name in request.attacks if named.get(name) not in every)
    if not gradient:
        return request, None
    entries = {name: catalog.find("attacks", name) for name in gradient}
    if not words:
        return None, dataclasses.replace(request, attacks=gradient)
    _check_names(request, entries)
    of_words = _read_parameters(request.parameters, set(_of_words(words)))
    of_gradient = _read_parameters(request.parameters, set(gradient))
    plain: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(AttackRequest)}
    return (
        dataclasses.replace(request, attacks=words, parameters=of_words),
        dataclasses.replace(
            request, attacks=gradient, parameters=of_gradient, precision="fp32", **{key: plain[key] for key in OF_WORDS}
        ),
    )


def _of_words(names: Sequence[str]) -> list[str]:
    every = [entry.name for entry in catalog.entries("attacks") if entry.kind == "words"]
    return every if ALL in names else [catalog.find("attacks", name).name for name in names]


def _inner_victim(victim: Any) -> Any:
    """The victim that reads tokens, behind a front end that changes the text."""
    return getattr(victim, "inner", victim)


def _check_names(request: AttackRequest, gradient: Mapping[str, catalog.Entry]) -> None:
    """Refuse a parameter that no attack of the command has."""
    words = [catalog.find("attacks", name) for name in _of_words([n for n in request.attacks if n not in gradient])]
    entries = {**{entry.name: entry for entry in words}, **gradient}
    known = {parameter.name for entry in entries.values() for parameter in entry.parameters}
    for key in request.parameters:
        own, dot, _ = key.partition(".")
        if dot and own not in entries:
            raise UnknownName("attack in this command", own, entries)
        if not dot and key not in known:
            raise UnknownName(f"parameter of {' or '.join(entries)}", key, known)


def _read_parameters(given: Mapping[str, str], names: set[str]) -> dict[str, str]:
    """The parameters that some of these attacks have."""
    entries = {name: catalog.find("attacks", name) for name in names}
    known = {parameter.name for entry in entries.values() for parameter in entry.parameters}
    return {
        key: value for key, value in given.items() if (key.partition(".")[0] in entries if "." in key else key in known)
    }


class PreparedEmbeddingAttacks(PreparedGradientAttacks):
    """A prepared attack command on the embeddings of texts."""

    moved = "embeddings"

    def check_data(self) -> None:
        """Refuse data that are not texts with classes."""
        self._refuse_questions()
        if isinstance(self.data.task, ImageClassification):
            raise UsageError(f"{self.data.name} holds images: attacks on embeddings are for texts")

    def file(self, name: str, settings: Mapping[str, Any]) -> AttackFile:
        """The file for rows of an attack with these settings."""
        return self.folder.embedding_file(name, settings)

    def settings(self, name: str, search_draws: int) -> dict[str, Any]:
        """The settings that determine the rows of an attack."""
        return {**super().settings(name, search_draws), "space": "embeddings"}

    def one(self) -> Tensor:
        """An embedding; which one does not matter, since there is no box."""
        import torch

        return torch.zeros(1, 1)

    def gradient_settings(self) -> GradientSettings:
        """The settings of an attack; there is no box."""
        from isthmus.attacks.gradient.base import GradientSettings

        return GradientSettings(
            bounds=None, seed=self.request.seed, draws=self.draws, fresh=max(1, self.request.fresh), rows=COHORT
        )

    @cached_property
    def victim(self) -> Victim:
        """The loaded model; one without accessible embeddings is refused."""
        victim = super().victim
        reader = _inner_victim(victim)
        if not hasattr(reader, "logits_at"):
            raise UsageError(
                f"{self.source.shown} has no accessible embeddings: attacks on embeddings need a classifier "
                "of isthmus or transformers that reads each text as one sequence"
            )
        if ABSTAINS in reader.labels:
            raise UsageError(
                f"{self.source.shown} may abstain, and abstention has no gradient: attack it without abstention"
            )
        return victim

    @property
    def reader(self) -> Any:
        """The deployed model, behind its front end."""
        return _inner_victim(self.victim)

    @cached_property
    def embedding_length(self) -> float:
        """Mean Euclidean length of a token's embedding in the first cohort, the scale of a radius."""
        target = self._target(list(self.first(None).examples[:COHORT]))
        moved = target.movable.squeeze(-1)
        return float(f"{float(target.inputs.norm(dim=-1)[moved].mean()):.4g}")

    def facts(self) -> dict[str, Any]:
        """Facts about the space, for the header of every result."""
        return {"embedding_length": self.embedding_length}

    def attack_at_once(self, attack: GradientAttack, cohort: list[Example]) -> Cohort:
        """Attack a cohort, texts of similar length together."""
        found: dict[str, AttackResult] = {}
        for part in self._parts(cohort):
            found |= {result.id: result for result in self._attack_part(attack, part)}
        return Cohort([found[example.id] for example in cohort], {})

    def _parts(self, cohort: list[Example]) -> Iterator[list[Example]]:
        """Yield the cohort in parts that are not too large, the shortest texts first."""
        mask = self._encode(cohort)["attention_mask"]
        lengths = mask.sum(dim=1).tolist()
        order = sorted(range(len(cohort)), key=lambda place: (lengths[place], place))
        part: list[Example] = []
        for place in order:
            if part and (len(part) + 1) * lengths[place] > _TOKENS:
                yield part
                part = []
            part.append(cohort[place])
        yield part

    def _encode(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """Tokenise texts after the model's front end in this command."""
        texts: Sequence[Texts] = [example.texts for example in examples]
        victim: Any = self.victim
        if victim is not self.reader:
            texts = victim.steps.read(texts)
        found: dict[str, Tensor] = self.reader.model.tokenise(texts)
        return found

    def _target(self, examples: Sequence[Example]) -> EmbeddingTarget:
        from isthmus.attacks.gradient.parts.targets import EmbeddingTarget

        return EmbeddingTarget(self.reader.model, self._encode(examples), reader=self.reader)

    def _attack_part(self, attack: GradientAttack, part: list[Example]) -> Iterator[AttackResult]:
        import torch

        target = self._target(part)
        device = target.inputs.device
        labels = torch.tensor([int(example.label) for example in part], device=device)  # type: ignore[arg-type]
        keys = torch.tensor(self.keys(part), device=device)
        targets, own = self.targets(labels)
        found = attack.run(
            target, target.inputs, labels, self.gradient_settings(), targets=targets, keys=keys, movable=target.movable
        )
        before, after = (self._scores(target, points, keys) for points in (target.inputs, found.adversarial))
        counts = target.movable.flatten(1).sum(dim=1).tolist()
        for place, example in enumerate(part):
            is_own = own is not None and bool(own[place])
            yield self.result(example, found, place, before[place], after[place], is_own, int(counts[place]))

    def _scores(self, target: EmbeddingTarget, points: Tensor, keys: Tensor) -> list[list[float]]:
        """Class probabilities, of a randomised model by one draw."""
        import torch

        from isthmus.arithmetic.randomness import branch
        from isthmus.attacks.gradient.parts.targets import Draws, at_rest

        rows = torch.arange(len(points), device=points.device)
        with torch.no_grad(), at_rest(target):
            logits = target.logits(points, Draws(rows, branch(keys, "shown").unsqueeze(1)))[:, 0]
        return [[float(f"{p:.7g}") for p in row] for row in logits.double().softmax(dim=-1).tolist()]
