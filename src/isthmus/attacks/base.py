"""The base class of word attacks. A new attack only writes `search`.

    class MyAttack(WordAttack):
        def search(self, trial: Trial) -> Search:
            order = yield from by_importance(trial, trial.positions())
            yield from greedy(trial, order, my_proposal)

A search is written for one text, as a paper would write it. It asks for scores by yielding requests; everything about
batches, devices, budgets, workers and caching is the engine's business.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np

from isthmus.attacks.options import SearchOptions
from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.goals import Goal, Untargeted, bound
from isthmus.attacks.parts.limits import Limits
from isthmus.attacks.parts.protection import Protection
from isthmus.attacks.parts.randomised import Attempts, insist, judge_outcome, score_clean
from isthmus.attacks.parts.reading import kind, readable, texts_of
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.shared_draws import begin_trial, choose_search_draws, conclude_trial, over_draws
from isthmus.attacks.parts.trial import Trial
from isthmus.attacks.result import AttackResult, Clean, Fresh, Outcome, align_edits
from isthmus.core.errors import UsageError, VictimTimeout
from isthmus.core.seeds import derive, python_stream
from isthmus.core.types import ABSTAINS, Example, Floats, MaskedLM, SentenceEncoder, Victim, Voting
from isthmus.data.dataset import Dataset
from isthmus.engine.gradients import require_gradients
from isthmus.engine.requests import Score, Similarity, replacing
from isthmus.engine.scheduler import BudgetSpent, Engine, EngineSettings, EngineStatistics, EngineTask, Steps, TimeSpent
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words

Semantics = Literal["textattack", "paper"]


@dataclass(frozen=True, slots=True)
class AttackSettings(SearchOptions):
    """Settings for running an attack, apart from the attack's own parameters.

    >>> from isthmus import AttackSettings
    >>> AttackSettings(budget=500).seed
    0
    """

    goal: Goal = field(default_factory=Untargeted)
    protection: Protection = field(default_factory=Protection)
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    """Rules for every candidate on top of the attack's own (see `isthmus.attacks.parts.limits`)."""
    engine: EngineSettings = field(default_factory=EngineSettings)


_ResultMaker: TypeAlias = partial[AttackResult]
"""A result as an attack's generator returns it: the engine knows how many queries it took."""


@dataclass(frozen=True, kw_only=True)
class WordAttack(ABC):
    """Base class of attacks that edit words. Subclasses are frozen dataclasses of their hyper-parameters.

    An attack that compares sentences has a field `encoder`, one that fills blanks a field `masked_lm`: the name of the
    model that is loaded where the caller hands none in. One that proposes near words has them as `near`.
    """

    needs_gradients: ClassVar[bool] = False
    """Whether it differentiates the victim, so that only a model in this process can be attacked."""

    @abstractmethod
    def search(self, trial: Trial) -> Search:
        """Search for an adversarial text, moving `trial` from draft to draft."""

    def resources(self) -> Mapping[str, str]:
        """Names of the lexical resources and models it uses, recorded with every result file."""
        return {}

    def rules(self) -> tuple[Rule, ...]:
        """Constraints that every candidate must satisfy (see `isthmus.attacks.parts.rules`)."""
        return ()

    def prepare(self, examples: Sequence[Example]) -> None:
        """Look up what all texts need at once, if that is cheaper than text by text."""
        near = getattr(self, "near", None)
        if near is not None:
            texts = (text for example in examples for text in texts_of(example).values())
            near.look_up({word for text in texts for word in Words.of(text)})

    def frozen_columns(self) -> tuple[str, ...]:
        """Columns of a pair that are protected by default."""
        return ("premise",)

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
            examples: What to attack; results come as they finish, and are the same in any order. The labels of a
                `Dataset` are matched to the model's by name where the names are the same, else by position.
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


def _make_result(
    example: Example,
    seed: int,
    original: Draft,
    final: Draft,
    before: Floats,
    after: Floats,
    outcome: Outcome,
    clean: Clean | None,
    candidates: int = 0,
    similarity: float | None = None,
    budget_spent: bool = False,
    fresh: Fresh | None = None,
    reason: str = "",
    *,
    logical_queries: int,
    physical_queries: int,
) -> AttackResult:
    """The result of an attack that ended with the draft `final` and its scores `after`."""
    assert isinstance(example.label, int)
    edits = align_edits(original, final)
    # Seven digits are all that a float32 holds.
    rounded = [tuple([float(f"{score:.7g}") for score in scores.tolist()]) for scores in (before, after)]
    words = int(np.count_nonzero(original.editable))
    return AttackResult(
        example.id,
        label=example.label,
        original=example.texts,
        perturbed=final.texts if edits else example.texts,
        prediction_before=int(before.argmax()),
        prediction_after=int(after.argmax()),
        score_before=rounded[0],
        score_after=rounded[1],
        words=words,
        edits=edits,
        words_changed=len(edits) / words if words else 0.0,
        seed=seed,
        outcome=outcome,
        clean=clean,
        candidates=candidates,
        similarity=similarity,
        budget_spent=budget_spent,
        fresh=fresh,
        reason=reason,
        logical_queries=logical_queries,
        physical_queries=physical_queries,
    )


