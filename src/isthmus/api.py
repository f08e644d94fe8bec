"""isthmus from Python: the verbs of the command line as functions.

    train, attack, evaluate, certify, measure, explain, open_run

A model is a run folder, anything `load_victim` takes by name, or an object at hand: a trained classifier, a pipeline, a
function. Of a model and data that have names the results are written into a run, and the same call continues it, as the
command line does; of objects they are computed and returned.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core import catalog
from isthmus.core.errors import IsthmusWarning, RunError, UsageError
from isthmus.core.seeds import derive
from isthmus.results import AttackResults, CertificateResults, EvaluationResults

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.certificates.base import Certificate
    from isthmus.core.types import Example, Floats, Victim
    from isthmus.data import Dataset, Splits
    from isthmus.defences import Defence
    from isthmus.explanations.base import Explainer, Explanation
    from isthmus.measures.base import Measure, Measurement
    from isthmus.models import Classifier
    from isthmus.runs.evaluated import Evaluated
    from isthmus.runs.folder import RunFolder, RunRecord
    from isthmus.training.settings import Progress, TrainingSettings
    from isthmus.verbs.sources import DataRequest

Data = Any
"""A name, a file, `Splits`, a `Dataset`, or plain input as `isthmus.load_data` takes it."""


def train(
    data: Data,
    backbone: str | Path | Classifier = "minilm",
    defence: str | Defence | Sequence[Defence] | None = None,
    *,
    settings: TrainingSettings | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    progress: Progress | None = None,
    device: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Classifier:
    """Train a classifier with a defence; with a `folder` it is a run that every verb, and the command line, can open.

    Args:
        data: what to train on: a name, a file, `Splits`, rows of (text, label), a frame.
        backbone: a name, a folder, or a classifier (trained in place where no folder is given).
        defence: how to train: a name such as ``"normalise+freelb"``, a defence, or several, composed in order.
        settings: how long, how fast, in which precision.
        folder: the run's folder. Data at hand are written into it, so that the run is whole by itself.
        seed: of everything that is drawn.
        limit: maximum number of training examples.
        progress: told about every step.
        device: ``cpu`` or ``cuda``; by default the accelerator if there is one.
        parameters: of a defence given by name; ``freelb.steps`` is for one part of a composition.

    >>> from isthmus import TrainingSettings, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> model = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/reviews")
    >>> model.labels
    ('bad', 'good')
    """
    from isthmus.defences import build_defence, compose
    from isthmus.training import train as fit

    if isinstance(defence, str):
        chosen: Defence | None = build_defence(defence, parameters)
    elif parameters:
        raise UsageError("parameters belong to a defence given by name: give others where the defence is made")
    else:
        chosen = None if defence is None else compose(defence)
    if folder is None:
        splits = _limit_splits(_splits(data), limit, seed)
        return fit(splits, backbone, chosen, settings=settings, seed=seed, progress=progress, device=device)
    return _train_run(
        data, backbone, defence, chosen, Path(folder), settings, seed, limit, progress, device, parameters or {}
    )


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
    request = _data_request(data)
    if isinstance(model, str | Path) and isinstance(attack, str) and request is not False and _is_plain(settings):
        from isthmus.attacks.options import SearchOptions
        from isthmus.verbs.attack import AttackRequest
        from isthmus.verbs.attack import attack as run

        own = {} if settings is None else settings.values(SearchOptions)
        report = run(
            AttackRequest(
                str(model), (attack,), n=n, seed=seed, out=_path(out), labels=_names(labels), device=device,
                data=request, split=split, parameters=parameters, **own,
            )
        )  # fmt: skip
        outcome = report.outcomes[0]
        names = tuple(outcome.header.get("labels") or ())
        return AttackResults(outcome.file.key, outcome.results, names, report.folder)
    _refuse_out(out)
    method = catalog.build("attacks", attack, parameters) if isinstance(attack, str) else attack
    victim, sample = _victim(model, labels, device), _sample(model, data, split, n, seed)
    asked = AttackSettings(seed=seed) if settings is None else _with_seed(settings, seed)
    name = attack if isinstance(attack, str) else type(attack).__name__.lower()
    aligned = sample.align_labels(victim.labels)
    found = {result.id: result for result in method(victim, aligned.examples, asked)}
    return AttackResults(name, tuple(found[each.id] for each in aligned), tuple(victim.labels))


def evaluate(
    model: Any,
    data: Data = None,
    *,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> EvaluationResults:
    """Accuracy and calibration of a model on a set, example by example; arguments as of `attack`.

    >>> from isthmus import evaluate
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good"), ("a dull joke", "good")]
    >>> found = evaluate(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], rows,
    ...                  labels=("bad", "good"))
    >>> [result.outcome for result in found]
    ['right', 'right', 'wrong']
    """
    request = _data_request(data)
    if isinstance(model, str | Path) and (request is None or (request and not request.options)):
        from isthmus.runs.evaluated import Evaluated
        from isthmus.verbs.evaluate import EvaluateRequest, SetRequest
        from isthmus.verbs.evaluate import evaluate as run

        on = () if request is None else (request.source,)
        sets = SetRequest(on=on, split=() if split is None else (split,))
        report = run(
            EvaluateRequest(
                str(model), sets, n=n, seed=seed, out=_path(out), labels=_names(labels), device=device, latency=0
            )
        )
        outcome = report.outcomes[0]
        found = tuple(each for each in outcome.results if isinstance(each, Evaluated))
        if len(found) < len(outcome.results):
            raise UsageError("this model answers questions; its figures are in the run: isthmus report, or open_run")
        return EvaluationResults(outcome.file.key, found, tuple(outcome.header.get("labels") or ()), report.folder)
    _refuse_out(out)
    victim, sample = _victim(model, labels, device), _sample(model, data, split, n, seed)
    aligned = sample.align_labels(victim.labels)
    keys = np.array([derive(seed, "evaluate", each.id) for each in aligned], dtype=np.uint64)
    texts = [each.inputs for each in aligned]
    scores = victim.scores(texts, keys) if victim.stochastic else victim.scores(texts)
    results = tuple(_make_result(each, row) for each, row in zip(aligned, scores, strict=True))
    return EvaluationResults(sample.name, results, tuple(victim.labels))


def certify(
    model: Any,
    certificate: str | Certificate = "gaussian",
    data: Data = None,
    *,
    examples: int | None = 200,
    split: str | None = None,
    seed: int = 0,
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    **parameters: Any,
) -> CertificateResults:
    """Compute certified robustness of each example.

    Arguments as of `attack`; `examples` is how many are certified, since `n` is a parameter of most certificates.

    >>> from isthmus import certify
    >>> found = certify(lambda texts: [[0.1, 0.9] for _ in texts], "synonym", [("a fine film", 1)],
    ...                 labels=("bad", "good"), table=table, n0=5, n=20)
    >>> found[0].outcome
    'certified'
    """
    if parameters and not isinstance(certificate, str):
        raise UsageError("parameters belong to the certificate: give them where it is made, or name it instead")
    request = _data_request(data)
    if isinstance(model, str | Path) and isinstance(certificate, str) and request is not False:
        from isthmus.verbs.certify import CertifyRequest
        from isthmus.verbs.certify import certify as run

        report = run(
            CertifyRequest(
                str(model), n=examples, seed=seed, out=_path(out), labels=_names(labels), device=device, data=request,
                split=split, parameters=parameters, certificate=certificate,
            )
        )  # fmt: skip
        (outcome,) = report.outcomes
        names = tuple(outcome.header.get("labels") or ())
        return CertificateResults(outcome.file.key, outcome.results, names, report.folder, str(outcome.header["unit"]))
    _refuse_out(out)
    method = catalog.build("certificates", certificate, parameters) if isinstance(certificate, str) else certificate
    victim, sample = _victim(model, labels, device), _sample(model, data, split, examples, seed)
    aligned = sample.align_labels(victim.labels)
    found = {each.id: each for each in method(victim, aligned.examples, seed=seed)}
    name = certificate if isinstance(certificate, str) else type(certificate).__name__.lower()
    return CertificateResults(
        name, tuple(found[each.id] for each in aligned), tuple(victim.labels), None, type(method).unit
    )


def measure(
    model: Any,
    measure: str | Measure,
    data: Data = None,
    *,
    device: str | None = None,
    asked: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Measurement:
    """Compute a measure of a run, which keeps it, or of a classifier on given data.

    `asked` are the fields of `isthmus.measures.base.Asked` (``n``, ``splits``, ``seed``); `parameters` those of a
    measure given by name.

    >>> from isthmus import TrainingSettings, measure, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> model = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1))
    >>> found = measure(model, "calibration", rows)
    >>> sorted({figure.name for figure in found.figures})[0]
    'accuracy'
    """
    from isthmus.measures.base import Asked

    if isinstance(model, str | Path) and isinstance(measure, str) and data is None:
        from isthmus.verbs.measure import MeasureRequest
        from isthmus.verbs.measure import measure as run

        request = MeasureRequest((str(model),), (measure,), parameters, Asked(**(asked or {})), device=device)
        return run(request)[0].measurement
    method: Measure = catalog.build("measures", measure, parameters) if isinstance(measure, str) else measure
    if isinstance(model, str | Path):
        from isthmus.models import load_model

        model = load_model(model, device=device)
    return method(model, _splits(data), **(asked or {}))


def explain(
    model: Any,
    texts: Any,
    *,
    method: str | Explainer = "integrated_gradients",
    classes: Any = "predicted",
    seed: int = 0,
    **parameters: Any,
) -> Explanation | list[Explanation]:
    """Explain which words drive a prediction; for several texts, a list of explanations.

    `model` may be a run folder or a model by name; the rest is as in `isthmus.explanations.explain`.

    >>> from isthmus import explain
    >>> found = explain(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                 "a dull plot", method="occlusion")
    >>> max(zip(found.weights[0], found.words))[1]
    'dull'
    """
    from isthmus.explanations.base import explain as of_victim

    subject = _victim(model, None, None) if isinstance(model, str | Path) else model
    return of_victim(subject, texts, method=method, classes=classes, seed=seed, **parameters)


@dataclass(frozen=True)
class Run:
    """A run folder: the trained model and all results about it. It is read, never changed.

    >>> from isthmus import TrainingSettings, open_run, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/opened")
    >>> open_run("runs/opened").defence
    'standard'
    """

    folder: RunFolder

    @cached_property
    def record(self) -> RunRecord:
        """The content of run.json: model, data, defence, settings, seed, versions, machine."""
        return self.folder.record()

    @property
    def defence(self) -> str | None:
        """Name of the defence it was trained with; None if nothing was trained."""
        return None if self.record.defence is None else self.record.defence.name

    def load_model(self, device: str | None = None) -> Classifier:
        """The trained classifier."""
        from isthmus.models import load_model

        return load_model(self.folder.model_path, device=device)

    def load_data(self) -> Splits:
        """The data it was made with."""
        from isthmus.verbs.sources import DataRequest

        return DataRequest.from_record(self.record.data).load()

    @property
    def attacks(self) -> dict[str, AttackResults]:
        """The results of every attack, by name."""
        from isthmus.attacks.result import AttackResult

        return {
            file.key: AttackResults(
                file.key,
                tuple(AttackResult.from_row(row) for row in file.rows()),
                tuple(file.header().get("labels") or ()),
                self.folder,
            )
            for file in self.folder.attack_files()
        }

    @property
    def evaluations(self) -> dict[str, EvaluationResults]:
        """The results on every evaluated set, by name; sets of questions are left out."""
        from isthmus.runs.evaluated import Evaluated

        return {
            file.key: EvaluationResults(
                file.key,
                tuple(Evaluated.from_row(row) for row in file.rows()),
                tuple(file.header().get("labels") or ()),
                self.folder,
            )
            for file in self.folder.evaluation_files()
            if file.header().get("labels")
        }

    def to_html(self) -> str:
        """The report as a page."""
        from isthmus.report.page import render
        from isthmus.report.view import read_run

        return render(read_run(self.folder))

    def __repr__(self) -> str:
        return f"<Run {self.folder.path}: {self.record.model.spec}, {self.defence or 'not trained here'}>"


def open_run(folder: str | Path) -> Run:
    """Open a run folder; contents are loaded only when they are used.

    >>> from isthmus import TrainingSettings, attack, open_run, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/attacked")
    >>> _ = attack("runs/attacked", "deepwordbug", n=2)
    >>> list(open_run("runs/attacked").attacks)
    ['deepwordbug']
    """
    from isthmus.runs.folder import RunFolder

    found = Run(RunFolder(folder))
    _ = found.record  # says what is wrong with a folder that is none
    return found


# ------------------------------------------------------------------ what the functions share


def _is_plain(settings: AttackSettings | None) -> bool:
    """Whether a request can say all of it."""
    from isthmus.attacks.base import AttackSettings
    from isthmus.attacks.options import SearchOptions

    if settings is None:
        return True
    usual = AttackSettings()
    known = {"seed", *(one.name for one in fields(SearchOptions))}
    return all(
        getattr(settings, one.name) == getattr(usual, one.name) for one in fields(usual) if one.name not in known
    )


def _with_seed(settings: AttackSettings, seed: int) -> AttackSettings:
    import dataclasses

    return dataclasses.replace(settings, seed=seed)


def _make_result(example: Example, scores: Floats) -> Evaluated:
    from isthmus.runs.evaluated import Evaluated

    assert isinstance(example.label, int)
    if not np.isfinite(scores).all():
        return Evaluated(example.id, "error", example.label, example.texts, reason="the model answered NaN")
    prediction, rounded = int(scores.argmax()), tuple(float(f"{value:.7g}") for value in scores)
    outcome = "right" if prediction == example.label else "wrong"
    return Evaluated(example.id, outcome, example.label, example.texts, {"model": rounded}, prediction=prediction)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _names(labels: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if labels is None else tuple(labels)


def _refuse_out(out: str | Path | None) -> None:
    if out is not None:
        raise UsageError(
            f"out={str(out)!r} needs a model and data that have names, so that the run can say what they were: "
            "name the model (a folder it was saved to) and the data (a file), or remove `out`"
        )


def _data_request(data: Data) -> DataRequest | Any | None:
    """The data as a request names them; None for the run's own, False for data at hand."""
    from isthmus.data import Splits
    from isthmus.verbs.sources import DataRequest

    if data is None:
        return None
    if isinstance(data, str | Path):
        return DataRequest(str(data))
    if isinstance(data, Splits) and data.origin is not None:
        return DataRequest(**data.origin)
    return False


