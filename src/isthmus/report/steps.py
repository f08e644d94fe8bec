"""Commands to copy: those that made a run, and useful next ones.

A folder can be named as a model only where a training has put one there. Of any other model only the commands that were
given know how it is reached, so that what comes next is one of them with more examples.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from isthmus.core import catalog
from isthmus.core.redaction import is_command
from isthmus.report.attack.view import AttackView
from isthmus.report.certificate.view import certificates
from isthmus.report.view import RunView
from isthmus.verbs.measure import measurements

NextStep = tuple[str, str]
"""A command and why."""

_ON_IMAGES = ("pgd", "fgsm", "cw", "deepfool")
_NEEDS_NOTHING = ("deepwordbug", "badchars", "leet", "random", "pwws", "textfooler")
"""Attacks in the order in which they are proposed: those that need no word list or model first."""
_MORE = "narrower intervals; keeps these rows"


def commands(run: RunView) -> list[str]:
    """The commands that reproduce a run, as far as the folder knows them."""
    given = [
        run.record.command,
        *(_command_of(view) for view in run.attacks),
        *(view.header.get("command") for view in run.evaluations),
        *(view.header.get("command") for view in certificates(run.folder)),
        *(each.command for each in measurements(run.folder)),
    ]
    # A folder may come from anybody, and what stands here is copied into a shell.
    return [command for command in dict.fromkeys(given) if isinstance(command, str) and is_command(command)]


def first_attack(run: RunView) -> str | None:
    """The command for a run's first attack; None if the folder holds no model."""
    if not run.folder.model_path.is_dir() or _answers_questions(run):
        return None
    if _reads_images(run):
        return f"isthmus attack {_path(run)} --attack fgsm,pgd --n 200"
    return f"isthmus attack {_path(run)} --attack deepwordbug,pwws --n 200"


def next_steps(run: RunView, after: str = "report") -> list[NextStep]:
    """Useful commands, with reasons, after ``train``, ``attack``, ``evaluate`` or ``report``."""
    path = _path(run)
    if after == "evaluate":
        return [(f"isthmus report {path}", "HTML report with figures")]
    if after == "attack":
        return [(f"isthmus report {path}", "HTML report with figures and more examples")]
    steps = _of_own_model(run, path, after) if run.folder.model_path.is_dir() else _of_other_model(run)
    return steps if after == "train" else [*steps, ("isthmus list", "every attack, defence and data set")]


def _of_own_model(run: RunView, path: str, after: str) -> list[NextStep]:
    if _answers_questions(run):
        return [(f"isthmus evaluate {path}", "exact match and F1 with their intervals")]
    attack = first_attack(run)
    assert attack is not None
    if after == "train":
        kind = "images" if _reads_images(run) else "texts"
        return [
            (attack, "how easily it is fooled"),
            (f"isthmus evaluate {path}", f"accuracy and calibration on unseen {kind}"),
        ]
    attacked = any(view.results for view in run.attacks)
    return [*(_further(path, run) if attacked else [(attack, "how easily it is fooled")]), *_suggest_defence(run)]


def _of_other_model(run: RunView) -> list[NextStep]:
    if run.record.training is not None:
        made = run.record.command
        return [(made, "finish the training")] if made is not None and is_command(made) else []
    views = [view for view in run.attacks if view.results and _command_of(view)]
    if failed := _all_failed(views):
        return failed
    more = _larger(run, views)
    return [] if more is None else [(_with_n(_command_of(views[0]), more), _MORE)]


def _further(path: str, run: RunView) -> list[NextStep]:
    """The same attacks on more examples, if there are more; else another attack."""
    views = [view for view in run.attacks if view.results]
    if failed := _all_failed(views):
        return failed
    names = list(dict.fromkeys(view.attack for view in views))
    more = _larger(run, views)
    if more is not None:
        given = {_command_of(view) for view in views}
        if len(given) == 1 and _names_folder(made := given.pop(), run):
            return [(_with_n(made, more), _MORE)]  # Only with the options they were made with do rows go on.
        return [(f"isthmus attack {path} --attack {','.join(names)} --n {more}", "narrower intervals")]
    usual = _ON_IMAGES if _reads_images(run) else _NEEDS_NOTHING
    others = [name for name in usual if name not in names and name in catalog.names("attacks")]
    return [(f"isthmus attack {path} --attack {others[0]}", "another attack")] if others else []


def _all_failed(views: Sequence[AttackView]) -> list[NextStep]:
    """The commands of attacks without a single answer, to be tried again."""
    failed = dict.fromkeys(_command_of(view) for view in views if not view.is_answered)
    return [
        (command if "--retry-errors" in command else f"{command} --retry-errors", "try the failed examples again")
        for command in failed
        if command
    ]


def _command_of(view: AttackView) -> str:
    """The command that made the rows; empty if unknown."""
    command = view.header.get("command")
    return command if isinstance(command, str) and is_command(command) else ""


def _names_folder(command: str, run: RunView) -> bool:
    """Whether a command, run from here, refers to this run: the folder may have been moved."""
    return any(Path(word).resolve() == run.folder.path.resolve() for word in shlex.split(command)[2:])


def _larger(run: RunView, views: Sequence[AttackView]) -> int | None:
    """A number of examples that gives narrower intervals; None if there are no more."""
    if not views or all(_attacks_all(view) for view in views):
        return None
    largest = max(view.summary.n for view in views)
    data = [view.settings.get("data") for view in views]
    splits = {str(part.get("split")) for part in data if isinstance(part, Mapping)}
    there = max((int(run.record.data.sizes.get(split, 0)) for split in splits), default=0) or _more(largest)
    return min(_more(largest), there) if there > largest else None


def _more(n: int) -> int:
    """Five times as many, and enough to say something."""
    return max(5 * n, 100)


def _attacks_all(view: AttackView) -> bool:
    """Whether the command asked for every example there is (``--n 0``)."""
    return re.search(r"\s--n(?:=|\s+)0(?=\s|$)", _command_of(view)) is not None


def _with_n(command: str, n: int) -> str:
    """A command with another ``--n``."""
    given = [word for word in shlex.split(command) if word == "--n" or word.startswith("--n=")]
    places = re.findall(r"(?<=\s)--n(?:=|\s+)\d+(?=\s|$)", command)
    if len(given) == len(places) == 1:
        return command.replace(places[0], f"--n {n}")
    return f"{command} --n {n}"  # The last one counts.


def _suggest_defence(run: RunView) -> list[NextStep]:
    """The same training with a defence, if it had none."""
    record = run.record
    if record.training is None or record.defence is None or record.defence.name != "standard":
        return []
    options = record.data.options
    columns = [
        f"--{name} {shlex.quote(value if isinstance(value, str) else ','.join(value))}"
        for name, value in options.items()
        if name in ("text", "label", "pair")
    ]
    given = [f"--data {shlex.quote(record.data.source)}", *columns, f"--backbone {shlex.quote(record.model.spec)}"]
    return [(f"isthmus train {' '.join(given)} --defence label_smoothing", "train a model that is harder to fool")]


def _answers_questions(run: RunView) -> bool:
    return run.record.data.options.get("task") == "qa"


def _reads_images(run: RunView) -> bool:
    return tuple(run.record.data.fields) == ("image",)


def _path(run: RunView) -> str:
    return shlex.quote(run.folder.path.as_posix())
