"""Prepares model and data of a command: names are checked at once, expensive parts are made on first use.

A command that only asks for rows that exist already loads no model that is known by its files; any other is asked for
its probes (`isthmus.runs.probes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from isthmus.core.errors import RunError, UsageError, VictimTimeout
from isthmus.core.files import make_folder
from isthmus.core.types import ImageClassification
from isthmus.runs.folder import ModelRecord, RunFolder, RunRecord, default_path
from isthmus.runs.probes import Probed, Stranger, keep, source_hash
from isthmus.runs.provenance import fingerprint
from isthmus.runs.settings import to_plain
from isthmus.verbs.label_check import check_labels
from isthmus.verbs.model_loading import (
    VERSION,
    check_inputs,
    choose_label_names,
    deciding,
    names_in_data,
    numbering,
    open_victim,
    suit_fields,
)
from isthmus.verbs.observer import Observer
from isthmus.verbs.request import ModelRequest, SampleRequest
from isthmus.verbs.sources import DataRequest, ModelSource, choose_split

if TYPE_CHECKING:
    from isthmus.attacks.parts.protection import Protection
    from isthmus.core.types import Victim
    from isthmus.data import Dataset, Splits

Asked = TypeVar("Asked", bound=ModelRequest)
AskedOfSample = TypeVar("AskedOfSample", bound=SampleRequest)


class PreparedModel(Generic[Asked]):
    """The model of a command."""

    verb: str
    """What the command is called."""

    def __init__(self, request: Asked, observer: Observer) -> None:
        self.request, self.observer = request, observer
        self.probe_queries = 0
        """Queries made to check that the model is unchanged."""
        self._counted = 0
        self._probed: Probed | None = None
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the run folder."""
        self._held.close()

    def hold(self, folder: RunFolder) -> None:
        """Lock the folder against training until the command ends."""
        self._held.enter_context(folder.hold(self.verb))

    @cached_property
    def source(self) -> ModelSource:
        """The model as the command names it."""
        return ModelSource.of(self.request.model)

    @cached_property
    def fingerprint(self) -> str | None:
        """Fingerprint of the model's files, if it is local."""
        found = fingerprint(Path(self.source.spec))
        if found is not None and VERSION in self.request.victim:
            raise UsageError(
                f"-V version: {self.source.shown} is identified by the content of its files. A version is for "
                "functions, pipelines and services"
            )
        return found

    @property
    def identity(self) -> str:
        """The model's identity in the settings of its results; no other model has the same."""
        if self.fingerprint is not None:
            return self.fingerprint
        return self.source.shown if self._probed is None else self._probed.fingerprint

    def recognise(self, folder: RunFolder, victim: Victim, data: Dataset) -> None:
        """Ask a model without files of its own for its probes, and refuse it if it is not the folder's."""
        request = self.request
        asked = {
            "fields": list(data.fields),
            "labels": list(victim.labels),
            "victim": to_plain(deciding(request.victim)),
            "precision": request.precision,
        }
        version = request.victim.get(VERSION)
        if version == "":
            raise UsageError("-V version= needs a version, such as -V version=1")
        stranger = Stranger(
            self.source.shown,
            victim,
            asked,
            lambda: source_hash(self.source.given),
            None if version is None else str(version),
            request.victim.get("stochastic") is True,
        )
        found = stranger.recognise(folder.probes_path, data)
        self.probe_queries += found.queries
        self._probed = found.entry
        if found.entry.is_labels_only and version is None:
            self.observer.note(
                f"{self.source.shown} returns labels only, and eight labels hide most changes of a model. "
                "Use -V version=… to mark versions"
            )

    def probe_effort(self) -> dict[str, float]:
        """The cost of recognising the model, counted with the first result of the command."""
        counted, self._counted = self.probe_queries - self._counted, self.probe_queries
        return {"probe_queries": counted} if counted else {}

    def keep_probes(self, folder: RunFolder) -> None:
        """Store the probe answers of a model without files of its own, once the folder is claimed."""
        if self._probed is not None:
            self._probed = keep(folder.probes_path, self._probed)

    def load_victim(self, data_labels: Sequence[str], *, images: bool = False) -> Victim:
        """Load the model; one without class names gets those of the data."""
        request = self.request
        self.observer.note(f"loading {self.source.shown}")
        return open_victim(
            self.source,
            data_labels,
            labels=request.labels,
            options={key: value for key, value in request.victim.items() if key != VERSION},
            device=request.device,
            precision=request.precision,
            images=images,
        )