def _splits(data: Data) -> Splits:
    from isthmus.data import Splits, load_data

    return data if isinstance(data, Splits) else load_data(data)


def _limit_splits(splits: Splits, limit: int | None, seed: int) -> Splits:
    from isthmus.data import Splits

    if limit is None:
        return splits
    cut = splits.for_training(seed)
    return Splits(cut.name, {**cut, "train": cut.train.sample(limit, seed)}) if limit < len(cut.train) else splits


def _sample(model: Any, data: Data, split: str | None, n: int | None, seed: int) -> Dataset:
    from isthmus.verbs.sources import choose_split

    if data is None:
        if not isinstance(model, str | Path):
            raise UsageError("a model at hand has no data of its own: pass `data`")
        data = open_run(model).load_data()
    found = choose_split(_splits(data), split)
    if found.rejected:
        warnings.warn(
            f"{len(found.rejected)} rows of {found.name} cannot be used and are left out; the first: "
            f"{found.rejected[0].reason}",
            IsthmusWarning,
            stacklevel=3,
        )
    # A sample of everything would only be another order of it.
    return found[:] if n is None or n >= len(found) else found[:].sample(n, seed)


def _victim(model: Any, labels: Sequence[str] | None, device: str | None) -> Victim:
    from isthmus.models.victims import load_victim

    return load_victim(model, labels=labels, device=device)


