"""Everything that can be attacked, as a `Victim`.

`load_victim` takes what a user can name on the command line, `wrap` what a program has in hand.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import ModelError, UsageError, VictimError
from isthmus.core.hardware import check_device
from isthmus.core.parameter_values import check_names
from isthmus.core.types import ImageClassification, Victim
from isthmus.models.victims.endpoint import HttpVictim
from isthmus.models.victims.functions import CallableVictim, sklearn_victim
from isthmus.models.victims.onnx_file import OnnxVictim
from isthmus.models.victims.options import check_flag, check_number

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.victims.classifier import ClassifierVictim, InferencePrecision

__all__ = [
    "CallableVictim",
    "ClassifierVictim",
    "HttpVictim",
    "OnnxVictim",
    "load_victim",
    "names_python_object",
    "sklearn_victim",
    "wrap",
]

_PYTHON_OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def __getattr__(name: str) -> Any:
    if name == "ClassifierVictim":
        from isthmus.models.victims.classifier import ClassifierVictim

        return ClassifierVictim
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_victim(
    spec: str | Path | Any,
    *,
    labels: Sequence[str] | None = None,
    device: str | None = None,
    precision: InferencePrecision = "fp32",
    timeout: float | None = None,
    images: bool = False,
    **options: Any,
) -> Victim:
    """Load the victim that a user names.

    `spec` is a run folder, a model folder (ours or any transformers classifier), a hub name, an ``.onnx`` file, an
    ``http(s)://`` address, or ``module:attribute`` (a function, a scikit-learn pipeline, a model). Anything that is not
    a string or a path goes to `wrap`. `labels` replaces the class names, `timeout` the seconds that functions and
    services are given for one batch; `options` go to the victim's class. With `images` a module, a function or an
    ``.onnx`` file takes arrays of images; a model of ours says itself what it reads.

    >>> from isthmus import load_victim
    >>> victim = load_victim(lambda texts: [[0.25, 0.75] for _ in texts], labels=("bad", "good"))
    >>> victim.scores([{"text": "a fine film"}]).tolist()
    [[0.25, 0.75]]
    """
    if timeout is not None:
        check_number("timeout", timeout)
    check_names("labels", labels)
    if not isinstance(spec, (str, Path)):
        return wrap(spec, labels=labels, device=device, precision=precision, timeout=timeout, images=images, **options)
    name = str(spec)
    if name.startswith(("http://", "https://")):
        return HttpVictim(name, labels, **_drop_unset(timeout=timeout), **options)
    if name.endswith(".onnx") and images:
        from isthmus.models.victims.images import onnx_images

        return onnx_images(name, labels, **options)
    if name.endswith(".onnx"):
        return OnnxVictim(name, labels, **options)
    if names_python_object(name):
        found = _python_object(name)
        return wrap(found, labels=labels, device=device, precision=precision, timeout=timeout, images=images, **options)
    _check_path(Path(name))
    from isthmus.models.storage import load_model

    return wrap(load_model(name, labels=labels), device=device, precision=precision, **options)


def names_python_object(spec: str) -> bool:
    """Whether `load_victim` takes a name for a ``module:attribute``."""
    return not Path(spec).exists() and _PYTHON_OBJECT.fullmatch(spec) is not None


def wrap(
    victim: Any,
    *,
    labels: Sequence[str] | None = None,
    device: str | None = None,
    precision: InferencePrecision = "fp32",
    timeout: float | None = None,
    images: bool = False,
    **options: Any,
) -> Victim:
    """Wrap a classifier, a transformers or scikit-learn pipeline, or a function; a victim is returned as it is."""
    if isinstance(victim, Victim):
        return victim
    if (found := _of_images(victim, labels, device, precision, images, options)) is not None:
        return found
    model = _classifier(victim, labels)
    if model is not None:
        check_device(device)
        return _deploy(model.to(device or _best_device(model)), precision, **options)
    if hasattr(victim, "predict") and hasattr(victim, "fit"):
        return sklearn_victim(victim, labels, **_drop_unset(timeout=timeout))
    if callable(victim) and not hasattr(victim, "state_dict"):
        return CallableVictim(victim, labels, **_drop_unset(timeout=timeout), **options)
    raise UsageError(
        f"a {type(victim).__name__} cannot be attacked: give a model with its tokenizer, a pipeline, or a function "
        "that takes a list of texts and returns one row of class probabilities for each"
    )


def _of_images(
    victim: Any, labels: Sequence[str] | None, device: str | None, precision: str, images: bool, options: dict[str, Any]
) -> Victim | None:
    """Wrap a classifier of images; None if it is none."""
    ours = isinstance(getattr(victim, "task", None), ImageClassification)
    if not ours and not (images and callable(victim)):
        return None
    from isthmus.models.images import ImageClassifier
    from isthmus.models.storage import rename_labels
    from isthmus.models.victims.images import ArrayVictim, ImageVictim

    if precision != "fp32":
        raise UsageError(f"images are scored in fp32, not in {precision}")
    if not isinstance(victim, ImageClassifier):
        return ArrayVictim(victim, labels, **options)
    check_device(device)
    model: Any = victim if labels is None else rename_labels(victim, labels)  # type: ignore[arg-type]
    return ImageVictim(model.to(device or _best_device(model)), **options)


def _deploy(model: Classifier, precision: InferencePrecision, *, deployed: bool = True, **options: Any) -> Victim:
    """The classifier as it is deployed; ``deployed=False`` gives the single pass underneath."""
    from isthmus.models.victims.classifier import ClassifierVictim

    if check_flag("deployed", deployed) and model.deployment is not None:
        return model.deployment.victim(model, precision, **options)
    return ClassifierVictim(model, precision, **options)


def _drop_unset(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _classifier(victim: Any, labels: Sequence[str] | None) -> Classifier | None:
    """One of our classifiers, or the model of a transformers pipeline."""
    if not hasattr(victim, "tokenizer") or not hasattr(victim, "forward"):
        return None
    from isthmus.models.classifier import Classifier
    from isthmus.models.stock import from_transformers
    from isthmus.models.storage import rename_labels

    if not isinstance(victim, Classifier):
        if not hasattr(getattr(victim, "model", None), "config"):
            return None
        victim = from_transformers(victim.model, victim.tokenizer)
    return victim if labels is None else rename_labels(victim, labels)


def _best_device(model: Classifier) -> Any:
    import torch

    return "cuda" if torch.cuda.is_available() and model.device.type == "cpu" else model.device


def _check_path(path: Path) -> None:
    """Refuse a missing path, which would otherwise be searched for on the hub."""
    if path.is_file():
        raise ModelError(
            f"{path} is a file; a model is a folder, an .onnx file, a hub name, an address or module:attribute"
        )
    if not path.exists() and (path.is_absolute() or len(path.parts) > 2 or str(path).startswith((".", "~"))):
        raise ModelError(f"no model folder {path}")


def _python_object(spec: str) -> Any:
    module_name, path = spec.split(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # An installed command does not look where it is called from.
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"cannot import {module_name!r} of {spec!r}: {error}") from error
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise UsageError(f"cannot import {module_name!r} of {spec!r}: {error.msg} ({where})") from error
    except SystemExit as stop:
        raise VictimError(f"{module_name!r} ended the process while it was imported: sys.exit({stop.code!r})") from stop
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            f"cannot import {module_name!r} of {spec!r}: it raised {type(error).__name__}: {error}"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{module_name!r} has no attribute {path!r}")
        found = getattr(found, name)
    return found