class PreparedSample(PreparedModel[AskedOfSample]):
    """The model of a command, its sample, and the folder of the rows."""

    _labels_checked = False

    @cached_property
    def data_request(self) -> DataRequest:
        """The data that the command names, or those of the run."""
        if self.request.data is not None:
            return self.request.data
        if self.source.run is None:
            raise UsageError(f"{self.request.model} is not a run folder: pass one, or pass --data")
        return DataRequest.from_record(self.source.run.record().data)

    @cached_property
    def splits(self) -> Splits:
        """Every split; those of a run's own data are the same as in training."""
        splits = self.data_request.load()
        if self.request.data is None and self.source.run is not None:
            record = self.source.run.record()
            return splits.for_training(record.seed) if record.training is not None else splits
        return splits

    @cached_property
    def data(self) -> Dataset:
        """The split to attack."""
        return choose_split(self.splits, self.request.split)

    @cached_property
    def sample(self) -> Dataset:
        """The requested examples."""
        if self.request.n is not None and self.request.n < 1:
            raise UsageError(f"--n is the number of examples to attack and must be at least 1, not {self.request.n}")
        sample = self.first(self.request.n)
        if not len(sample) and not sample.rejected:
            raise UsageError(f"the {self.data.split} split of {self.data.name} has no examples to attack")
        return sample

    def first(self, n: int | None) -> Dataset:
        """The first `n` examples in the common order of all samples."""
        return self.data.sample(n, self.request.seed, self.only_label)

    @property
    def only_label(self) -> int | None:
        """The class, in the data's order, that examples are taken from; None for all."""
        return None

    @cached_property
    def protection(self) -> Protection:
        """The protected parts of a text."""
        from isthmus.attacks.parts.protection import Protection

        return Protection(self.request.protect, self.request.protect_pattern, self.request.protect_kinds)

    @cached_property
    def folder(self) -> RunFolder:
        """The folder of the rows; one that holds another model or other data is refused."""
        run, known = self.source.run, self.fingerprint
        # Whether the split is one of those the model's run was made with.
        own = run is not None and run.record().data.fingerprints.get(self.data.split) == self.data.fingerprint
        if self.request.out is not None:
            folder = RunFolder(self.request.out)
        else:
            folder = run if run is not None and own else RunFolder(default_path(self.source.name, self.data.name))
        self.hold(folder)
        if run is not None and folder.path.resolve() == run.path.resolve():
            if not own:
                raise RunError(f"{run.path} was made with other data than {self.data.name}: choose another --out")
            make_folder(folder.attacks_path)
            return folder
        record = RunRecord(
            model=ModelRecord(self.source.shown, self.request.labels or (), known),
            data=self.data_request.record({self.data.split: self.data}),
            command=self.request.command,
        )
        if folder.exists:
            folder.claim(record)  # Refuses another model before this one is asked for anything.
        if known is None:
            self.recognise(folder, self.victim, self.data)
        folder.claim(record)
        self.keep_probes(folder)
        return folder

    @cached_property
    def victim(self) -> Victim:
        """The model, loaded."""
        victim = self.load_victim(self.data.labels, images=isinstance(self.data.task, ImageClassification))
        check_inputs(victim, self.source, self.data)
        suit_fields(victim, self.source, self.data.fields)
        return victim

    @cached_property
    def aligned(self) -> Dataset:
        """The split with labels in the victim's order."""
        return self.data.align_labels(self.victim.labels)

    @cached_property
    def numbering(self) -> dict[int, int]:
        """Map label indices of the data to the victim's."""
        return numbering(self.data, self.aligned)

    def choose_label_names(self) -> list[str]:
        """Class names for people: the victim's own, or the data's if the victim only has numbers."""
        labels = self.victim.labels
        return choose_label_names(labels, names_in_data(self.data, labels, self.numbering))

    def check_labels(self) -> None:
        """Stop if the model's labels cannot match those of the data; checked once."""
        if self.request.label_check and not self._labels_checked:
            try:
                names = names_in_data(self.data, self.victim.labels, self.numbering)
                check_labels(self.victim, self.aligned, self.request.seed, names)
            except VictimTimeout as error:
                self.observer.note(f"labels not checked: {error}")
            self._labels_checked = True


def ids(sample: Dataset) -> list[str]:
    """Ids of all rows of a sample, the unusable ones last."""
    return [example.id for example in sample] + [bad.id for bad in sample.rejected]
