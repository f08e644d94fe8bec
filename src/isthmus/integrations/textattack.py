"""Any isthmus model as a TextAttack model, so that TextAttack's attacks can run on it.

    from isthmus.integrations.textattack import model_wrapper
    from textattack.attack_recipes import DeepWordBugGao2018

    attack = DeepWordBugGao2018.build(model_wrapper("runs/demo"))

TextAttack 0.3 asks for transformers 4 and isthmus is installed with transformers 5, so the two share no environment by
way of pip alone. Give TextAttack one of its own and add isthmus to it without its pins (``pip install --no-deps
isthmus``): model folders are read with either version and score the same. What only runs in the other environment can
be wrapped by its address, ``model_wrapper("http://localhost:8000/classify")``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UsageError

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.integrations._textattack_wrapper import IsthmusModelWrapper


def model_wrapper(
    model: str | Victim | Callable[[list[str]], Any] | Any,
    fields: Sequence[str] | None = None,
    **options: Any,
) -> IsthmusModelWrapper:
    """A ``textattack.models.wrappers.ModelWrapper`` around a model.

    Args:
        model: What `isthmus.load_victim` takes: a run or model folder, an address, ``module:name``, a model, a
            function, a victim.
        fields: Names of the columns of a pair, in reading order, for victims that do not know theirs; by default
            ``premise`` and ``hypothesis`` for two texts and ``text`` for one.
        options: Further options of `load_victim`, such as ``device="cpu"`` or ``labels=("negative", "positive")``.
    """
    _textattack()
    from isthmus.integrations._textattack_wrapper import IsthmusModelWrapper
    from isthmus.models.victims import load_victim

    return IsthmusModelWrapper(load_victim(model, **options), tuple(fields) if fields is not None else None)


def dataset(examples: Any, labels: Sequence[str] | None = None) -> Any:
    """Examples of `isthmus.load_data` as a ``textattack.datasets.Dataset``.

    Args:
        examples: A data set of isthmus, or examples.
        labels: Class names, for examples that do not come from a data set.
    """
    textattack = _textattack()
    rows = [(_input(example.texts), int(example.label)) for example in examples]
    columns = list(next(iter(examples)).texts) if rows else ["text"]
    names = labels if labels is not None else getattr(examples, "labels", None)
    return textattack.datasets.Dataset(rows, input_columns=columns, label_names=list(names) if names else None)


def _input(texts: Mapping[str, str]) -> str | tuple[str, ...]:
    parts = tuple(texts.values())
    return parts[0] if len(parts) == 1 else parts


def _textattack() -> Any:
    try:
        import textattack
    except ImportError as error:
        raise UsageError(
            f"TextAttack cannot be imported here ({error}). It asks for transformers 4, so give it an environment of "
            "its own (pip install textattack) and add isthmus to that without its pins: pip install --no-deps isthmus"
        ) from error
    return textattack
