"""`attack`: one attack or several, on a model by name or at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.given import Data, as_names, as_path, data_request, find_victim, refuse_out, take_sample
from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.results import AttackResults

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack


def attack(
    model: Any,
    attack: str | WordAttack = "textfooler",
    data: Data = None,
    *,
    n: int | None = 200,
    split: str | None = None,
    seed: int = 0,
    settings: AttackSettings | None = None,
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    **parameters: Any,
) -> AttackResults:
    """Attack a model on examples, and return one result for each.

    Args:
        model: a run folder, a model by name, or an object: a classifier, a pipeline, a function of a list of texts.
        attack: a name (`isthmus list attacks`), ``package.module:Class``, or an attack with its parameters.
        data: what to attack it on; None takes the run's own. Test data, else development data.
        n: examples, the first of a seeded stratified order; None takes all.
        split: another split of the data.
        seed: of the sample and of every draw.
        settings: goal, budget, limits and the rest; its own seed is not used.
        labels: class names of the model, in its order.
        out: where the rows go, if not into the run itself.
        device: ``cpu`` or ``cuda``.
        parameters: of the attack, where it is given by name.

    >>> from isthmus import attack
    >>> def classify(texts):
    ...     return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good")]
    >>> found = attack(classify, "deepwordbug", rows, labels=("bad", "good"))
    >>> [result.outcome for result in found]
    ['succeeded', 'failed']
    >>> found.summary().racc.estimate
    0.5
    """
    from isthmus.attacks.base import AttackSettings

    if parameters and not isinstance(attack, str):
        raise UsageError("parameters belong to the attack: give them where it is made, or name the attack instead")
    request = data_request(data)
    if isinstance(model, str | Path) and isinstance(attack, str) and request is not False and _is_plain(settings):
        from isthmus.attacks.options import SearchOptions
        from isthmus.verbs.attack import AttackRequest
        from isthmus.verbs.attack import attack as run

        own = {} if settings is None else settings.values(SearchOptions)
        report = run(
            AttackRequest(
                str(model), (attack,), n=n, seed=seed, out=as_path(out), labels=as_names(labels), device=device,
                data=request, split=split, parameters=parameters, **own,
            )
        )  # fmt: skip
        outcome = report.outcomes[0]
        names = tuple(outcome.header.get("labels") or ())
        return AttackResults(outcome.file.key, outcome.results, names, report.folder)
    refuse_out(out)
    method = catalog.build("attacks", attack, parameters) if isinstance(attack, str) else attack
    victim, sample = find_victim(model, labels, device), take_sample(model, data, split, n, seed)
    asked = AttackSettings(seed=seed) if settings is None else dataclasses.replace(settings, seed=seed)
    name = attack if isinstance(attack, str) else type(attack).__name__.lower()
    aligned = sample.align_labels(victim.labels)
    found = {result.id: result for result in method(victim, aligned.examples, asked)}
    return AttackResults(name, tuple(found[each.id] for each in aligned), tuple(victim.labels))


def _is_plain(settings: AttackSettings | None) -> bool:
    """Whether a request can say all of it."""
    from isthmus.attacks.base import AttackSettings
    from isthmus.attacks.options import SearchOptions

    if settings is None:
        return True
    usual = AttackSettings()
    known = {"seed", *(one.name for one in dataclasses.fields(SearchOptions))}
    return all(
        getattr(settings, one.name) == getattr(usual, one.name)
        for one in dataclasses.fields(usual)
        if one.name not in known
    )
