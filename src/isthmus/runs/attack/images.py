"""Gradient attacks on the images of a command.

Images are attacked in cohorts: blocks of so many rows of the one seeded order that every sample is cut from. A cohort
is attacked as a whole, even where only some of its rows are asked for, so that no row depends on how often the command
was interrupted or on how many were asked for before. Adversarial images lie in ``attacks/<name>.npz`` beside the rows,
which is a data set by itself; until an attack is done, in one file a cohort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core import catalog
from isthmus.core.errors import RunError, UsageError, VictimError
from isthmus.core.files import make_folder, remove_tree, replacing
from isthmus.core.npz import npz_bytes
from isthmus.core.seeds import derive
from isthmus.core.types import ImageClassification
from isthmus.data.images import pixels
from isthmus.runs.attack.prepared import PreparedAttacks, parameters_of
from isthmus.runs.attack.suite import ALL, Suite
from isthmus.runs.request import AttackRequest
from isthmus.runs.settings import plain
from isthmus.runs.sources import ModelSource
from isthmus.runs.victims import deciding

if TYPE_CHECKING:
    from isthmus.attacks.gradient.base import Attackable, GradientAttack, GradientResult, GradientSettings
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Example, Victim
    from isthmus.data import Dataset
    from isthmus.runs.folder import AttackFile

COHORT = 100
_OF_TEXTS = {
    "preset": "--preset", "protect": "--protect", "protect_pattern": "--protect-pattern",
    "protect_kinds": "--protect-kind", "budget": "--budget", "budget_per_word": "--budget-per-word",
    "time_limit": "--time-limit", "encoder": "--encoder", "masked_lm": "--masked-lm", "trace": "--trace",
}  # fmt: skip


def attacks_images(request: AttackRequest) -> bool:
    """Whether a command is about images, as far as files and names tell; nothing is loaded."""
    from isthmus.data.load import names_images
    from isthmus.models.image_names import is_image_model

    source = ModelSource.of(request.model)
    if Path(source.spec).is_dir() and is_image_model(Path(source.spec)):
        return True
    return request.data is not None and names_images(request.data.source)


class PreparedImageAttacks(PreparedAttacks):
    """One command about images."""

    def check(self) -> None:
        """Find everything that is wrong before anything is loaded or written."""
        request = self.request
        for name, option in _OF_TEXTS.items():
            if getattr(request, name):
                raise UsageError(f"{option} is for attacks on texts: leave it out")
        if request.precision != "fp32":
            raise UsageError(f"images are attacked in fp32, not in {request.precision!r}")
        goal = request.goal
        if goal.threshold is not None or goal.at_fpr is not None:
            raise UsageError("--threshold and --at-fpr are for attacks on texts; --target-label works for images")
        _ = self.methods, self.sample
        task = self.data.task
        if isinstance(task, ImageClassification) and not task.has_pixels:
            raise UsageError(
                f"{self.data.name} holds features, whose scale nobody knows: gradient attacks move pixels in [0, 1]"
            )
        goal.target(self.data)
        goal.check_positive(self.data)
        _ = self.folder

    @cached_property
    def methods(self) -> dict[str, Any]:
        """The attacks by name, with their parameters."""
        every = [entry for entry in catalog.entries("attacks") if entry.kind == "gradient"]
        named = [catalog.find("attacks", name) for name in self.request.attacks if name != ALL]
        entries = {entry.name: entry for entry in (every if ALL in self.request.attacks else named)}
        known = ",".join(entry.name for entry in every)
        if not entries:
            raise UsageError(f"name at least one attack: --attack {known}")
        for entry in entries.values():
            if entry.kind != "gradient":
                raise UsageError(f"{entry.name} edits words, and these are images: --attack {known}")
        given = parameters_of(self.request.parameters, entries)
        return {name: catalog.build("attacks", name, given[name]) for name in entries}

    def suite(self) -> Suite:
        """The attacks that fit these images; one of ``all`` that does not is left out."""
        import torch

        one = torch.from_numpy(pixels(self.sample[:1])) if len(self.sample) else torch.zeros(1, 1)
        chosen, left_out = [], {}
        for name, attack in self.methods.items():
            try:
                attack.check(one, self.gradient_settings())
                if self.request.goal.target_label is not None and not attack.takes_targets:
                    raise UsageError("it looks for any wrong class, and --target-label asks for one")
                chosen.append(name)
            except UsageError as error:
                if ALL not in self.request.attacks:
                    raise UsageError(f"{name} cannot run: {error}") from error
                left_out[name] = str(error)
                self.observer.note(f"{name} is left out: {error}")
        if not chosen:
            raise UsageError(f"no attack can run; {next(iter(left_out))}: {next(iter(left_out.values()))}")
        return Suite(tuple(chosen), left_out)

    @cached_property
    def search_draws(self) -> int:
        """Gradient attacks share draws by themselves."""
        return 0

    @property
    def draws(self) -> int:
        """Draws of a randomised model over which gradients are averaged."""
        return self.request.search_draws or 10

    def gradient_settings(self) -> GradientSettings:
        """What an attack of the command gets."""
        from isthmus.attacks.gradient.base import GradientSettings

        return GradientSettings(seed=self.request.seed, draws=self.draws, fresh=max(1, self.request.fresh), rows=COHORT)

    @cached_property
    def victim(self) -> Victim:
        """The model, loaded; one without gradients is refused."""
        victim = super().victim
        _ = victim.attackable  # type: ignore[attr-defined]
        return victim

    @cached_property
    def target(self) -> Attackable:
        """The model as gradient attacks see it; what precedes its randomness is computed once for all draws."""
        from isthmus.attacks.gradient._targets import EncoderTarget
        from isthmus.models.images import ImageClassifier

        model = self.victim.attackable  # type: ignore[attr-defined]
        if isinstance(model, ImageClassifier) and model.stochastic and model.slots.noise is None:
            return EncoderTarget(model, model.backbone, model.decode)
        return model  # type: ignore[no-any-return]

    def settings(self, name: str, search_draws: int) -> dict[str, Any]:
        """What decides the rows of an attack."""
        del search_draws
        request = self.request
        return {
            "attack": name,
            "parameters": plain(self.methods[name]),
            "resources": {},
            "goal": request.goal.settings(),
            "seed": request.seed,
            "cohort": COHORT,
            "randomised": {"fresh": request.fresh, "draws": self.draws},
            "labels": request.labels,
            "data": {"split": self.data.split, "fingerprint": self.data.fingerprint},
            "victim": deciding(request.victim),
            "model": self.identity,
        }

    def cohorts(self, missing: set[str]) -> Iterator[tuple[int, list[Example]]]:
        """The cohorts that hold a missing row, whole, with their numbers."""
        order = self.first(None).aligned(self.victim.labels).examples
        for start in range(0, len(order), COHORT):
            cohort = list(order[start : start + COHORT])
            if any(example.id in missing for example in cohort):
                yield start // COHORT, cohort


@dataclass(frozen=True)
class Cohort:
    """Examples that were attacked together, with one result each."""

    results: list[AttackResult]
    images: dict[str, np.ndarray[Any, Any]]
    """By id, of those that were attempted."""


def attack_cohort(ready: PreparedImageAttacks, name: str, cohort: list[Example]) -> Cohort:
    """Attack a cohort; one that the model fails on is halved until the images it fails on stand alone."""
    try:
        return _attacked(ready, ready.methods[name], cohort)
    except VictimError as error:
        if len(cohort) == 1:
            return Cohort([_error(cohort[0], str(error), ready.request.seed)], {})
        middle = len(cohort) // 2
        first, second = (attack_cohort(ready, name, half) for half in (cohort[:middle], cohort[middle:]))
        return Cohort([*first.results, *second.results], first.images | second.images)


def _attacked(ready: PreparedImageAttacks, attack: GradientAttack, cohort: list[Example]) -> Cohort:
    import torch

    model = ready.victim.attackable  # type: ignore[attr-defined]
    device = next((value.device for value in model.parameters()), torch.device("cpu"))
    images = torch.from_numpy(pixels(cohort)).to(device)
    labels = torch.tensor([int(example.label) for example in cohort], device=device)  # type: ignore[arg-type]
    keys = torch.tensor([derive(ready.request.seed, "victim", example.id) >> 1 for example in cohort], device=device)
    wanted = ready.request.goal.target(ready.data)
    index = None if wanted is None else ready.numbering[wanted]
    # An image of the class asked for has nowhere to go; it is attacked towards another class and then skipped.
    own = None if index is None else labels == index
    targets = None
    if own is not None and index is not None:
        targets = torch.where(own, (labels + 1) % len(ready.victim.labels), index)
    found = attack.run(ready.target, images, labels, ready.gradient_settings(), targets=targets, keys=keys)
    skipped = found.skipped if own is None else found.skipped | own
    adversarial = found.adversarial.cpu().numpy()
    before, after = _scores(ready, cohort, pixels(cohort)), _scores(ready, cohort, adversarial)
    results, kept = [], {}
    for place, example in enumerate(cohort):
        result = _result(ready, example, found, place, before[place], after[place], bool(skipped[place]))
        results.append(result)
        if result.outcome != "skipped":
            kept[example.id] = adversarial[place]
    return Cohort(results, kept)


def _scores(ready: PreparedImageAttacks, cohort: list[Example], images: np.ndarray[Any, Any]) -> list[list[float]]:
    victim = ready.victim
    inputs: list[Any] = [{"image": image} for image in images]
    keys = np.array([derive(ready.request.seed, "victim", example.id) for example in cohort], dtype=np.uint64)
    scores = victim.scores(inputs, keys) if victim.stochastic else victim.scores(inputs)
    return [[float(f"{p:.7g}") for p in row] for row in scores]


def _result(
    ready: PreparedImageAttacks,
    example: Example,
    found: GradientResult,
    place: int,
    before: list[float],
    after: list[float],
    skipped: bool,
) -> AttackResult:
    from isthmus.attacks.result import AttackResult, Fresh

    assert isinstance(example.label, int)
    success = bool(found.success[place]) and not skipped
    passes = round(found.forward / max(1, len(found.success)))
    draws = max(1, ready.request.fresh)
    fresh = None
    if ready.victim.stochastic and not skipped:
        fresh = Fresh.of(draws, round(float(found.fooled[place]) * draws), 0, claimed=success)
    wrong = bool(found.skipped[place]) and ready.request.goal.target_label is None
    return AttackResult(
        example.id,
        "skipped" if skipped else "succeeded" if success else "failed",
        example.label,
        {},
        {},
        prediction_before=_prediction(before, example.label, wrong) if skipped else example.label,
        prediction_after=int(found.predicted[place]) if not skipped else int(np.argmax(after)),
        score_before=tuple(before),
        score_after=tuple(after),
        logical_queries=passes,
        physical_queries=passes,
        candidates=max(1, passes - 1),
        seed=ready.request.seed,
        fresh=fresh,
        l2=float(f"{found.l2[place]:.6g}"),
        linf=float(f"{found.linf[place]:.6g}"),
        blind=bool(found.blind[place]),
    )


def _prediction(scores: list[float], label: int, wrong: bool) -> int:
    """The likeliest class; of a randomised model that is wrong on most draws, the likeliest other than the label."""
    order = np.argsort(scores)[::-1].tolist()
    return int(next(index for index in order if index != label)) if wrong else int(order[0])


def _error(example: Example, reason: str, seed: int) -> AttackResult:
    from isthmus.attacks.result import AttackResult

    label = example.label if isinstance(example.label, int) else None
    return AttackResult(example.id, "error", label, {}, {}, seed=seed, reason=reason)


class AdversarialImages:
    """``attacks/<name>.npz``: ids, adversarial images, true labels and whether they fooled the model."""

    def __init__(self, file: AttackFile) -> None:
        self.path = file.images_path
        self.parts = file.images_path.with_suffix(".images")

    def keep(self, number: int, images: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """The images of a cohort, before its rows are written."""
        if images:
            make_folder(self.parts)
            _write(
                self.parts / f"{number}.npz", {"ids": np.array(list(images)), "images": np.stack([*images.values()])}
            )

    def finish(self, data: Dataset, results: Sequence[AttackResult]) -> None:
        """One file of all that was kept, in the order of the results."""
        found = read_images(self.path)
        for part in sorted(self.parts.glob("*.npz"), key=lambda path: int(path.stem)) if self.parts.is_dir() else ():
            found |= read_images(part)
        kept = [each for each in results if each.id in found and each.outcome in ("succeeded", "failed")]
        if kept:
            arrays = {
                "ids": np.array([each.id for each in kept]),
                "images": np.stack([found[each.id] for each in kept]),
                "labels": np.array([each.label for each in kept], dtype=np.int64),
                "success": np.array([each.outcome == "succeeded" for each in kept]),
                "label_names": np.array(data.labels),
            }
            _write(self.path, arrays)
        if self.parts.is_dir():
            remove_tree(self.parts)


def read_images(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The images of a file by the id of their example; none where there is no file."""
    from isthmus.core.errors import DataError
    from isthmus.data._arrays import load_npz

    if not path.is_file():
        return {}
    try:
        arrays = load_npz(path)
        return dict(zip(map(str, arrays["ids"].tolist()), arrays["images"], strict=True))
    except (DataError, KeyError, ValueError) as error:
        raise RunError(f"{error}. Without it only the images are lost, not the rows: delete {path}") from error


def _write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    with replacing(path) as stream:
        stream.write(npz_bytes(arrays))
