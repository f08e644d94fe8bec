"""The models an attack asks beside its victim: loaded as isthmus loads them, and watched for what they are fed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from speed.victims import Sent

if TYPE_CHECKING:
    import torch


@dataclass
class Watched:
    """Batches that went through a model, and the processor time of its forward passes."""

    keep: bool
    sent: list[Sent] = field(default_factory=list)
    rows: int = 0
    cpu_s: float = 0.0
    _started: float = 0.0

    def watch(self, model: torch.nn.Module) -> None:
        """From now on note every forward pass."""
        model.register_forward_pre_hook(self._before, with_kwargs=True)
        model.register_forward_hook(self._after)

    def _before(self, _model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids, mask = inputs[0] if inputs else named["input_ids"], named.get("attention_mask")
        self.rows += len(ids)
        if self.keep:
            lengths = mask.sum(dim=1).cpu().numpy() if mask is not None else np.full(len(ids), ids.shape[1])
            self.sent.append(Sent(ids.cpu().numpy().copy(), lengths))
        self._started = time.process_time()

    def _after(self, _model: Any, _inputs: Any, _output: Any) -> None:
        self.cpu_s += time.process_time() - self._started


@dataclass(frozen=True)
class Beside:
    """Encoder and masked language model of an attack; None where it has none."""

    encoder: Any = None
    masked_lm: Any = None
    watched: dict[str, Watched] = field(default_factory=dict)

    @classmethod
    def of(cls, attack: Any, keep: bool) -> Beside:
        """Those that `attack` names, watched; `keep` their rows where they are to be replayed."""
        from isthmus.auxiliary import load_encoder, load_masked_lm

        names = {"encoder": getattr(attack, "encoder", None), "masked_lm": getattr(attack, "masked_lm", None)}
        loaders: dict[str, Callable[[str], Any]] = {"encoder": load_encoder, "masked_lm": load_masked_lm}
        found = {kind: loaders[kind](name) for kind, name in names.items() if name}
        watched = {kind: Watched(keep) for kind in found}
        for kind, model in found.items():
            watched[kind].watch(model.model)
        return cls(found.get("encoder"), found.get("masked_lm"), watched)


def stock(kind: str, attack: Any) -> torch.nn.Module:
    """The bare model of a kind, without its head: what a replay runs."""
    from isthmus.auxiliary import load_encoder, load_masked_lm

    model = load_encoder(attack.encoder).model if kind == "encoder" else load_masked_lm(attack.masked_lm).model
    base: torch.nn.Module = getattr(model, "base_model", model)
    return base
