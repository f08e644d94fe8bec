"""``isthmus train``: fine-tune a classifier, with or without a defence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from isthmus.cli import options
from isthmus.core.errors import ExitCode

_TRAINING = "Training"


def train(
    data: options.DataOption = None,
    backbone: Annotated[
        str, typer.Option("--backbone", help="minilm, mpnet, lstm, cnn, a folder or a hub name; for images mlp.")
    ] = "minilm",
    defence: Annotated[
        str, typer.Option("--defence", "--defense", help="Training method (isthmus list defences); A+B composes two.")
    ] = "standard",
    parameter: options.Parameters = None,
    seed: options.Seed = 0,
    task: options.TaskOption = "classification",
    text: options.TextOption = None,
    label: options.LabelOption = None,
    pair: options.PairOption = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="A,B,…", help="Names of the numbered labels, in order.", rich_help_panel=options.DATA
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Train on a random sample of N examples.", rich_help_panel=options.DATA),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", help="Epochs. (default: 3; qa: 2; images: 20)", rich_help_panel=_TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", help="Examples per forward pass. (default: 32; images: 100)", rich_help_panel=_TRAINING
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            "--lr",
            help="Peak learning rate. (default: 1e-4; qa: 3e-5; lstm, cnn, images: 1e-3)",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="auto, fp32 or bf16. (default: auto)", rich_help_panel=_TRAINING),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option("--patience", help="Stop after N evaluations without improvement.", rich_help_panel=_TRAINING),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("-S", "--set", metavar="KEY=VALUE", help="Another training setting.", rich_help_panel=_TRAINING),
    ] = None,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """Fine-tune a classifier, plain or with a defence. The same command resumes an interrupted run.

    isthmus train --data rotten_tomatoes --backbone minilm --epochs 1 --out runs/demo

    isthmus train --task qa --data squad.json --backbone minilm --out runs/answers
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, results
    from isthmus.cli.printing import print_run, run_json
    from isthmus.cli.progress import TrainingBar, fetching
    from isthmus.core.errors import UsageError
    from isthmus.report.view import read_run
    from isthmus.verbs.sources import DataRequest
    from isthmus.verbs.train import TrainRequest
    from isthmus.verbs.train import train as run_train

    if data is None:
        raise UsageError(
            "no data to train on: pass --data rotten_tomatoes, or --data reviews.csv --text review --label stars"
        )
    wanted = options.task_name(task)
    given = {
        "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate,
        "precision": precision, "patience": patience,
    }  # fmt: skip
    request = TrainRequest(
        data=DataRequest(data, text, label, options.pair(pair), options.names(labels) or None, wanted),
        backbone=backbone,
        defence=defence,
        parameters=options.key_values(parameter),
        settings=training_settings(
            {key: value for key, value in given.items() if value is not None},
            options.key_values(setting, "-S"),
            wanted,
            backbone,
        ),
        limit=limit,
        seed=seed,
        out=options.folder(out),
        device=options.device(device),
        command=command_line(),
    )
    bar = TrainingBar(quiet)
    try:
        with fetching(quiet):
            done = run_train(request, bar)
    except KeyboardInterrupt:
        bar.close()
        bar.meter.note("interrupted: the same command resumes from the last checkpoint")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        bar.close()
    if done.was_finished:
        bar.meter.note(f"{done.folder.path} already holds this model; nothing was trained")
    if done.made_splits:
        bar.meter.note(_describe_split(done.made_splits, done.record.data.sizes))
    if done.rejected:
        bar.meter.note(_put_aside([row.reason for row in done.rejected]))
    view = read_run(done.folder)
    print_run(results(as_json, quiet), view, after="train")
    if as_json:
        print_json({**run_json(view), **(done.record.results or {})})


def _describe_split(made: Sequence[str], sizes: Mapping[str, int]) -> str:
    """The note about splits that the data did not have."""
    if made == ("dev",):
        return f"the data has no dev split: {sizes['dev']:,} examples of train were set aside for it"
    parts = ", ".join(f"{sizes[part]:,} {part}" for part in made)
    return f"the data has no splits: its examples were split into {parts}; attack and evaluate use test"


def _put_aside(reasons: list[str]) -> str:
    """The note about rows that could not be used."""
    shown = "; ".join(reasons[:3]) + ("; …" if len(reasons) > 3 else "")
    return f"{len(reasons):,} row{'s' * (len(reasons) > 1)} of the data could not be used ({shown})"


def training_settings(
    given: dict[str, Any], others: dict[str, str], task: str = "classification", backbone: str | None = None
) -> Any:
    """Read training settings from options and ``-S`` strings."""
    import dataclasses

    from isthmus.core.errors import UnknownName
    from isthmus.core.parameter_values import convert
    from isthmus.training.settings import TrainingSettings, settings_for

    known = {entry.name: entry for entry in dataclasses.fields(TrainingSettings)}
    for key, value in others.items():
        if key not in known:
            raise UnknownName("training setting", key, known)
        given[key] = convert(value, _annotation(str(known[key].type)), f"-S {key}")
    return settings_for(task, backbone, **given)


def _annotation(name: str) -> str:
    """Aliases of choices are checked by the settings themselves."""
    return "str" if name in ("Precision", "Optimizer", "Schedule") else name