def _similarity(trial: Trial) -> Steps[float]:
    """Cosine of the field that was edited to what it was."""
    draft = trial.draft
    # An edit that changes nothing tells which field is meant.
    at = int(trial.find_changed(draft).argmax())
    same = replacing(at, draft.ids[at : at + 1])
    cosines = yield Similarity(draft, same, 1, trial.original)
    return float(f"{cosines[0]:.6g}")


@dataclass(frozen=True, slots=True)
class _Terms:
    """Settings and facts about the victim that the attacks of a run share."""

    settings: AttackSettings
    rules: tuple[Rule, ...]
    labels: tuple[str, ...]  # the victim's classes
    compares: bool  # whether there is an encoder, so that results can say how similar the texts are
    randomised: bool = False  # whether the same text may be scored differently twice
    search_draws: int = 0  # draws that a search sees at once, always the same ones
    abstains: int | None = None  # the column of a victim that may decline to answer
    votes: bool = False  # whether its answers are shares of votes

    def declines(self, scores: Floats) -> bool:
        """Whether the victim declined to answer, by one row of scores."""
        return self.abstains is not None and int(scores.argmax()) == self.abstains


class _AttackProgram:
    """One example, as a program of the engine."""

    __slots__ = ("attack", "budget", "example", "label", "terms")

    def __init__(self, attack: WordAttack, example: Example, terms: _Terms) -> None:
        self.attack, self.example, self.terms = attack, example, terms
        settings = terms.settings
        if not isinstance(example, Example):
            raise UsageError(
                f"an attack takes examples, isthmus.core.types.Example(id, fields, label), not {kind(example)}"
            )
        if not isinstance(example.label, int):
            raise UsageError(f"example {example.id!r} has no class label: word attacks need classification data")
        if not 0 <= example.label < len(terms.labels):
            known = ", ".join(f"{number} {name}" for number, name in enumerate(terms.labels))
            raise UsageError(f"example {example.id!r} has label {example.label}; the victim has {known}")
        self.label = example.label
        self.budget = settings.budget
        for per_word in (settings.budget_per_word, settings.limits.budget_per_word):
            if per_word is not None:
                words = sum(len(text.split()) for text in texts_of(example).values())
                most = per_word * max(1, words)
                self.budget = most if self.budget is None else min(self.budget, most)

    @property
    def key(self) -> int:
        return derive(self.terms.settings.seed, "victim", self.example.id)

    def start(self, vocabulary: Vocabulary) -> Steps[_ResultMaker]:
        """Score the clean text, search if the goal applies, and return the result, but for its counts of queries."""
        attack, example, label, terms = self.attack, self.example, self.label, self.terms
        search, settings, texts = attack.search, terms.settings, readable(example)
        original = Draft.of(texts, vocabulary, settings.protection.editable(texts, attack.frozen_columns()))
        clean = (yield Score(original, exact=True))[0]
        often = None
        if terms.randomised and settings.fresh:
            often = yield from score_clean(settings.goal, original, label, settings.fresh, terms.declines)
        if not settings.goal.applies(clean, label):
            outcome: Outcome = "abstained" if terms.declines(clean) else "skipped"
            return partial(_make_result, example, settings.seed, original, original, clean, clean, outcome, often)
        rng = python_stream(settings.seed, example.id)
        trial = begin_trial(settings.goal, label, original, clean, rng, terms.rules, terms.search_draws)
        spent, fresh, reason = False, None, ""
        attempts = Attempts(trial)
        try:
            if terms.search_draws:
                yield from over_draws(search, trial, terms.search_draws, terms.votes)
            else:
                yield from search(trial)
            if terms.randomised and not terms.search_draws:
                streams = (python_stream(settings.seed, example.id, again + 1) for again in range(settings.restarts))
                yield from insist(attempts, search, terms.rules, streams)
            outcome = "succeeded" if attempts.best.reached else "failed"
        except BudgetSpent:
            spent, outcome = True, "succeeded" if attempts.best.reached else "failed"
        except (TimeSpent, VictimTimeout) as late:
            outcome = "succeeded" if attempts.best.reached else "timed_out"
            reason = "" if attempts.best.reached else str(late)
        trial = conclude_trial(attempts.best)
        if terms.randomised and settings.fresh:
            outcome, fresh = yield from judge_outcome(trial, outcome, settings.fresh, terms.declines)
        elif outcome == "failed" and terms.declines(trial.scores):
            outcome = "abstained"
        similarity = None
        if terms.compares and trial.draft is not original:
            similarity = yield from _similarity(trial)
        return partial(
            _make_result, example, settings.seed, original, trial.draft, clean, trial.scores, outcome, often,
            attempts.candidates, similarity, spent, fresh, reason,
        )  # fmt: skip


