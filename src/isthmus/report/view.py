"""A run folder read for page and terminal: figures computed, nothing rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from isthmus.core.records import part_of
from isthmus.report.attack.view import AttackView, read_attack
from isthmus.report.evaluation.view import EvaluationView, read_evaluations
from isthmus.runs.folder import RunFolder, RunRecord
from isthmus.summaries.attack import Summary, summarise, together


@dataclass(frozen=True)
class RunView:
    """A whole run."""

    name: str
    folder: RunFolder
    record: RunRecord
    attacks: tuple[AttackView, ...]
    log: Sequence[Mapping[str, Any]]
    evaluations: tuple[EvaluationView, ...] = ()
    embeddings: tuple[AttackView, ...] = ()
    """Attacks on the embeddings of texts: excluded from union and headline, because nobody can send an embedding."""

    @cached_property
    def alike(self) -> tuple[AttackView, ...]:
        """The largest group of attacks that can be combined."""
        views = [view for view in self.attacks if view.results]
        # Attacks with another goal, on another label or on other data answer another question.
        groups = [tuple(view for view in views if view.question == first.question) for first in views]
        return max(groups, key=len, default=())

    @cached_property
    def together(self) -> Summary | None:
        """The union of those attacks: an example is robust only if it withstood each of them."""
        if len(self.alike) < 2:
            return None
        results = together([view.results for view in self.alike])
        return summarise(results, self.alike[0].threshold) if results else None

    @property
    def left_out(self) -> dict[str, str]:
        """Attacks that ``all`` requested and that could not run, with the reason."""
        found: dict[str, str] = {}
        for view in self.attacks:
            left_out = part_of(part_of(view.header, "suite"), "left_out")
            found |= {str(name): str(reason) for name, reason in left_out.items()}
        there = {view.attack for view in self.attacks if view.results}
        return {name: reason for name, reason in found.items() if name not in there}

    @property
    def headline(self) -> Summary | None:
        """The strongest statement that the run supports: the union of all attacks, else the strongest attack."""
        if self.together is not None:
            return self.together
        summaries = [view.summary for view in self.attacks if view.results]
        return min(summaries, key=lambda summary: summary.racc.estimate) if summaries else None


def read_run(
    folder: RunFolder,
    attacks: Sequence[AttackView] | None = None,
    evaluations: Sequence[EvaluationView] | None = None,
    embeddings: Sequence[AttackView] | None = None,
) -> RunView:
    """Everything a report shows; given `attacks`, `evaluations` and `embeddings` are not read again."""
    if attacks is None:
        attacks = [read_attack(file) for file in folder.attack_files()]
    if evaluations is None:
        evaluations = read_evaluations(folder)
    if embeddings is None:
        embeddings = [read_attack(file) for file in folder.embedding_files()]
    return RunView(
        folder.name, folder, folder.record(), tuple(attacks), folder.train_log(), tuple(evaluations), tuple(embeddings)
    )
