"""One unit of the plan on images: train, answer, attack, measure; every finished cell goes to the ledger at once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.files import make_folder, write_atomic, write_json
from isthmus.core.types import ImageClassification
from isthmus.data import Dataset, load_data
from isthmus.data.images import pixels
from isthmus.models import load_model
from isthmus.runs.folder import RunFolder
from isthmus.training.numerics import preserve_randomness
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train
from ledger import Cell, Key, Ledger, data_key, method_key, provenance, training_key
from proof import image_attacks as attacks
from proof.image_attacks import AVERAGED, Given, MarginPGD, OnTop, Outcome, attacked, described, seen_by, united
from proof.image_pack import unpacked
from proof.image_plan import LOGGED, RADII, ImageUnit
from proof.units import _alone


@dataclass(frozen=True)
class ImagePlace:
    """Where data, runs and results are, and what is changed for a quick look."""

    data: Path
    runs: Path
    results: Path
    limit: int | None = None
    epochs: int | None = None
    n: int | None = None
    device: str = "cpu"

    def fitted(self, unit: ImageUnit) -> ImageUnit:
        """The unit as it is run here."""
        own: dict[str, Any] = {} if self.epochs is None else {"epochs": self.epochs}
        return dataclasses.replace(
            unit,
            settings=dataclasses.replace(unit.settings, **own),
            n=min(unit.n, self.n or unit.n),
            encoder=None if unit.encoder is None else self.fitted(unit.encoder),
            source=None if unit.source is None else self.fitted(unit.source),
            others=tuple(self.fitted(other) for other in unit.others),
        )

    def folder(self, name: str) -> Path:
        """A data set as ``.npz`` files; packed ones, and all of MNIST to train on, are made once."""
        whole = make_folder(self.runs) / "data" / name
        if name == "mnist-whole":
            make_folder(whole.parent)
            with _alone(whole):
                source = self.folder("mnist")
                make_folder(whole)
                # Its development data are the test images: nothing is chosen by them, weights are taken by the epoch.
                for split, part in (("train", "train"), ("test", "test"), ("dev", "test")):
                    if not (whole / f"{split}.npz").is_file():
                        write_atomic(whole / f"{split}.npz", (source / f"{part}.npz").read_bytes())
                if not (whole / "meta.json").is_file():
                    write_atomic(whole / "meta.json", (source / "meta.json").read_bytes())
            return whole
        make_folder(whole.parent)
        with _alone(whole):
            return unpacked(self.data / name, whole)


@dataclass(frozen=True)
class Wanted:
    """A cell that a unit is to fill."""

    key: Key
    row: str
    """`row/column`."""

    @property
    def column(self) -> str:
        """What the table's column is called."""
        return self.row.rpartition("/")[2]


@functools.cache
def loaded(folder: Path, split: str) -> Dataset:
    """A split, read once in a process."""
    return load_data(folder, split)


@functools.cache
def sampled(folder: Path, n: int | None, device: str) -> tuple[Tensor, Tensor]:
    """Test images and labels on the device; all of them in their order, or the first of the stratified order."""
    data = loaded(folder, "test")
    data = data if n is None else data.sample(n)
    labels = torch.from_numpy(data.label_indices().astype(np.int64))
    return torch.from_numpy(pixels(data)).to(device), labels.to(device)


def ways_of(unit: ImageUnit) -> tuple[str, ...]:
    """How a model is asked: a stochastic one by its mean code and by draws."""
    return ("mean", "draws") if unit.is_stochastic else ("mean",)


def asked(unit: ImageUnit, place: ImagePlace) -> list[Wanted]:
    """The cells of a unit."""
    if unit.stage == "figures":
        return []
    base = _key(unit, place)
    if unit.stage == "reference":
        epochs = [epoch for epoch in LOGGED if epoch < unit.settings.epochs] + [unit.settings.epochs]
        return [
            Wanted(
                dataclasses.replace(base, way={"weights": weights, "epoch": epoch, "draws": AVERAGED}),
                f"{weights}/epoch-{epoch}",
            )
            for epoch in epochs
            for weights in ("raw", "averaged")
        ]
    found: list[Wanted] = []
    for way in ways_of(unit):
        draws = way == "draws"
        row = f"{unit.method.name}{'-draws' if draws else ''}"
        own = {} if not unit.is_stochastic else {"latent": "sample", "draws": AVERAGED} if draws else {"latent": "mean"}
        if unit.stage in ("table1", "vub"):
            found.append(Wanted(dataclasses.replace(base, way=own), f"{row}/benign"))
        for column, described_ in _columns(unit, way):
            key = dataclasses.replace(base, way=own, n=min(unit.n, base.n), attack=described_)
            found.append(Wanted(key, f"{_table2_row(unit) if unit.stage == 'table2' else row}/{column}"))
    return found


