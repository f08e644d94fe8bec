"""`explain`: which words drive a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed
from isthmus.api.given import Data, as_names, as_path, data_request, find_victim, is_named
from isthmus.core.errors import UsageError

if TYPE_CHECKING:
    from isthmus.explanations.base import Explainer, Explanation
    from isthmus.runs.explained import Explained
    from isthmus.verbs.explain import ExplainedOutcome
    from isthmus.verbs.observer import Observer


def explain(
    model: Any,
    texts: Any = None,
    *,
    method: str | Explainer = "integrated_gradients",
    classes: Any = "predicted",
    seed: int = 0,
    attack: str | None = None,
    outcome: ExplainedOutcome = "succeeded",
    run: str | Path | None = None,
    data: Data = None,
    split: str | None = None,
    n: int | None = None,
    against: str | None = None,
    keep: bool | None = None,
    labels: Sequence[str] | None = None,
    victim: Mapping[str, Any] | None = None,
    device: str | None = None,
    progress: Observer | None = None,
    **parameters: Any,
) -> Explanation | list[Explanation] | list[Explained]:
    """Explain which words drive a prediction; for several texts, a list of explanations.

    Without texts it explains what a run holds, as `isthmus explain` does: a list of `Explained`, each with the text as
    the model reads it, what an attack made of it, and how another model reads both.

    Args:
        model: as of `attack`.
        texts: one text or several: strings, mappings from fields to texts, or examples.
        method: a name (`isthmus list explanations`), or an instance with parameters of its own.
        classes: ``predicted``, ``all``, or classes by name or number.
        seed: of every draw.
        attack: an attack of the run, whose successes are explained beside their originals.
        outcome: which of its texts: ``succeeded``, ``failed`` or ``all``.
        run: the run with the attack, where the model is none.
        data: data by name, whose first texts are explained; None takes the run's own.
        split: another split of the data.
        n: texts of the attack or of the data.
        against: a second model that reads the same texts, by name.
        keep: whether the run keeps what is found, for its report; by default for texts of an attack.
        labels: class names of the model, in its order.
        victim: inference options (``-V``).
        device: ``cpu`` or ``cuda``.
        progress: told what is being loaded (`isthmus.Observer`).
        parameters: of the method, where it is given by name.

    >>> from isthmus import explain
    >>> found = explain(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                 "a dull plot", method="occlusion")
    >>> max(zip(found.weights[0], found.words))[1]
    'dull'
    """
    from isthmus.explanations.base import explain as of_victim

    check_arguments(
        attack=attack, outcome=outcome, run=run, split=split, against=against, keep=keep, labels=labels, victim=victim,
        device=device, progress=progress,
    )  # fmt: skip
    n, seed = check_count("n", n), check_seed(seed)
    if isinstance(method, type) or not (isinstance(method, str) or callable(method)):
        raise UsageError(
            "method takes a name (isthmus list explanations) or a method with its parameters "
            f"(isthmus.explanations.Occlusion()), not {method!r:.80}"
        )
    of_run = {
        "attack": attack, "run": run, "data": data, "split": split, "against": against, "keep": keep, "n": n,
    }  # fmt: skip
    if texts is not None:
        for name, given in of_run.items():
            if given is not None:
                raise UsageError(f"`{name}` is for what a run holds: leave out the texts, or leave it out")
        is_plain = not is_named(model) and labels is None and device is None and not victim
        subject = model if is_plain else find_victim(model, labels, device, victim)
        return of_victim(subject, texts, method=method, classes=classes, seed=seed, **parameters)
    request = data_request(data)
    if not is_named(model) or not isinstance(method, str) or request is False:
        raise UsageError("pass the texts to explain; without any the model, the method and the data are given by name")
    from isthmus.verbs.explain import ExplainRequest
    from isthmus.verbs.explain import explain as of_request

    wanted = tuple(map(str, classes)) if isinstance(classes, list | tuple) else (str(classes),)
    found = of_request(
        ExplainRequest(
            str(model), method=method, classes=wanted, parameters=parameters, attack=attack, outcome=outcome,
            against=against, keep=keep, data=request, split=split, n=n, seed=seed, out=as_path(run),
            labels=as_names(labels), victim=victim or {}, device=device,
        ),
        progress,
    )  # fmt: skip
    return list(found.explained)