class AttackRun:
    """An attack over examples, run by iterating over it; `statistics` holds its cost."""

    def __init__(
        self,
        attack: WordAttack,
        victim: Victim,
        examples: Iterable[Example],
        settings: AttackSettings,
        *,
        encoder: SentenceEncoder | None = None,
        masked_lm: MaskedLM | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        settings = dataclasses.replace(settings, goal=bound(settings.goal, victim.labels))
        self.attack, self.settings = attack, settings
        if isinstance(examples, Dataset) and set(examples.labels) == set(victim.labels) != set():
            examples = examples.align_labels(victim.labels)
        self.examples = examples
        if attack.needs_gradients:
            require_gradients(victim)
        reached = settings.goal.is_reached
        encoder, masked_lm = _models(attack, settings.limits, encoder, masked_lm)
        if isinstance(examples, Sequence):
            attack.prepare(examples)
        abstains = victim.labels.index(ABSTAINS) if ABSTAINS in victim.labels else None
        rules = (*attack.rules(), *settings.limits.rules())
        votes = isinstance(victim, Voting) and victim.graded is not None
        draws = choose_search_draws(settings.search_draws, randomised=victim.stochastic)
        self._terms = _Terms(
            settings, rules, tuple(victim.labels), encoder is not None, victim.stochastic, draws, abstains, votes
        )
        self.engine = Engine(
            victim, settings.engine, reached=reached, encoder=encoder, masked_lm=masked_lm, vocabulary=vocabulary
        )

    @property
    def statistics(self) -> EngineStatistics:
        """Cost of the run so far."""
        return self.engine.statistics

    def __iter__(self) -> Iterator[AttackResult]:
        for task in self.raw():
            yield self._make_result(task)

    def in_turns(self) -> Iterator[AttackResult | None]:
        """The results, and None whenever the run has nothing to do but to wait, so that others may have their turn."""
        for task in self.engine.run_in_turns(self._programs()):
            yield None if task is None else self._make_result(task)

    def raw(self) -> Iterator[EngineTask[_ResultMaker]]:
        """The engine's tasks as they end, before results are made of them (for measuring the engine alone)."""
        return self.engine.run(self._programs())

    def _programs(self) -> Iterator[_AttackProgram]:
        return (_AttackProgram(self.attack, example, self._terms) for example in self.examples)

    def _make_result(self, task: EngineTask[_ResultMaker]) -> AttackResult:
        if task.value is None:
            return self._make_failed(task)
        return task.value(logical_queries=task.logical, physical_queries=task.physical)

    def _make_failed(self, task: EngineTask[_ResultMaker]) -> AttackResult:
        """The result of an attack that ended with an error or out of time."""
        program = task.program
        assert isinstance(program, _AttackProgram)
        texts = texts_of(program.example)
        return AttackResult(
            program.example.id,
            "timed_out" if task.timed_out else "error",
            program.label,
            texts,
            texts,
            logical_queries=task.logical,
            physical_queries=task.physical,
            seed=self.settings.seed,
            reason=task.error or "unknown",
        )


def _models(
    attack: WordAttack, limits: Limits, encoder: SentenceEncoder | None, masked_lm: MaskedLM | None
) -> tuple[SentenceEncoder | None, MaskedLM | None]:
    """The given models, and by name those that the attack or its limits also need."""
    if encoder is None:
        name = getattr(attack, "encoder", None) or (limits.encoder if limits.similarity is not None else None)
        if name is not None:
            from isthmus.auxiliary import load_encoder

            encoder = load_encoder(name)
    if masked_lm is None:
        name = getattr(attack, "masked_lm", None) or (limits.masked_lm if limits.max_drop is not None else None)
        if name is not None:
            from isthmus.auxiliary import load_masked_lm

            masked_lm = load_masked_lm(name)
    return encoder, masked_lm


def as_victim(victim: Victim | Callable[[list[str]], Any]) -> Victim:
    """A victim unchanged; a model or a function wrapped as one."""
    if isinstance(victim, Victim):
        return victim
    from isthmus.models.victims import wrap

    return wrap(victim)