def _table2_row(unit: ImageUnit) -> str:
    """Rows of Table 2 have names of their own: they are attacked to the last step."""
    beta = unit.method.parameters.get("beta") or str(unit.method.parameters["base_parameters"]).partition("=")[2]
    return f"beta{float(beta):g}-{unit.method.name.partition('-')[0]}"


def _columns(unit: ImageUnit, way: str) -> Iterator[tuple[str, dict[str, Any]]]:
    draws = way == "draws"
    if unit.stage == "table1":
        for name, attack in attacks.table1().items():
            if not draws or name in attacks.ON_DRAWS:
                yield name, described(name.partition("-")[0], attack)
    elif unit.stage == "table2" and not draws:
        for name, attack in attacks.table2().items():
            yield name, described(name.partition("-")[0], attack, code=True)
    elif unit.stage == "vub":
        for name, attack in attacks.vub().items():
            if not draws or name != "cw-targeted":
                goal = {"goal": "label + 1"} if name == "cw-targeted" else {}
                yield name, described(name.partition("-")[0], attack, **goal)
    elif unit.stage == "masking":
        for epsilon in RADII[unit.data]:
            white = attacks.masking(epsilon, draws)
            for name, attack in white.items():
                yield name, described(name.partition("-")[0], attack)
            carried = MarginPGD(epsilon=epsilon)
            if draws:
                yield f"from-mean-{epsilon:g}", described("from_mean", carried)
            if unit.source is not None:
                yield f"transfer-{epsilon:g}", described("transfer", carried, source=unit.source.method.name)
            yield f"union-{epsilon:g}", {"name": "union", "epsilon": epsilon, "of": sorted(white)}


def _task(unit: ImageUnit) -> ImageClassification:
    """Pixels, or the vectors of a frozen encoder: defaults of a defence differ between the two."""
    return ImageClassification((), shape=(1, 1, 1) if unit.encoder is None else (1,))


def _key(unit: ImageUnit, place: ImagePlace) -> Key:
    folder = place.folder(unit.data)
    test, trained_on = loaded(folder, "test"), loaded(folder, "train")
    training = training_key(unit.settings, place.limit)
    if unit.encoder is not None:
        other = unit.encoder
        training["encoder"] = {"backbone": other.backbone, "seed": other.seed, **training_key(other.settings)}
    return Key(
        data=data_key(test, trained_on=trained_on),
        backbone=unit.backbone,
        method=method_key(unit.method.defence, unit.method.parameters, _task(unit)),
        training=training,
        seed=unit.seed,
        n=len(test),
    )


class Book:
    """The ledger as one unit sees it."""

    def __init__(self, unit: ImageUnit, place: ImagePlace) -> None:
        self.ledger = Ledger(place.results / f"{unit.page}.jsonl")
        self.place, self.cells = place, self.ledger.cells()
        self.told: list[str] = []

    def __contains__(self, wanted: Wanted) -> bool:
        return wanted.key.id in self.cells

    def put(self, wanted: Wanted, marks: str, summary: Mapping[str, Any], began: float, weights: str = "") -> None:
        """Write a cell; it is on the disk when this returns. `weights` says which training it is about."""
        own: dict[str, Any] = {"weights": weights} if weights else {}
        made = provenance(self.place.device, seconds=time.monotonic() - began) | own
        cell = Cell(wanted.key, marks, summary, wanted.row, made)
        seconds = time.monotonic() - began
        self.ledger.append(cell)
        self.cells[wanted.key.id] = cell
        self.told.append(f"{wanted.row} {100 * cell.right.mean():.1f} ({seconds:.0f} s)")


def is_done(unit: ImageUnit, place: ImagePlace, there: Mapping[str, Cell]) -> bool:
    """Whether nothing of a unit is left to run."""
    if unit.stage == "figures":
        return _figure_record(unit, place).is_file()
    return all(each.key.id in there for each in asked(unit, place))


