"""Finds the data and the model that a command names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import ModelError, RunError, UsageError
from isthmus.core.files import read_json
from isthmus.core.redaction import bare_url
from isthmus.runs.folder import DataRecord, RunFolder, short_name

if TYPE_CHECKING:
    from isthmus.data import Dataset, Splits
    from isthmus.data.load import TaskName


@dataclass(frozen=True)
class DataRequest:
    """The data that a user names."""

    source: str
    text: str | None = None
    label: str | None = None
    pair: tuple[str, str] | None = None
    labels: tuple[str, ...] | None = None
    """Label names in the order the data numbers them."""
    task: TaskName = "classification"
    from_run: bool = field(default=False, compare=False)
    """Whether a run folder named it, and not the user."""

    @classmethod
    def from_record(cls, record: DataRecord) -> DataRequest:
        """The data of a run."""
        known = {entry.name for entry in fields(cls)} - {"source", "from_run"}
        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in record.options.items()
            if key in known
        }
        return cls(record.source, **options, from_run=True)

    @property
    def options(self) -> dict[str, Any]:
        """The options needed besides the source to load the same data again."""
        every = {"text": self.text, "label": self.label, "pair": self.pair, "labels": self.labels}
        found: dict[str, Any] = {key: value for key, value in every.items() if value is not None}
        return found if self.task == "classification" else {**found, "task": self.task}

    def load(self) -> Splits:
        """Load every split; code that a folder names is not run."""
        from isthmus.data import load_data
        from isthmus.data.extension_data import is_code

        if self.from_run and is_code(self.source):
            raise UsageError(
                f"the run was made with data of {self.source}, and a folder does not decide which code is run: if you "
                f"trust it, name it yourself: --data {self.source}"
            )

        return load_data(
            self.source, text=self.text, label=self.label, pair=self.pair, labels=self.labels, task=self.task
        )

    def record(self, parts: Mapping[str, Dataset]) -> DataRecord:
        """The record in run.json of the splits that were used."""
        first = next(iter(parts.values()))
        return DataRecord(
            source=self.source,
            name=first.name,
            labels=first.labels,
            fields=first.fields,
            options=self.options,
            fingerprints={split: data.fingerprint for split, data in parts.items()},
            sizes={split: len(data) for split, data in parts.items()},
        )


def choose_split(splits: Splits, split: str | None) -> Dataset:
    """The split to attack: the requested one, else test, else dev, else the only one."""
    data = splits.find_split(split) if split is not None else splits.evaluation()
    if not len(data) and not data.rejected:
        raise UsageError(f"the {data.split} split of {data.name} is empty")
    return data


def _refuse_other_folder(folder: Path) -> None:
    """Refuse a folder without a model before all its files are read for a fingerprint."""
    places = [place / name for place in (folder, folder / "model") for name in ("config.json", "isthmus.json")]
    if folder.is_dir() and not any(file.is_file() for file in places):
        raise ModelError(f"the folder {str(folder)!r} holds no model: no isthmus.json and no config.json in it")


@dataclass(frozen=True)
class ModelSource:
    """The model that a user names: a run folder, or anything that `load_victim` takes."""

    given: str
    run: RunFolder | None
    """The run folder it lies in, if it does."""

    @classmethod
    def of(cls, given: str) -> ModelSource:
        """Find out what `given` is; nothing is loaded."""
        folder = RunFolder(given)
        if not folder.exists:
            if Path(given).is_dir() and (Path(given) / "checkpoints").is_dir():
                raise RunError(f"{given} holds an unfinished training and no run.json: run `isthmus train` first")
            _refuse_other_folder(Path(given))
            return cls(given, None)
        record = folder.record()
        if not folder.model_path.is_dir():
            if record.training is None:
                raise RunError(
                    f"{given} holds results of {record.model.spec} and no model of its own: name that model instead, "
                    f"with --out {given}"
                )
            raise RunError(
                f"{given} is a run without a finished model: run the same `isthmus train` command to finish it"
            )
        return cls(given, folder)

    @property
    def spec(self) -> str:
        """The argument for `load_victim`."""
        return str(self.run.model_path) if self.run is not None else self.given

    @property
    def shown(self) -> str:
        """Its name in results."""
        return self.run.name if self.run is not None else bare_url(self.given)

    @property
    def name(self) -> str:
        """Its name in the name of a folder."""
        return short_name(self.shown)

    @property
    def may_draw(self) -> bool:
        """Whether it may be stochastic, as far as can be told without loading it."""
        if self.spec.startswith(("http://", "https://")) or self.spec.endswith(".onnx"):
            return False
        folder = Path(self.spec)
        described = [place / "isthmus.json" for place in (folder, folder / "model")]
        if not folder.is_dir() or not any(file.is_file() for file in described):
            return not folder.is_dir()  # Anything may be behind a name; transformers has no such models.
        found = read_json(next(file for file in described if file.is_file()))
        return bool(found.get("slots") or found.get("deployment"))