def _train_run(
    data: Data,
    backbone: str | Path | Classifier,
    defence: str | Defence | Sequence[Defence] | None,
    chosen: Defence | None,
    folder: Path,
    settings: TrainingSettings | None,
    seed: int,
    limit: int | None,
    progress: Progress | None,
    device: str | None,
    parameters: Mapping[str, Any],
) -> Classifier:
    """Train into a run folder, as the command line does."""
    from isthmus.models import load_model
    from isthmus.verbs.train import TrainRequest
    from isthmus.verbs.train import train as run

    name = backbone if isinstance(backbone, str | Path) else _save_backbone(backbone, folder)
    request = _data_request(data)
    if request is None:
        raise UsageError("no data to train on: pass `data`")
    report = run(
        TrainRequest(
            _write_data(_splits(data), folder) if request is False else request,
            str(name),
            defence if isinstance(defence, str) else "standard",
            parameters,
            settings,
            limit,
            seed,
            folder,
            device,
        ),
        progress,
        defence=chosen,
    )
    return load_model(report.folder.model_path, device=device)


def _save_backbone(backbone: Classifier, folder: Path) -> Path:
    """A classifier at hand, saved where the run can name it."""
    place = folder / "backbone"
    if not place.is_dir():
        backbone.save(place)
    return place