def do(unit: ImageUnit, place: ImagePlace, may_begin: Callable[[], bool] = lambda: True) -> str:
    """Fill the cells of a unit that the ledger does not have; what came out, in a line."""
    if unit.stage == "figures":
        return _draw(unit, place)
    book = Book(unit, place)
    if all(each in book for each in asked(unit, place)):
        return "in the ledger"
    began = time.monotonic()
    if unit.stage == "reference":
        _reference(unit, place, book)
        return ", ".join(book.told)
    model = _model(unit, place)
    weights = digest_of(model)
    book.told.append(f"trained in {time.monotonic() - began:.0f} s")
    by_way = {way: [each for each in asked(unit, place) if _way(each) == way] for way in ways_of(unit)}
    for way, cells in by_way.items():
        seen_by(model, way)
        for each in cells:
            if each in book:
                continue
            if not may_begin():
                return ", ".join([*book.told, "cut at the deadline"])
            began = time.monotonic()
            marks, summary = _fill(unit, place, book, model, each, cells, weights)
            book.put(each, marks, summary, began, weights)
    return ", ".join(book.told)


def _way(wanted: Wanted) -> str:
    return "draws" if wanted.key.way.get("latent") == "sample" else "mean"


def digest_of(model: torch.nn.Module) -> str:
    """What tells the weights of one training from those of another, which the key of a cell does not: a second
    machine may train the same seed to other bits."""
    digest = hashlib.sha256()
    for name, values in sorted(model.state_dict().items()):
        digest.update(name.encode() + values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def _fill(
    unit: ImageUnit, place: ImagePlace, book: Book, model: Any, wanted: Wanted, cells: list[Wanted], weights: str
) -> tuple[str, dict[str, Any]]:
    """The outcomes of one cell."""
    folder, column = place.folder(unit.data), wanted.column
    if wanted.key.attack is None:
        images, labels = sampled(folder, None, place.device)
        right = (attacks.probabilities(model, images, AVERAGED).argmax(dim=1) == labels).tolist()
        return "".join("." if each else "w" for each in right), {"accuracy": sum(right) / len(right)}
    images, labels = sampled(folder, wanted.key.n, place.device)
    name, _, radius = column.rpartition("-")
    if unit.stage == "table1":
        return _plain(attacked(attacks.table1()[column], model, images, labels))
    if unit.stage == "vub":
        targets = (labels + 1) % 10 if column == "cw-targeted" else None
        return _plain(attacked(attacks.vub()[column], model, images, labels, targets=targets))
    if unit.stage == "table2":
        return _coded(attacks.table2()[column], model, images, labels)
    if name != "union" and name not in _CARRIED:
        return _plain(_looked_at(unit, place, model, wanted, images, labels))
    # Union and flags are about one training: what another one left in the ledger is attacked again.
    beside = {
        each.column: (
            book.cells[each.key.id].outcomes
            if book.cells[each.key.id].provenance.get("weights") == weights
            else _looked_at(unit, place, model, each, images, labels).marks
        )
        for each in cells
        if each in book and each.column != column and each.column.rpartition("-")[2] == radius
    }
    if name == "union":
        found = united(list(beside.values()))
        return found, {"racc": round(found.count(".") / len(found), 5), "attacks": len(beside)}
    outcome = _looked_at(unit, place, model, wanted, images, labels)
    return outcome.marks, {**outcome.summary, **_flags(outcome, beside, radius)}


_CARRIED = ("transfer", "from-mean")


def _looked_at(
    unit: ImageUnit, place: ImagePlace, model: Any, wanted: Wanted, images: Tensor, labels: Tensor
) -> Outcome:
    """One attack of those that look for masked gradients."""
    name, _, radius = wanted.column.rpartition("-")
    if name in _CARRIED:
        points = _carried(unit, place, model, name, float(radius), images, labels)
        return attacked(Given(points=points), model, images, labels)
    white = attacks.masking(float(radius), _way(wanted) == "draws")
    return attacked(white[wanted.column], model, images, labels)


def _plain(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    return outcome.marks, dict(outcome.summary)


def _carried(
    unit: ImageUnit, place: ImagePlace, model: Any, name: str, epsilon: float, images: Tensor, labels: Tensor
) -> Tensor:
    """Adversarial images of the CE model of the same seed, or of the model's own mean code; all images are moved."""
    attack = MarginPGD(epsilon=epsilon)
    if name == "transfer":
        assert unit.source is not None
        source = _model(unit.source, place)
        return attack.run(source, images, labels, skip_wrong=False, rows=1 << 20).adversarial
    seen_by(model, "mean")
    try:
        return attack.run(model, images, labels, skip_wrong=False, rows=1 << 20).adversarial
    finally:
        seen_by(model, "draws")


def _flags(outcome: Outcome, beside: Mapping[str, str], radius: str) -> dict[str, Any]:
    """Whether images from elsewhere fool more than PGD on the model itself, and how many of them nothing else fools."""
    white = [marks for name, marks in beside.items() if name in {f"{each}-{radius}" for each in _WHITE}]
    pgd = beside.get(f"pgd-{radius}")
    held = united(white) if white else outcome.marks
    alone = sum(own == "x" and other == "." for own, other in zip(outcome.marks, held, strict=True))
    beats = pgd is not None and outcome.marks.count(".") < pgd.count(".")
    return {"beats_pgd": int(beats), "alone": alone}


_WHITE = ("fgsm", "pgd", "margin", "auto")


def _coded(attack: Any, model: Any, images: Tensor, labels: Tensor) -> tuple[str, dict[str, Any]]:
    """Every image is moved, and the code of what comes out is measured: its rate is the paper's I(X';T')."""
    moved = attack.run(model, images, labels, skip_wrong=False, rows=1 << 20).adversarial
    with torch.no_grad():
        before, after = model(images), model(moved)
    right, held = before.logits.argmax(dim=1) == labels, after.logits.argmax(dim=1) == labels
    marks = "".join("w" if not a else "." if b else "x" for a, b in zip(right.tolist(), held.tolist(), strict=True))
    rate, clean = (float(each.latent.rate().double().mean()) for each in (after, before))
    racc = round(marks.count(".") / len(marks), 5)
    return marks, {
        "racc": racc, "rate_nats": round(rate, 4), "rate_bits": round(rate / math.log(2), 4),
        "clean_rate_nats": round(clean, 4),
    }  # fmt: skip


def trained(unit: ImageUnit, place: ImagePlace, progress: Any = None) -> RunFolder:
    """The run of a unit, trained now unless that was done; several processes may ask for one."""
    folder = make_folder(place.runs) / unit.folder
    data = _features(unit.encoder, place) if unit.encoder is not None else place.folder(unit.data)
    with _alone(folder):
        report = train(
            TrainRequest(
                DataRequest(str(data)),
                backbone=unit.backbone,
                defence=unit.method.defence,
                parameters={name: str(value) for name, value in unit.method.parameters.items()},
                settings=unit.settings,
                limit=place.limit,
                seed=unit.seed,
                out=folder,
                device=place.device,
            ),
            progress,
        )
    return report.folder


def _model(unit: ImageUnit, place: ImagePlace) -> Any:
    """The trained model; a head together with the network that is frozen under it."""
    model = load_model(trained(unit, place).model_path, device=place.device).eval()
    if unit.encoder is None:
        return model
    return OnTop(_model(unit.encoder, place), model).eval()


def _features(encoder: ImageUnit, place: ImagePlace) -> Path:
    """The vectors that a trained network makes of train and test, computed once."""
    folder = place.runs / f"{encoder.folder}-features"
    network = _model(encoder, place)
    source = place.folder(encoder.data)
    with _alone(folder):
        make_folder(folder)
        for split in ("train", "test"):
            if (folder / f"{split}.npz").is_file():
                continue
            data = loaded(source, split)
            parts = torch.split(torch.from_numpy(pixels(data)), 1000)
            with torch.no_grad():
                found = [network.backbone(part.to(place.device)).cpu() for part in parts]
            stream = io.BytesIO()
            np.savez(stream, features=torch.cat(found).numpy(), labels=data.label_indices().astype(np.int64))
            write_atomic(folder / f"{split}.npz", stream.getvalue())
        write_atomic(folder / "meta.json", (source / "meta.json").read_bytes())
    return folder


def _reference(unit: ImageUnit, place: ImagePlace, book: Book) -> None:
    """Train for all epochs; the weights of some of them are measured on the way."""
    wanted = {(str(each.key.way["weights"]), int(each.key.way["epoch"])): each for each in asked(unit, place)}
    folder = place.runs / unit.folder
    epochs = {epoch for _, epoch in wanted}

    def measure() -> None:
        for (weights, epoch), each in wanted.items():
            path = folder / "snapshots" / ("averaged" if weights == "averaged" else "") / f"{epoch}.safetensors"
            if each not in book and path.is_file():
                began = time.monotonic()
                marks, summary = _measured(unit, place, path)
                book.put(each, marks, summary, began)

    class Watch:
        """Measures after the epochs that are asked for; the weights of others go, since each takes 10 MB."""

        def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
            per_epoch = total // unit.settings.epochs
            if step % per_epoch:
                return
            if step // per_epoch in epochs:
                with preserve_randomness():
                    measure()
            for path in (folder / "snapshots").rglob("*.safetensors"):
                if int(path.stem) not in epochs:
                    path.unlink()

    trained(unit, place, Watch())
    measure()


def _measured(unit: ImageUnit, place: ImagePlace, weights: Path) -> tuple[str, dict[str, Any]]:
    """Rate, label information and accuracy of one set of weights on the whole test split."""
    from isthmus.core import catalog
    from isthmus.models import ImageClassifier
    from isthmus.training.snapshots import load_snapshot

    folder = place.folder(unit.data)
    images, labels = sampled(folder, None, place.device)
    test = loaded(folder, "test")
    model: Any = ImageClassifier.create(unit.backbone, test.task, seed=unit.seed).to(place.device)  # type: ignore[arg-type]
    parameters = {name: str(value) for name, value in unit.method.parameters.items()}
    defence = catalog.build("defences", unit.method.defence, parameters).adapt_to(test.task)
    defence.prepare(model, test)
    model.eval()
    load_snapshot(model, weights)
    seen_by(model, "mean")
    with torch.no_grad():
        rates = torch.cat([model(part).latent.rate().double() for part in torch.split(images, 2000)])
    seen_by(model, "draws")
    averaged = attacks.probabilities(model, images, AVERAGED)
    single = attacks.probabilities(model, images, 1)
    shares = torch.bincount(labels).double() / len(labels)
    entropy = float(-(shares[shares > 0] * shares[shares > 0].log()).sum())
    told = entropy + float(single.gather(1, labels.view(-1, 1)).clamp_min(1e-300).log().mean())
    right = (averaged.argmax(dim=1) == labels).tolist()
    return "".join("." if each else "w" for each in right), {
        "rate_nats": round(float(rates.mean()), 4),
        "rate_bits": round(float(rates.mean()) / math.log(2), 4),
        "label_bits": round(told / math.log(2), 4),
        "accuracy": sum(right) / len(right),
        "accuracy_single": float((single.argmax(dim=1) == labels).double().mean()),
    }


def _figure_record(unit: ImageUnit, place: ImagePlace) -> Path:
    return place.results / "figures" / f"{unit.data}-{unit.method.name}.json"


def _draw(unit: ImageUnit, place: ImagePlace) -> str:
    """Train what a figure needs, take its measures, and keep figures and plots in `results/figures`."""
    from isthmus.measures.base import Asked
    from isthmus.report.measure.figure import save
    from isthmus.verbs.measure import MeasureRequest, measure

    record = _figure_record(unit, place)
    if record.is_file():
        return "there"
    began = time.monotonic()
    runs = tuple(str(trained(other, place).path) for other in unit.others)
    attack = {"attack": "fgsm", "epsilon": "0.3" if unit.data == "mnist" else "0.1"}
    n = min(unit.n, len(loaded(place.folder(unit.data), "test")))
    if unit.method.name == "figure-4":
        todo = [("feature_entropy", {"over": "ratio", **attack}, Asked(n=n))]
    elif unit.method.name == "figure-2":
        todo = [("vulnerability", attack, Asked(n=n, every_epoch=True))]
    else:
        todo = [(name, {"over": "beta", **attack}, Asked(n=n)) for name in ("vulnerability", "transferability")]
    make_folder(record.parent)
    found: dict[str, Any] = {}
    for name, parameters, wants in todo:
        (taken,) = measure(MeasureRequest(runs, (name,), parameters, wants, device=place.device))
        found[name] = taken.measurement.to_json()
        for plot in taken.measurement.plots:
            save(plot, record.parent / f"{record.stem}-{name}-{plot.name}")
    made = provenance(place.device, seconds=time.monotonic() - began)
    write_json(record, {"runs": [Path(run).name for run in runs], "provenance": made, **found})
    return f"{len(runs)} runs, {', '.join(found)}"


def size_of(folder: Path) -> int:
    """Bytes of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
