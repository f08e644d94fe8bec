"""What is written for others: exports, a run's page, converted weights, lists of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed, require_count, require_path
from isthmus.api.run import Run, open_run
from isthmus.core.errors import UsageError
from isthmus.results import AttackResults

if TYPE_CHECKING:
    from isthmus.models.convert import Converted
    from isthmus.report.attack.export import Format
    from isthmus.report.measure.words import WordRow


def export(
    found: Any, file: str | Path, attacks: str | Sequence[str] | None = None, *, form: Format | None = None
) -> int:
    """Write results of attacks for other programs, and return the number of rows.

    Args:
        found: a run, or results of `attack`.
        file: ``.csv`` for all rows in TextAttack's columns; ``.jsonl`` for the adversarial texts as data.
        attacks: attacks of the run; by default all.
        form: ``textattack-csv`` or ``jsonl``; by default by the file's extension.

    >>> from isthmus import attack, export, load_data
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], "deepwordbug",
    ...                [("a dull plot", 0), ("a fine film", 1)], labels=("bad", "good"))
    >>> export(found, "results.csv"), export(found, "adversarial.jsonl")
    (2, 1)
    >>> load_data("adversarial.jsonl", "all").labels
    ('bad',)
    """
    from isthmus.report.attack.export import export as write
    from isthmus.report.attack.export import format_of
    from isthmus.report.attack.selection import select_attacks
    from isthmus.report.attack.view import AttackView

    require_path("file", file)
    check_arguments(form=form)
    chosen = format_of(file, form)
    names = _as_names(attacks)
    if isinstance(found, AttackResults):
        if names is not None:
            raise UsageError("`attacks` names attacks of a run: export(results.attacks['pwws'], …) for one of several")
        views = [
            AttackView(part.name, {"labels": list(part.labels), "n": len(part)}, part.results)
            for part in found.attacks.values()
        ]
    elif isinstance(found, str | Path | Run):
        views = select_attacks((found if isinstance(found, Run) else open_run(found)).folder, names)
    else:
        raise UsageError(f"export takes a run or results of attack, not {found!r:.80}")
    return write(views, file, chosen)


def write_report(run: str | Path | Run) -> Path:
    """Write ``report.html`` of a run, and return where it lies.

    >>> from isthmus import TrainingSettings, train, write_report
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/reported")
    >>> write_report("runs/reported").name
    'report.html'
    """
    from isthmus.report.page import write_report as write

    return write((run if isinstance(run, Run) else open_run(run)).folder)


def convert(folder: str | Path, out: str | Path) -> Converted:
    """Convert a model folder with pickled weights to a new one of safetensors, configuration and tokenizer.

    Reading a pickle can run code, so nothing else does. Here torch makes tensors of it and refuses everything else;
    convert the files of strangers in a sandbox all the same.

    >>> import torch
    >>> from pathlib import Path
    >>> from isthmus import convert
    >>> Path("old").mkdir()
    >>> torch.save({"weight": torch.zeros(2, 3)}, "old/pytorch_model.bin")
    >>> convert("old", "new").tensors
    1
    """
    from isthmus.models.convert import convert as write

    require_path("folder", folder)
    require_path("out", out)
    return write(folder, out)


def show_words(
    run: str | Path | Run,
    *,
    n: int | None = None,
    sort: str = "importance",
    least: int = 1,
    against: str | Path | None = None,
    seed: int = 0,
    device: str | None = None,
    file: str | Path | None = None,
    **parameters: Any,
) -> list[WordRow]:
    """The words that a model trained with ``flat`` relies on, the most important first.

    The figures are those of the measure ``learned_importance``, and the run keeps them.

    Args:
        run: a run trained with ``flat``.
        n: words of each run; None lists all.
        sort: by ``importance``, ``frequency`` or ``replaced``.
        least: list words that are seen this often in training.
        against: a run to compare with; its words follow.
        seed: of the measure.
        device: ``cpu`` or ``cuda``.
        file: where all words are written (.csv, .jsonl).
        parameters: of the measure.

    >>> from isthmus import TrainingSettings, show_words, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", defence="flat", parameters={"attack": "deepwordbug", "points": 0},
    ...           settings=TrainingSettings(epochs=2), folder="runs/words")
    >>> [row.word for row in show_words("runs/words", n=2, sort="frequency", synonyms=table)]
    ['a', 'dull']
    """
    from isthmus.measures.base import Asked
    from isthmus.report.measure.words import check_order, check_path, word_rows, write_words
    from isthmus.verbs.measure import MeasureRequest, measure

    check_arguments(sort=sort, against=against, device=device, file=file)
    n, seed = check_count("n", n), check_seed(seed)
    least = require_count("least", least, least=0)
    if not isinstance(run, Run):
        require_path("run", run)
    check_order(sort)
    if file is not None:
        check_path(Path(file))
    folder = str(run.folder.path if isinstance(run, Run) else run)
    request = MeasureRequest(
        (folder,), ("learned_importance",), parameters, Asked(seed=seed), None if against is None else str(against),
        device,
    )  # fmt: skip
    (measured,) = measure(request)
    rows = word_rows(measured.measurement)
    if file is not None:
        write_words(rows, Path(file))
    found: list[WordRow] = []
    for name in dict.fromkeys(row.run for row in rows):
        own = [row for row in rows if row.run == name and row.frequency >= least]
        found += sorted(own, key=lambda row: (-getattr(row, sort), -row.frequency, row.word))[:n]
    return found


def _as_names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, str | list | tuple) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"attacks is the name of an attack of the run, or a list of names, not {given!r:.80}")
    return tuple(part.strip() for name in ([given] if isinstance(given, str) else given) for part in name.split(","))
