"""The three slots of a classifier that a defence may fill.

    ids -> word embeddings -> [word mask] -> encoder block 0 -> [noise] -> block 1 ... -> pooled -> [bottleneck] -> head

A slot is a module built from JSON-able parameters, so that a saved classifier can be built again from its folder.
A folder is data: it names a slot's class, and only classes of this package, or classes a program registered itself,
are ever looked up.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor, nn

from isthmus.arithmetic.randomness import Stream
from isthmus.core.errors import ModelError, UsageError

if TYPE_CHECKING:
    from isthmus.models.backbones import Backbone

ConsoleHook = Callable[[nn.Module, Any, Tensor], Any]
_PACKAGE = __name__.split(".", 1)[0]
_CLASS_PATH = re.compile(rf"({_PACKAGE}(?:\.(?!__)[a-z_][a-z0-9_]*)+):([A-Z][A-Za-z0-9]*)")
_registered: dict[str, type[Slot]] = {}


class Slot(nn.Module):
    """Base class of slots. `config` must return the keyword arguments that build it again."""

    place: ClassVar[str]
    """Which slot it fills: ``word_mask``, ``noise`` or ``bottleneck``."""

    stochastic: bool = False
    """Whether it draws randomness outside training too."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream(type(self).__name__)

    def config(self) -> dict[str, Any]:
        """JSON-able keyword arguments of the constructor."""
        raise NotImplementedError(f"{type(self).__name__} must say by `config` how to build it again")


class WordMask(Slot):
    """Scales or removes word embeddings: (embeddings, attention mask, special-token mask, ids) -> embeddings."""

    place = "word_mask"

    after_block: bool = False
    """Whether it reads what the encoder's embedding block makes of the words, and not the words' own embeddings."""

    def attach(self, backbone: Backbone) -> None:
        """Called with the backbone when the slot is filled."""
        if self.after_block and backbone.embedding_block() is None:
            raise UsageError(
                f"this {backbone.form} backbone has no block of its own that embeds words, so a word mask cannot be "
                "put behind it: mask the words' own embeddings"
            )

    def behind(self, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor) -> ConsoleHook:
        """A hook that masks the output of the embedding block."""
        return lambda _module, _given, output: self(output, attention_mask, special_mask, input_ids)

    @property
    def scales_words(self) -> bool:
        """Whether outside training it only multiplies each word by its own `factors`."""
        return False

    def factors(self) -> Tensor:
        """The factor of each entry of the vocabulary [vocabulary]; special tokens are left alone."""
        raise NotImplementedError(f"{type(self).__name__} has no factor for each word")

    def forward(
        self, embeddings: Tensor, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor
    ) -> Tensor:
        """Masked embeddings; special tokens are True in `special_mask`, padding is 0 in `attention_mask`."""
        raise NotImplementedError


EMBEDDINGS = -1
"""The layer number of the word embeddings."""


class Noise(Slot):
    """Perturbs the outputs of the encoder blocks whose (zero-based) indices are in `layers`.

    `EMBEDDINGS` among them is the sequence of word embeddings, before the word mask.
    """

    place = "noise"
    layers: tuple[int, ...] = ()

    def forward(self, layer: int, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The perturbed output of block `layer`."""
        raise NotImplementedError


class Latent(Protocol):
    """A bottleneck's output for the pooled vector; the head reads `sample`."""

    @property
    def sample(self) -> Tensor:
        """The code [batch, latent_size] that the head classifies."""


class Bottleneck(Slot):
    """Compresses the pooled vector to a latent code that the head classifies."""

    place = "bottleneck"
    latent_size: int

    def forward(self, pooled: Tensor) -> Latent:
        """The latent code of a batch of pooled vectors [batch, pooled_size]."""
        raise NotImplementedError


class Slots(nn.Module):
    """Which slots are filled."""

    names = ("word_mask", "noise", "bottleneck")

    word_mask: WordMask | None
    noise: Noise | None
    bottleneck: Bottleneck | None

    def __init__(self) -> None:
        super().__init__()
        self.word_mask = self.noise = self.bottleneck = None

    def by_name(self) -> dict[str, Slot]:
        """The filled slots by name."""
        return {name: slot for name in self.names if (slot := getattr(self, name)) is not None}

    @property
    def stochastic(self) -> bool:
        """Whether a filled slot draws outside training."""
        return any(slot.stochastic for slot in self.by_name().values())

    def put(self, name: str, slot: Slot, seed: int) -> None:
        """Fill one slot; its draws depend on (seed, its class name)."""
        if not isinstance(slot, Slot) or slot.place != name:
            raise UsageError(f"the slot {name!r} takes a {_BASES[name].__name__}, not a {type(slot).__name__}")
        for module in slot.modules():
            if isinstance(module, Stream):
                module.seed = seed
        setattr(self, name, slot)


_BASES: dict[str, type[Slot]] = {"word_mask": WordMask, "noise": Noise, "bottleneck": Bottleneck}


def register_slot(cls: type[Slot]) -> type[Slot]:
    """Allow saved classifiers to name `cls`, a slot class outside this package; use it as a decorator."""
    _registered[f"{cls.__module__}:{cls.__qualname__}"] = cls
    return cls


def describe_slot(slot: Slot) -> dict[str, Any]:
    """Describe a slot for the model's folder."""
    path = f"{type(slot).__module__}:{type(slot).__qualname__}"
    if path not in _registered and not _CLASS_PATH.fullmatch(path):
        raise UsageError(
            f"a classifier with a slot of class {path} cannot be saved: it could not be loaded again. "
            "Decorate the class with isthmus.models.register_slot"
        )
    return {"class": path, "config": slot.config()}


def build_slot(description: Mapping[str, Any]) -> Slot:
    """Build the slot that a folder describes; nothing outside this package is imported, only slots are called."""
    path, config = description.get("class"), description.get("config")
    if not isinstance(path, str) or not isinstance(config, dict):
        raise ModelError(f"a slot must be described by its class and config, not by {dict(description)!r}")
    cls = _registered.get(path) or _own_class(path)
    try:
        return cls(**config)
    except TypeError as error:
        raise ModelError(f"the slot {path} cannot be built from {config!r}: {error}") from error


def _own_class(path: str) -> type[Slot]:
    match = _CLASS_PATH.fullmatch(path)
    if match is None:
        raise ModelError(
            f"the model names the slot class {path!r}, which is not part of {_PACKAGE}; "
            "if it is yours, import the module that registers it with isthmus.models.register_slot first"
        )
    try:
        cls = getattr(importlib.import_module(match[1]), match[2])
    except (ImportError, AttributeError) as error:
        raise ModelError(f"this version of {_PACKAGE} has no slot class {path!r}") from error
    if not (isinstance(cls, type) and issubclass(cls, Slot)):
        raise ModelError(f"{path!r} is not a slot class")
    return cls
