"""Shared by the defences that train on word attacks' examples of the training texts.

    x' = attack(f, x, y)     for x among the training points, f the model as it stands, in evaluation mode
    successes                f(x') ≠ y although f(x) = y;  x' keeps the label y

An attack that ends in an error or runs out of time has shown nothing: it is counted and its text is never used. The
draws of an attack come from (seed, epoch, example id), so that a run that is continued attacks as it would have done;
what was attacked before a run was killed is not attacked again. Several attacks share the points of a round: each
point meets one of them, drawn by (seed, epoch, example id).
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog, progress, unfinished
from isthmus.core.errors import TrainingError, UnknownName, UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Example, ImageClassification
from isthmus.defences.base import Batch, Defence, Labelled, Made, Terms

if TYPE_CHECKING:
    from isthmus.attacks.base import WordAttack
    from isthmus.attacks.parts.limits import Limits
    from isthmus.attacks.result import AttackResult
    from isthmus.data import Dataset
    from isthmus.models import Classifier

MADE_FROM = "made_from"
"""Field of an adversarial example that holds the id of its original."""
REPLACED = "replaced_words"
"""Field that holds the words an attack replaced, and what by, as JSON: [[word, its replacement], …]."""


@dataclass(frozen=True)
class Attacked(Defence):
    """Settings of an attack on training points; a defence that attacks inherits them."""

    exclusive = "attacks the training examples"

    attack: str = "textfooler"
    """Name of the attack (isthmus list attacks), or several separated by commas: each point meets one of them."""
    attack_parameters: str = ""
    """The attack's own parameters: key=value, several of them separated by semicolons. Of several attacks
    attack.key=value is for one, key=value for all that have it."""
    preset: str | None = None
    """Limits on every candidate: textdefender-2021, meaning or strict."""
    points: int | None = 10_000
    """Training points that are attacked, drawn with equal shares of the classes; none: all of them; 0: no attack."""
    budget: int | None = None
    """Maximum queries per text; none: no limit but the preset's."""
    base: str = "standard"
    """Defence whose losses train on the examples, and whose model is attacked."""
    base_parameters: str = ""
    """Parameters of that defence, written like those of the attack."""

    def __post_init__(self) -> None:
        if self.points is not None and self.points < 0:
            raise UsageError(f"{self.name}: points is {self.points}; it must be at least 0, or none to attack them all")
        if self.budget is not None and self.budget < 1:
            raise UsageError(f"{self.name}: budget is {self.budget}; it must be at least 1, or none")
        if self._base.exclusive == self.exclusive:
            raise UsageError(
                f"{self.name}: base is {self.base}, which {self.exclusive} itself; choose a defence that does not, "
                "such as standard, freelb, vub or safer"
            )
        # An unknown attack or preset is found out now, not after hours of training.
        _ = self._attacks, self._limits

    @functools.cached_property
    def _attacks(self) -> dict[str, WordAttack]:
        """The attacks by name, in the order given."""
        from isthmus.attacks.base import WordAttack

        names = self._names
        given = address_parameters(split_key_values(self.attack_parameters, f"{self.name}: {self.attack}"), names)
        found = {name: catalog.build("attacks", name, given[name]) for name in names}
        for name, attack in found.items():
            if not isinstance(attack, WordAttack):
                raise UsageError(f"{self.name}: {name} makes no texts; choose an attack that edits words")
        return found

    @property
    def _names(self) -> list[str]:
        """The names of the attacks, each once."""
        names = [catalog.find("attacks", name.strip()).name for name in self.attack.split(",") if name.strip()]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"{self.name}: attack names one or more attacks, each once, not {self.attack!r}")
        return names

    @functools.cached_property
    def _limits(self) -> Limits:
        from isthmus.attacks.parts.limits import Limits, preset

        return Limits() if self.preset is None else preset(self.preset)

    def _choose_attack(self, example: Example, epoch: int, seed: int) -> str:
        """Draw the attack for a training example."""
        names = list(self._attacks)
        return (
            names[derive(seed, self.draws_as, "which attack", epoch, example.id) % len(names)]
            if names[1:]
            else names[0]
        )

    @functools.cached_property
    def _base(self) -> Defence:
        return build_base(self.name, self.base, self.base_parameters)

    # What the base does: everything but the examples.

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Prepare as the base does; question answering is refused, since it cannot be attacked."""
        if isinstance(model.task, ImageClassification):
            raise UsageError(
                f"{self.name}: {self.attack} edits words, and this model reads images: name a gradient attack, such as "
                "attack=fgsm"
            )
        if model.task.name != "classification":
            raise UsageError(f"{self.name} attacks classifiers; this model's task is {model.task.name}")
        self._base.prepare(model, data)

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The base's losses."""
        return self._base.losses(model, batch)

    @property
    def moves_inputs(self) -> bool:
        """Whether the base's losses need the word embeddings."""
        return self._base.moves_inputs

    @property
    def walks(self) -> bool:
        """False: the base, or the other defences of a composition, make the passes."""
        return False

    @property
    def replaces_examples(self) -> bool:
        """True, unless nothing is attacked; then it equals its base bit for bit."""
        return self._makes_texts or self._base.replaces_examples

    @property
    def makers(self) -> tuple[Defence, ...]:
        """This defence, which attacks the originals, and then its base, which works on the result."""
        return (*((self,) if self._makes_texts else ()), *self._base.makers)

    @property
    def _makes_texts(self) -> bool:
        """Whether training texts are attacked."""
        return self.points != 0

    # The attack.

    @property
    def draws_as(self) -> str:
        """Name by which examples and attacks are drawn; defences that share it draw the same."""
        return self.name

    def with_adversarial(
        self, model: Classifier, data: Dataset, epoch: int, seed: int, *, keep_failed: bool = False
    ) -> Made:
        """The training examples and the results of an attack on some of them: by default, the successes."""
        from isthmus.attacks.result import OUTCOMES

        chosen = data if self.points is None else data.sample(self.points, derive(seed, self.draws_as, "points", epoch))
        results = self._results(model, data.fields, chosen.examples, epoch, seed)
        counts = Counter(result.outcome for result in results)
        if results and counts["error"] == len(results):
            raise TrainingError(
                f"{self.name}: {self.attack} ended in an error on all of {len(results)} training texts; the first: "
                f"{results[0].reason}"
            )
        wanted = ("succeeded", "failed", "skipped", "abstained") if keep_failed else ("succeeded",)
        met = {one.id: self._choose_attack(one, epoch, seed) for one in chosen}
        made = [_make_example(result, met[result.id]) for result in results if result.outcome in wanted]
        if not counts["succeeded"]:
            progress.note(
                f"{self.name}: {self.attack} succeeded on none of {len(results)} training texts "
                f"({counts['failed']} withstood it, {counts['skipped']} were misclassified before): training "
                f"{'continues with unsuccessful texts' if made else 'uses only the originals'}"
            )
        notes: dict[str, Any] = {
            "name": self.attack,
            "attacked": len(results),
            **{str(outcome): counts[outcome] for outcome in OUTCOMES},
            "used": len(made),
            "queries": sum(result.logical_queries for result in results),
            **_unknown(
                model, [after for result in results if result.outcome in wanted for _, after in _list_replaced(result)]
            ),
        }
        if len(self._attacks) > 1:
            each = Counter((met[result.id], result.outcome) for result in results)
            notes["each"] = {
                name: {str(outcome): each[name, outcome] for outcome in OUTCOMES if each[name, outcome]}
                for name in self._attacks
            }
        return Made((*data.examples, *made), {"attack": notes}, added=len(made))

    def _results(
        self, model: Classifier, fields: Sequence[str], chosen: Sequence[Example], epoch: int, seed: int
    ) -> list[AttackResult]:
        """The attack's result for every text, in the order of the texts."""
        from isthmus.attacks.base import AttackSettings
        from isthmus.attacks.result import AttackResult
        from isthmus.models.victims import wrap

        # On its own device: a model in training must not be moved to whatever device is best.
        victim = wrap(model, device=str(model.device))
        # Only what the model reads: an attack would edit other fields, too, and for nothing.
        targets = [Example(one.id, {name: one.fields[name] for name in fields}, one.label) for one in chosen]
        settings = AttackSettings(
            seed=derive(seed, self.draws_as, "attack", epoch), budget=self.budget, limits=self._limits, search_draws=0
        )
        place, kept = {one.id: number for number, one in enumerate(targets)}, unfinished.open_kept()
        results = [AttackResult.from_row(row) for row in kept.rows if row.get("seed") == settings.seed]
        done = {result.id for result in results}
        title, counts = f"{self.attack} before epoch {epoch + 1}", Counter(result.outcome for result in results)
        left = [one for one in targets if one.id not in done]
        for name, attack in self._attacks.items():
            for result in attack(
                victim, [one for one in left if self._choose_attack(one, epoch, seed) == name], settings
            ):
                results.append(result)
                kept.add(result.to_row())
                counts[result.outcome] += 1
                told = f"fooled {counts['succeeded']}  withstood {counts['failed']}"
                progress.tell(title, len(results), len(targets), told)
        results.sort(key=lambda result: place[result.id])
        return results


