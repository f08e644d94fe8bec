"""What every word attack shares. A new attack writes `search`, and nothing else.

    class MyAttack(WordAttack):
        def search(self, trial: Trial) -> Search:
            order = yield from by_importance(trial, trial.positions())
            yield from greedy(trial, order, my_proposal)

A search is written for one text, as a paper would write it. It asks for scores by yielding requests; everything about
batches, devices, budgets, workers and caching is the engine's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, final

from isthmus.attacks.parts.goals import Goal, Untargeted
from isthmus.attacks.parts.protection import Protection
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import AttackResult, Outcome, aligned
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive, python_stream
from isthmus.core.types import Example, Floats, MaskedLM, SentenceEncoder, Texts, Victim
from isthmus.engine.requests import Request, Score
from isthmus.engine.scheduler import BudgetSpent, Engine, EngineSettings, EngineStatistics, Finished, TimeSpent
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

Semantics = Literal["textattack", "paper"]


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """Everything about running an attack that is not the attack itself."""

    goal: Goal = field(default_factory=Untargeted)
    protection: Protection = field(default_factory=Protection)
    seed: int = 0
    budget: int | None = None
    """Most queries an example may cost."""
    budget_per_word: int | None = None
    """The same, in queries per word of the text."""
    engine: EngineSettings = field(default_factory=EngineSettings)

    def __post_init__(self) -> None:
        for name in ("budget", "budget_per_word"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True)
class _Reached:
    """What an attack's generator returns."""

    outcome: Outcome
    original: Draft
    draft: Draft
    before: Floats
    after: Floats
    candidates: int = 0
    budget_spent: bool = False


@dataclass(frozen=True, kw_only=True)
class WordAttack(ABC):
    """Base of the attacks that edit words. Subclasses are frozen dataclasses of their hyper-parameters."""

    @abstractmethod
    def search(self, trial: Trial) -> Search:
        """Look for an adversarial text, moving `trial` from draft to draft."""

    def resources(self) -> Mapping[str, str]:
        """Names of the lexical resources and models it uses, recorded with every result file."""
        return {}

    @final
    def __call__(
        self,
        victim: Victim | Callable[[list[str]], Any],
        examples: Iterable[Example],
        settings: AttackSettings | None = None,
        *,
        encoder: SentenceEncoder | None = None,
        masked_lm: MaskedLM | None = None,
        **options: Any,
    ) -> AttackRun:
        """Attack every example; iterate over the result to run it.

        Args:
            victim: A model, or any function from a list of texts to class probabilities.
            examples: What to attack; results come as they finish, and are the same in any order.
            settings: Goal, protection, seed, budgets; or give these as keyword arguments.
            encoder: Sentence encoder, for attacks that compare sentences.
            masked_lm: Masked language model, for attacks that fill blanks.
            options: Fields of `AttackSettings`.
        """
        if settings is not None and options:
            raise UsageError("give either settings or their fields as keyword arguments, not both")
        return AttackRun(
            self,
            as_victim(victim),
            examples,
            settings or AttackSettings(**options),
            encoder=encoder,
            masked_lm=masked_lm,
        )

    @final
    def attempt(
        self, texts: Texts, label: int, settings: AttackSettings, example_id: str, vocabulary: Vocabulary
    ) -> Generator[Request, Any, _Reached]:
        """Score the clean text, search if the goal applies, and conclude with wherever the search got."""
        original = Draft.of(texts, vocabulary, settings.protection.editable(texts))
        clean = (yield Score(original, exact=True))[0]
        if not settings.goal.applies(clean, label):
            return _Reached("skipped", original, original, clean, clean)
        trial = Trial(settings.goal, label, original, clean, python_stream(settings.seed, example_id))
        spent = False
        try:
            yield from self.search(trial)
            outcome: Outcome = "succeeded" if trial.reached else "failed"
        except BudgetSpent:
            spent, outcome = True, "succeeded" if trial.reached else "failed"
        except TimeSpent:
            outcome = "succeeded" if trial.reached else "timed_out"
        return _Reached(outcome, original, trial.draft, clean, trial.scores, trial.candidates, spent)


class _Program:
    """One example, as the engine wants it."""

    __slots__ = ("attack", "budget", "example", "label", "settings")

    def __init__(self, attack: WordAttack, example: Example, settings: AttackSettings) -> None:
        self.attack, self.example, self.settings = attack, example, settings
        if not isinstance(example.label, int):
            raise UsageError(f"example {example.id!r} has no class label: word attacks need classification data")
        self.label = example.label
        self.budget = settings.budget
        if settings.budget_per_word is not None:
            words = sum(len(text.split()) for text in example.texts.values())
            per_word = settings.budget_per_word * max(1, words)
            self.budget = per_word if self.budget is None else min(self.budget, per_word)

    @property
    def key(self) -> int:
        return derive(self.settings.seed, "victim", self.example.id)

    def start(self, vocabulary: Vocabulary) -> Generator[Request, Any, _Reached]:
        return self.attack.attempt(self.example.texts, self.label, self.settings, self.example.id, vocabulary)


class AttackRun:
    """An attack over examples, run by iterating over it; `statistics` tell what it cost."""

    def __init__(
        self,
        attack: WordAttack,
        victim: Victim,
        examples: Iterable[Example],
        settings: AttackSettings,
        *,
        encoder: SentenceEncoder | None = None,
        masked_lm: MaskedLM | None = None,
    ) -> None:
        self.attack, self.settings = attack, settings
        self.examples = examples
        reached = settings.goal.reached
        self.engine = Engine(victim, settings.engine, reached=reached, encoder=encoder, masked_lm=masked_lm)

    @property
    def statistics(self) -> EngineStatistics:
        """What the run cost so far."""
        return self.engine.statistics

    def __iter__(self) -> Iterator[AttackResult]:
        for finished in self.raw():
            yield self.result(finished)

    def raw(self) -> Iterator[Finished[_Reached]]:
        """Finished attacks before their results are written out (for measuring the engine alone)."""
        return self.engine.run(_Program(self.attack, example, self.settings) for example in self.examples)

    def result(self, finished: Finished[_Reached]) -> AttackResult:
        """Write out a finished attack."""
        program = finished.program
        assert isinstance(program, _Program)
        example, reached = program.example, finished.value
        build = partial(
            AttackResult,
            id=example.id,
            label=program.label,
            logical_queries=finished.logical,
            physical_queries=finished.physical,
            seed=self.settings.seed,
        )
        if reached is None:
            texts = example.texts
            return build(outcome="error", original=texts, perturbed=texts, reason=finished.error or "unknown")
        edits = aligned(reached.original, reached.draft)
        words = int(reached.original.editable.sum())
        return build(
            outcome=reached.outcome,
            original=example.texts,
            perturbed=reached.draft.texts if edits else example.texts,
            prediction_before=int(reached.before.argmax()),
            prediction_after=int(reached.after.argmax()),
            score_before=_rounded(reached.before),
            score_after=_rounded(reached.after),
            words=words,
            edits=edits,
            words_changed=len(edits) / words if words else 0.0,
            candidates=reached.candidates,
            budget_spent=reached.budget_spent,
        )


def _rounded(scores: Floats) -> tuple[float, ...]:
    # Seven digits are all that a float32 holds.
    return tuple(float(f"{score:.7g}") for score in scores)


def as_victim(victim: Victim | Callable[[list[str]], Any]) -> Victim:
    """A victim as it is; a model or a function, wrapped as one."""
    if isinstance(victim, Victim):
        return victim
    from isthmus.models.victims import wrap

    return wrap(victim)
