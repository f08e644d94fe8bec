"""The wrapper class itself; importing this module imports TextAttack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from textattack.models.wrappers import ModelWrapper

from isthmus.arithmetic.batching import batches_of, columns_of
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Differentiable, TokenVictim, Victim

_USUAL_FIELDS = {1: ("text",), 2: ("premise", "hypothesis")}


class IsthmusModelWrapper(ModelWrapper):  # type: ignore[misc]
    """A victim of isthmus as a TextAttack model, with gradients if the victim has them."""

    def __init__(self, victim: Victim, fields: tuple[str, ...] | None = None) -> None:
        self.victim = victim
        self.fields = fields or getattr(victim, "fields", None)
        # TextAttack looks at the class of what is inside to warn of tasks that do not fit.
        self.model = getattr(victim, "model", victim)
        self.tokenizer = getattr(victim, "tokenizer", None)

    def __call__(self, text_input_list: Sequence[str | Sequence[str]], **_: Any) -> Any:
        """Class probabilities [texts, classes]; an input is a text, or a tuple of texts."""
        import torch

        scores = self.victim.scores([self._texts(given) for given in text_input_list]).astype(np.float64)
        if not np.isfinite(scores).all():
            bad = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
            raise VictimError(f"the model answered with NaN for {str(text_input_list[bad])[:80]!r}")
        # A row whose sum is off by more than 1e-6, as happens in float32 with many classes, would get a second softmax.
        return torch.from_numpy(scores / scores.sum(axis=1, keepdims=True))

    def get_grad(self, text_input: str | Sequence[str]) -> dict[str, Any]:
        """Token ids, and the gradient of the loss of the predicted class with respect to their embeddings."""
        victim = self.victim
        if not isinstance(victim, Differentiable) or not isinstance(victim, TokenVictim):
            raise UsageError("this attack needs gradients, and the model can only be asked for scores")
        [(_, batch)] = batches_of(
            victim.tokenizer, columns_of([self._texts(text_input)], self.fields), victim.max_tokens
        )
        label = victim.launch([batch], exact=True)().argmax(axis=1)
        gradient = victim.embedding_gradients(batch, np.asarray(label, np.int64))
        return {"ids": batch.ids, "gradient": gradient[0]}

    def _tokenize(self, inputs: Sequence[str | Sequence[str]]) -> list[list[str]]:
        if self.tokenizer is None:
            raise UsageError("this attack needs the model's tokens, and the model can only be asked for scores")
        rows = [list(self._texts(given).values()) for given in inputs]
        return [
            self.tokenizer.convert_ids_to_tokens(self.tokenizer(*row, truncation=True)["input_ids"]) for row in rows
        ]

    def _texts(self, given: str | Sequence[str]) -> Mapping[str, str]:
        parts = (given,) if isinstance(given, str) else tuple(given)
        names = self.fields if self.fields is not None else _USUAL_FIELDS.get(len(parts))
        if names is None or len(names) != len(parts):
            expected = "one or two" if names is None else f"{len(names)} ({', '.join(names)})"
            raise UsageError(f"an input of {len(parts)} texts for a model that reads {expected}: give fields=(…)")
        return dict(zip(names, parts, strict=True))