def _make_example(result: AttackResult, attack: str) -> Example:
    assert result.label is not None
    fields = {**result.perturbed, MADE_FROM: result.id}
    if pairs := _list_replaced(result):
        fields[REPLACED] = json.dumps(pairs, ensure_ascii=False)
    return Example(f"{result.id}+{attack}", fields, result.label)


def _list_replaced(result: AttackResult) -> list[tuple[str, str]]:
    return [(edit.original, edit.replacement) for edit in result.edits if edit.kind == "replace"]


def _unknown(model: Classifier, words: Sequence[str]) -> dict[str, Any]:
    """Number and share of replacements that a word-level model does not know; it reads them as the unknown word."""
    if model.backbone.form not in ("lstm", "cnn"):
        return {}
    from isthmus.models.importance import pieces_of

    unknown = sum(model.tokenizer.unk_token_id in pieces for pieces in pieces_of(model, words))
    share = {"unknown_share": round(unknown / len(words), 4)} if words else {}
    return {"substitutes": len(words), "unknown_substitutes": unknown, **share}


def address_parameters(given: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The parameters of each attack: ``attack.key`` for one, ``key`` for every attack that has it.

    Of a single attack an unknown key is left to whoever builds it, who knows what it does take.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    takes = {name: {one.name for one in catalog.find("attacks", name).parameters} for name in names}
    for key, value in given.items():
        owner, _, own = key.rpartition(".")
        if owner and owner not in found:
            raise UnknownName("attack in attack_parameters", owner, names)
        meant = [owner] if owner else [name for name in names if own in takes[name]] or list(names)
        for name in meant:
            found[name][own] = value
    return found


def split_key_values(text: str, name: str) -> dict[str, Any]:
    """Parse ``a=1;b=2`` into a mapping."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        key, separator, value = part.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{name} takes parameters as key=value;key=value, not {part!r}")
        found[key.strip()] = value.strip()
    return found


def build_base(name: str, base: str, parameters: str) -> Defence:
    """Build the defence `base`, whose losses the defence `name` uses with its own examples or noise."""
    found = catalog.build("defences", base, split_key_values(parameters, f"{name}: {base}"))
    assert isinstance(found, Defence)
    return found