def _write_data(splits: Splits, folder: Path) -> DataRequest:
    """Data at hand, written into the run folder, so that the run can name them."""
    from isthmus.core.files import make_folder, write_atomic
    from isthmus.core.types import Classification, ImageClassification
    from isthmus.verbs.sources import DataRequest

    task = splits.task
    if not isinstance(task, Classification) or isinstance(task, ImageClassification):
        raise UsageError(
            "of data at hand only classified texts can be kept in a run: name images and questions by file"
        )
    place = folder / "data"
    files = {
        f"{'texts' if splits.is_one_file else split}.jsonl": "".join(
            json.dumps({**each.texts, "label": part.labels[_index(each.label)]}, ensure_ascii=False) + "\n"
            for each in part
        )
        for split, part in splits.items()
    }
    files["meta.json"] = json.dumps({"labels": list(splits.task.labels)}, ensure_ascii=False) + "\n"
    there = {file.name: file.read_text(encoding="utf-8") for file in place.glob("*.json*")}
    if there and there != files:
        raise RunError(f"{folder} holds a run with other data: choose another folder")
    make_folder(place)
    for name, text in files.items() if not there else ():
        write_atomic(place / name, text.encode())
    whole = str(place / "texts.jsonl") if splits.is_one_file else str(place)
    return DataRequest(
        whole, label="label", pair=_pair(task.fields), text=task.fields[0] if len(task.fields) == 1 else None
    )


def _index(label: Any) -> int:
    assert isinstance(label, int)
    return label


def _pair(names: Sequence[str]) -> tuple[str, str] | None:
    return (names[0], names[1]) if len(names) == 2 else None
