"""Randomness inside a model, from streams with names and keys; torch's global stream is never used.

    with row keys:    value(row, i) = mix64(mix64(key[row] ^ name ^ tag) + (i + 1) * gamma)        (SplitMix64)
    without:          the n-th draw of a stream comes from (seed, name, rank, n)

With row keys a row's noise depends on its own key and on nothing else: not on the other rows, not on padding, not on
the device. Without them (training) a stream counts its draws; the count is part of the model's state, so a training
that resumes from a checkpoint draws what it would have drawn, and dropout elsewhere in the model is not shifted.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from isthmus.core.seeds import derive

_GAMMA = 0x9E3779B97F4A7C15
_IN_CACHE = 1 << 14
"""Numbers whose 64 bits, and what becomes of them, lie in a processor's cache."""
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _to_signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift(value: Tensor, bits: int) -> Tensor:
    """Logical shift to the right (torch's is arithmetic)."""
    return (value >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix64(value: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, whose multiplication wraps around as unsigned arithmetic does."""
    value = (value ^ _shift(value, 30)) * _to_signed(_MIX[0])
    value = (value ^ _shift(value, 27)) * _to_signed(_MIX[1])
    return value ^ _shift(value, 31)


def branch(keys: Tensor, *purpose: str | int) -> Tensor:
    """Derive keys for another purpose; they are independent of these keys and of those for any third purpose."""
    return mix64(keys ^ _to_signed(derive(0, *purpose)))


def copy_keys(keys: Tensor, copies: int) -> Tensor:
    """A key for each copy of each row [rows * copies]; copy j of row r is at r * copies + j."""
    return mix64(keys.view(-1, 1) + torch.arange(copies, device=keys.device)).view(-1)


def draw_bits(keys: Tensor, shape: Sequence[int], stream: int) -> Tensor:
    """64 random bits for every element of `shape`; row r draws from keys[r] and the stream alone."""
    start, steps = _counter_places(keys, math.prod(shape[1:]), stream)
    bits = start + steps  # [rows, numbers]: one counter each
    # The same as mix64, in place: these are the largest tensors of a noisy forward pass.
    for shift, factor in zip((30, 27), _MIX, strict=True):
        bits.bitwise_xor_(_shift(bits, shift)).mul_(_to_signed(factor))
    return bits.bitwise_xor_(_shift(bits, 31)).view(*shape)


def _counter_places(keys: Tensor, count: int, stream: int) -> tuple[Tensor, Tensor]:
    """The start of every row's counter [rows, 1], and its steps [count]."""
    start = mix64(keys ^ _to_signed(stream)).view(-1, 1)
    steps = torch.arange(1, count + 1, device=keys.device, dtype=torch.int64).mul_(_to_signed(_GAMMA))
    return start, steps


def draw_uniform(keys: Tensor, shape: Sequence[int], stream: int) -> Tensor:
    """Uniform draws in (0, 1), float32."""
    drawn = torch.empty(len(keys), math.prod(shape[1:]), device=keys.device)
    at_once = max(1, len(keys) if keys.is_cuda else _IN_CACHE // max(1, drawn.shape[1]))
    pairs = zip(torch.split(drawn, at_once), torch.split(keys, at_once), strict=True)
    for part, own in pairs if drawn.numel() else ():
        # The upper 24 of 64 bits, as many as a float32 holds; the half keeps them off 0, the clamp off 1.
        part.copy_(_shift(draw_bits(own, part.shape, stream), 40)).add_(0.5).mul_(2.0**-24).clamp_(max=1 - 2.0**-24)
    return drawn.view(*shape)


def draw_normal(keys: Tensor, shape: Sequence[int], stream: int) -> Tensor:
    """Standard normal draws, float32, by Box and Muller: each 64 bits give elements 2i and 2i + 1 of a row."""
    count = math.prod(shape[1:])
    drawn = _draw_at_once(keys, -(-count // 2), stream) if keys.is_cuda else None
    if drawn is None:
        drawn = _draw_distinct(keys, -(-count // 2), stream)
    return drawn.flatten(1)[:, :count].reshape(*shape)


def _draw_distinct(keys: Tensor, count: int, stream: int) -> Tensor:
    """Draw as `_draw_in_parts` does; rows that share a key, as in a search over shared draws, are drawn once."""
    distinct, rows = torch.unique(keys, return_inverse=True)
    if 2 * len(distinct) > len(keys):
        return _draw_in_parts(keys, count, stream)
    return _draw_in_parts(distinct, count, stream)[rows]


def _draw_in_parts(keys: Tensor, count: int, stream: int) -> Tensor:
    """`count` pairs of normal draws for every key [keys, count, 2]."""
    drawn = torch.empty(len(keys), count, 2, device=keys.device)
    # A row at a time stays in a CPU's cache, which takes two thirds of the time; a GPU wants everything at once.
    at_once = max(1, len(keys) if keys.is_cuda else _IN_CACHE // max(1, count))
    pairs = zip(torch.split(drawn, at_once), torch.split(keys, at_once), strict=True)
    for part, own in pairs if drawn.numel() else ():
        bits = draw_bits(own, part.shape[:2], stream)
        radius, angle = _radius(_shift(bits, 32)), _angle(bits)
        torch.mul(radius, angle.cos(), out=part[..., 0])
        torch.mul(radius, angle.sin_(), out=part[..., 1])
    return drawn


def _radius(bits: Tensor) -> Tensor:
    return bits.float().add_(0.5).mul_(2.0**-32).log_().mul_(-2.0).sqrt_()


def _angle(bits: Tensor) -> Tensor:
    return (bits & 0xFFFFFFFF).float().mul_(2.0 * math.pi * 2.0**-32)


_PAIR = """
template <typename T> T pair(T start, T step) {
  unsigned long long bits = (unsigned long long)start + (unsigned long long)step;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
  bits = bits ^ (bits >> 31);
  float radius = sqrtf(-2.0f * logf(((float)(bits >> 32) + 0.5f) * 2.3283064365386963e-10f));
  float sine, cosine;
  sincosf((float)(bits & 0xFFFFFFFFull) * 1.4629180792671596e-09f, &sine, &cosine);
  unsigned long long low = __float_as_uint(radius * cosine), high = __float_as_uint(radius * sine);
  return (T)((high << 32) | low);
}
"""
"""The same in one kernel: two float32 in the halves of an int64. The eager way reads and writes the bits 20 times."""


@functools.cache
def _pair() -> Any:
    """Compile the kernel; None if this build of torch, or this machine, cannot."""
    jiterator = getattr(torch.cuda, "jiterator", None)
    if jiterator is None or torch.version.hip:
        return None
    kernel, nothing = jiterator._create_jit_fn(_PAIR), torch.zeros(1, 1, dtype=torch.int64, device="cuda")
    try:
        kernel(nothing, nothing)
    except RuntimeError:  # There is no run-time compiler.
        return None
    return kernel


def _draw_at_once(keys: Tensor, count: int, stream: int) -> Tensor | None:
    """Draw the same bits as `_draw_in_parts` in one kernel; None if the kernel is not available."""
    kernel = _pair()
    if kernel is None or not count:
        return None
    pairs: Tensor = kernel(*_counter_places(keys, count, stream))
    return pairs.view(torch.float32).view(len(keys), count, 2)  # each int64 is two float32


Kind = Literal["normal", "uniform", "bits"]


@dataclass(frozen=True, eq=False)
class Draw:
    """A request to a stream without row keys."""

    stream: Stream
    kind: Kind
    shape: torch.Size
    dtype: torch.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[int, str, torch.Size, torch.dtype]:
        return id(self.stream), self.kind, self.shape, self.dtype

    @property
    def name(self) -> str:
        """The name of its stream."""
        return self.stream.name

    def fill(self, place: Tensor) -> Tensor:
        """Draw into `place` what the stream would return next."""
        return _fill(place, self.kind, self.stream._next(place.device))


@dataclass(frozen=True)
class BatchDraw:
    """A request to a stream of one batch, which depends on the seed of the batch and the name alone."""

    name: str
    kind: Kind
    shape: torch.Size
    dtype: torch.dtype

    def fill(self, place: Tensor, seed: int) -> Tensor:
        """Draw into `place` what a batch of this seed draws."""
        return _fill(place, self.kind, torch.Generator(place.device).manual_seed(derive(seed, self.name) >> 1))


Tap = Callable[[BatchDraw], Tensor | None]
"""Hears of a draw, and may hand out a tensor that somebody else fills; None: it is drawn."""


@dataclass(frozen=True)
class BatchStream:
    """A stream of one batch, whose draws can be told to a `tap`, or taken from it, as those of a model's streams can.

    It starts again at every draw: a second one under the same name gives the same numbers.
    """

    name: str
    seed: int
    tap: Tap | None = None

    def draw(self, kind: Kind, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draws of this shape on this device."""
        asked = BatchDraw(self.name, kind, torch.Size(shape), dtype)
        given = None if self.tap is None else self.tap(asked)
        return asked.fill(torch.empty(asked.shape, device=device, dtype=dtype), self.seed) if given is None else given


def draw_from(
    stream: torch.Generator | BatchStream,
    kind: Kind,
    shape: Sequence[int],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Draws from a generator of torch, or from a stream of a batch; of the same seed they are the same."""
    if isinstance(stream, BatchStream):
        return stream.draw(kind, shape, device, dtype)
    return _fill(torch.empty(torch.Size(shape), device=device, dtype=dtype), kind, stream)


def _fill(place: Tensor, kind: Kind, generator: torch.Generator) -> Tensor:
    if kind == "normal":
        return place.normal_(generator=generator)
    return place.uniform_(generator=generator) if kind == "uniform" else place.random_(generator=generator)


class Stream(nn.Module):
    """A named source of draws. Two streams with the same seed and different names are independent.

    Draws without row keys can be told to a `listener`, or taken from a `source`, which hands out tensors that somebody
    else fills: so a recorded step draws what an ordinary one would.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__()
        self.name, self.seed, self.count = name, seed, 0
        self.keys: Tensor | None = None
        self.listener: Callable[[Draw], None] | None = None
        self.source: Callable[[Draw], Tensor] | None = None

    def normal(self, like: Tensor, tag: int = 0) -> Tensor:
        """Standard normal draws of the shape, device and type of `like`, whose first dimension is the rows."""
        if self.keys is not None:
            return draw_normal(self._rows(like), like.shape, derive(0, self.name, tag)).to(like.dtype)
        return self._draw(Draw(self, "normal", like.shape, like.dtype), like.device)

    def uniform(self, like: Tensor, tag: int = 0) -> Tensor:
        """Uniform draws of the shape, device and type of `like`, whose first dimension is the rows."""
        if self.keys is not None:
            return draw_uniform(self._rows(like), like.shape, derive(0, self.name, tag)).to(like.dtype)
        return self._draw(Draw(self, "uniform", like.shape, like.dtype), like.device)

    def _draw(self, draw: Draw, device: torch.device) -> Tensor:
        if self.source is not None:
            return self.source(draw)
        if self.listener is not None:
            self.listener(draw)
        return draw.fill(torch.empty(draw.shape, device=device, dtype=draw.dtype))

    def _rows(self, like: Tensor) -> Tensor:
        assert self.keys is not None
        if len(self.keys) != len(like):
            raise ValueError(f"{len(self.keys)} keys for {len(like)} rows")
        return self.keys.to(like.device)

    def _next(self, device: torch.device) -> torch.Generator:
        seed = derive(self.seed, "slot", self.name, _rank(), self.count)
        generator = torch.Generator(device).manual_seed(seed)
        self.count += 1
        return generator

    def get_extra_state(self) -> Tensor:
        """The number of draws so far; a checkpoint stores it."""
        return torch.tensor(self.count, dtype=torch.int64)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue after `state` draws."""
        self.count = int(state)


def _rank() -> int:
    """The rank of this process among those that train together."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_rank() if together else 0


@contextlib.contextmanager
def use_keys(model: nn.Module, keys: Tensor | None) -> Iterator[None]:
    """Inside, every stream of `model` draws row by row from `keys` (uint64 bits held as int64)."""
    if keys is None:
        yield
        return
    streams = [module for module in model.modules() if isinstance(module, Stream)]
    for stream in streams:
        stream.keys = keys
    try:
        yield
    finally:
        for stream in streams:
            stream.keys = None


@contextlib.contextmanager
def seed_initialisation(seed: int, *key: str | int) -> Iterator[None]:
    """Initialise parameters from (seed, key) without touching torch's global stream."""
    import torch

    from isthmus.core.seeds import derive

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *key))
        yield
