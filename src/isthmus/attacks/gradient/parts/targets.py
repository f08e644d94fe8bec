"""Targets of gradient attacks: models from tensors to logits, possibly randomised.

    logits(inputs, draws)  ->  [rows, draws, classes]

`Draws` says which rows of the run the inputs are, and has one key for every draw of every row. A randomised model
takes all of its randomness from those keys, so that the same draw can be asked for again at another point: an attack
then climbs one fixed function, the mean over its draws (expectation over transformation, Athalye et al. 2018).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import Stream, use_keys
from isthmus.arithmetic.transfer import Inputs
from isthmus.core.errors import UsageError, VictimError

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier


class Draws(NamedTuple):
    """The rows of a query, and the draws of each."""

    rows: Tensor  # numbers of the rows among the inputs of the run [rows]
    keys: Tensor  # 64 random bits for each draw, held as int64 [rows, draws]


@runtime_checkable
class GradientTarget(Protocol):
    """A classifier for gradient attacks."""

    @property
    def stochastic(self) -> bool:
        """Whether two draws may differ; if not, every row is queried for one draw."""

    def logits(self, inputs: Tensor, draws: Draws) -> Tensor:
        """Logits [rows, draws, classes], differentiable with respect to `inputs` [rows, ...]."""


Attackable = GradientTarget | nn.Module | Callable[[Tensor], Tensor]
"""What `run` takes."""


class ModuleTarget:
    """A torch module, or a function, from inputs to logits [rows, classes].

    A module that draws from `isthmus.arithmetic.randomness.Stream` and says so (`stochastic`) is asked once for every
    draw. Any other randomness comes from torch's global generator: pass ``stochastic=True``, and every draw is computed
    under a seed of its own. Such noise is shared out by the place in the batch, so that a row's result then depends on
    the other rows.
    """

    def __init__(self, module: Callable[[Tensor], Any], stochastic: bool | None = None) -> None:
        self.module = module
        self._stochastic = bool(getattr(module, "stochastic", False)) if stochastic is None else stochastic
        parts = module.modules() if isinstance(module, nn.Module) else ()
        self._has_streams = any(isinstance(part, Stream) for part in parts)

    @property
    def stochastic(self) -> bool:
        """Whether the user declared it stochastic."""
        return self._stochastic

    def logits(self, inputs: Tensor, draws: Draws) -> Tensor:
        """One pass over every draw of every row."""
        if not self.stochastic:
            return logits_of(self.module(inputs)).unsqueeze(1)
        rows, count = draws.keys.shape
        if self._has_streams:
            assert isinstance(self.module, nn.Module)
            with use_keys(self.module, draws.keys.reshape(-1)):
                # Draw j of row r lies at r * count + j, as its key does.
                return logits_of(self.module(inputs.repeat_interleave(count, dim=0))).view(rows, count, -1)
        found = []
        devices = [inputs.device] if inputs.is_cuda else []
        for keys in draws.keys.unbind(1):
            with torch.random.fork_rng(devices=devices):
                torch.manual_seed(int(keys[0]) & (2**63 - 1))
                found.append(logits_of(self.module(inputs)))
        return torch.stack(found, dim=1)


class EncoderTarget:
    """A randomised model in two parts: the part before its randomness is computed once for all draws of a row.

    `decode` reads `encode`'s rows, each repeated for its draws, and draws from the `Stream`s of `module`.
    """

    def __init__(self, module: nn.Module, encode: Callable[[Tensor], Tensor], decode: Callable[[Tensor], Any]) -> None:
        self.module, self.encode, self.decode = module, encode, decode

    @property
    def stochastic(self) -> bool:
        """As the module says; True if it says nothing."""
        return bool(getattr(self.module, "stochastic", True))

    def logits(self, inputs: Tensor, draws: Draws) -> Tensor:
        """Encode every row once, decode every draw."""
        rows, count = draws.keys.shape
        encoded = self.encode(inputs).repeat_interleave(count, dim=0)
        with use_keys(self.module, draws.keys.reshape(-1)):
            return logits_of(self.decode(encoded)).view(rows, count, -1)


class EmbeddingReader(Protocol):
    """A victim that reads embedding sequences and predicts by its whole procedure."""

    @property
    def model(self) -> Classifier:
        """The model that it reads with."""

    @property
    def stochastic(self) -> bool:
        """Whether the same row may get different scores."""

    def logits_at(self, inputs: Inputs, copies: int = 1) -> Tensor:
        """Logits at ``inputs.embeddings`` [rows, copies, classes], with one key for every copy of every row."""


class EmbeddingTarget:
    """A text classifier on the word embeddings of given texts; there is no box: pass ``bounds=None`` to `run`.

        target = EmbeddingTarget(model, model.encode(texts))
        result = PGD(epsilon=0.5, norm="l2").run(target, target.inputs, labels, bounds=None, movable=target.movable)

    Padding is never moved. What the model computes before its first draw is computed once for all draws. A `reader` is
    the model as it is put to work: it answers in place of a plain forward pass.
    """

    def __init__(
        self,
        model: Classifier,
        tokens: Mapping[str, Tensor],
        words_only: bool = False,
        reader: EmbeddingReader | None = None,
    ) -> None:
        if model.answers_questions:
            raise UsageError("gradient attacks look for another class, and this model answers questions")
        self.module, self.reader = model, reader
        self.tokens = {name: value.to(model.device) for name, value in tokens.items()}
        ids, mask = self.tokens["input_ids"], self.tokens.get("attention_mask")
        with torch.no_grad():
            self.inputs = model.embed(ids).float()  # [rows, length, width]
        free = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        if words_only:
            free = free & ~model.special_mask(ids)
        self.movable = free.unsqueeze(-1)

    @property
    def stochastic(self) -> bool:
        """Whether the model, or its reader, is stochastic."""
        return self.module.stochastic if self.reader is None else self.reader.stochastic

    def logits(self, inputs: Tensor, draws: Draws) -> Tensor:
        """The model's own forward pass, or its reader's, with the embeddings replaced."""
        rows, count = draws.keys.shape
        tokens = {name: value[draws.rows] for name, value in self.tokens.items()}
        keys = draws.keys.reshape(-1) if self.stochastic else None
        if self.reader is not None:
            mask, types = tokens.get("attention_mask"), tokens.get("token_type_ids")
            return self.reader.logits_at(Inputs(rows, tokens["input_ids"], mask, types, keys, inputs), count)
        with self.module.use_keys(keys):
            found = self.module(**tokens, inputs_embeds=inputs, copies=count).logits
        return found.view(rows, count, -1)  # type: ignore[no-any-return]


def as_target(model: Attackable) -> GradientTarget:
    """Return a target unchanged; wrap a module or a function."""
    if isinstance(model, GradientTarget):
        return model
    if callable(model):
        return ModuleTarget(model)
    raise UsageError(
        f"a {type(model).__name__} cannot be attacked by gradients: give a torch module, a function from inputs to "
        "logits, or an object with `stochastic` and `logits(inputs, draws)`"
    )


def logits_of(output: Any) -> Tensor:
    """The logits of what a model returned: a tensor [rows, classes], or something that has one as `logits`."""
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise VictimError(f"the model returned a {type(output).__name__}: a tensor of logits [rows, classes] is needed")
    if found.dim() != 2:
        raise VictimError(f"the model returned a tensor of shape {tuple(found.shape)}: logits are [rows, classes]")
    return found


@contextlib.contextmanager
def at_rest(target: GradientTarget) -> Iterator[None]:
    """Inside, the model is in evaluation mode and its parameters need no gradients; restored at the end."""
    module = target if isinstance(target, nn.Module) else getattr(target, "module", None)
    if not isinstance(module, nn.Module):
        yield
        return
    modes = [(part, part.training) for part in module.modules()]
    learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
    module.eval()
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        for part, mode in modes:
            part.training = mode
