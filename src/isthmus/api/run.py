"""A run folder, opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.api.arguments import require_path
from isthmus.api.rows import make_attack_results, make_certificate_results, make_evaluation_results, read_answer
from isthmus.results import AttackResults, CertificateResults, EvaluationResults, QuestionResults

if TYPE_CHECKING:
    from isthmus.data import Splits
    from isthmus.measures.base import Measurement
    from isthmus.models import Classifier
    from isthmus.runs.explained import Explained
    from isthmus.runs.folder import RunFolder, RunRecord


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
        return {
            file.key: make_attack_results(file.key, file.header(), file.results(), self.folder)
            for file in self.folder.attack_files()
        }

    @property
    def embeddings(self) -> dict[str, AttackResults]:
        """The results of every attack on the embeddings of texts, by name."""
        return {
            file.key: make_attack_results(file.key, file.header(), file.results(), self.folder)
            for file in self.folder.embedding_files()
        }

    @property
    def evaluations(self) -> dict[str, EvaluationResults | QuestionResults]:
        """The results on every evaluated set, by name."""
        return {
            file.key: make_evaluation_results(
                file.key, file.header(), file.read(read_answer, "an evaluation"), self.folder
            )
            for file in self.folder.evaluation_files()
        }

    @property
    def certificates(self) -> dict[str, CertificateResults]:
        """The results of every certificate, by name."""
        from isthmus.certificates.base import Certified

        return {
            file.key: make_certificate_results(
                file.key, file.header(), file.read(Certified.from_row, "a certificate"), self.folder
            )
            for file in self.folder.certificate_files()
        }

    @property
    def measures(self) -> dict[str, Measurement]:
        """Every measurement, by name."""
        from isthmus.verbs.measure import measurements

        return {each.key: each.measurement for each in measurements(self.folder)}

    @property
    def explanations(self) -> dict[str, tuple[Explained, ...]]:
        """The explanations that the run keeps, by what was explained."""
        from isthmus.runs.explained import read_explanations

        return {each.key: each.explained for each in read_explanations(self.folder)}

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

    require_path("folder", folder)
    found = Run(RunFolder(folder))
    _ = found.record  # says what is wrong with a folder that is none
    return found
