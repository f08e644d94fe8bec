"""How much single layers stretch: the largest singular value of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus.core.errors import UsageError


class Stretch(NamedTuple):
    """Bounds of how much a layer stretches the difference of two inputs."""

    estimate: float
    """By power iteration where the layer is a convolution: converges from below."""
    bound: float
    """Never below the truth."""

    @classmethod
    def exactly(cls, value: float) -> Stretch:
        """A known constant: both bounds are equal."""
        return cls(value, value)


Shape = torch.Size
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
_TAKE: dict[int, Callable[..., Tensor]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def linear_stretch(layer: nn.Linear) -> Stretch:
    """The spectral norm of the weights."""
    return Stretch.exactly(spectral_norm(layer.weight))


def spectral_norm(weight: Tensor) -> float:
    """The largest singular value of a matrix, from its square: a third of the time of a full decomposition."""
    matrix = weight.detach().double()
    square = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(square)[-1])))


def convolution_stretch(layer: Convolution, shape: Shape) -> Stretch:
    """The norm of the operator on inputs [batch, channels, …] of this shape, not of the kernel as a matrix.

    The bound: zero padding and strides only leave things out of a convolution on a ring as long as the padded input,
    which the Fourier transform takes apart into one small matrix for every frequency.
    """
    if layer.padding_mode != "zeros":
        raise UsageError(f"a convolution with {layer.padding_mode} padding is not covered: only zeros are")
    estimate = _power_iteration(_operator(layer), shape[1:], layer.weight.device)
    return Stretch(estimate, _ring_norm(layer, shape[2:]))


def _operator(layer: Convolution) -> Callable[[Tensor], Tensor]:
    weight, take = layer.weight.detach().double(), _TAKE[len(layer.kernel_size)]
    return lambda x: take(
        x, weight, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups
    )


def _power_iteration(
    operator: Callable[[Tensor], Tensor], shape: Shape, device: torch.device, rounds: int = 300
) -> float:
    """Largest singular value of a linear map of one input, a lower bound by power iteration."""
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(1, *shape, generator=stream, dtype=torch.float64).to(device)
    found = 0.0
    for _ in range(rounds):
        x = (x / x.norm().clamp(min=1e-300)).requires_grad_()
        with torch.enable_grad():
            y = operator(x)
        (back,) = torch.autograd.grad(y, x, y.detach())
        before, found = found, float(y.detach().norm())
        x = back
        if abs(found - before) <= 1e-7 * found:
            break
    return found


def _ring_norm(layer: Convolution, spatial: Shape) -> float:
    """Largest spectral norm over all frequencies of the kernel on a ring."""
    dilation, kernel = layer.dilation, layer.kernel_size
    if isinstance(layer.padding, str):
        reach = tuple((size - 1) * apart for size, apart in zip(kernel, dilation, strict=True))
        padded = [size + (more if layer.padding == "same" else 0) for size, more in zip(spatial, reach, strict=True)]
    else:
        padded = [size + 2 * more for size, more in zip(spatial, layer.padding, strict=True)]
    weight = layer.weight.detach().double().cpu()
    taps = torch.zeros(*weight.shape[:2], *padded, dtype=torch.float64)
    places = tuple(slice(0, (size - 1) * apart + 1, apart) for size, apart in zip(kernel, dilation, strict=True))
    taps[(slice(None), slice(None), *places)] = weight
    spectrum = torch.fft.rfftn(taps, dim=tuple(range(2, 2 + len(padded)))).flatten(2)  # [out, in of a group, waves]
    # Groups do not mix, so the norm is that of the worst of them.
    per_group = spectrum.unflatten(0, (layer.groups, -1)).permute(0, 3, 1, 2)
    return max(float(torch.linalg.matrix_norm(part, 2).max()) for part in per_group.flatten(0, 1).split(4096))


def batch_norm_stretch(layer: nn.Module) -> Stretch:
    """The largest scale of a channel, for a normalisation with frozen statistics."""
    variance = getattr(layer, "running_var", None)
    if layer.training or not isinstance(variance, Tensor):
        raise UsageError(f"{type(layer).__name__} by the statistics of its batch has no constant: put it in eval mode")
    scale = (variance.double() + float(layer.eps)).rsqrt()  # type: ignore[arg-type]
    weight = getattr(layer, "weight", None)
    return Stretch.exactly(float((scale if weight is None else scale * weight.detach().double().abs()).max()))


def max_pool_stretch(layer: nn.MaxPool1d | nn.MaxPool2d) -> Stretch:
    """1 if windows do not overlap; else the root of the number of windows that share an input."""
    shared = math.prod(
        math.ceil(_of(layer.kernel_size, axis) * 1.0 / _of(layer.stride, axis)) for axis in range(_axes(layer))
    )
    return Stretch.exactly(math.sqrt(shared))


def average_pool_stretch(layer: nn.AvgPool1d | nn.AvgPool2d) -> Stretch:
    """One over the root of the window if windows do not overlap; at most 1 if they do."""
    axes = range(_axes(layer))
    if not layer.count_include_pad and any(_of(layer.padding, axis) for axis in axes):
        raise UsageError(f"{type(layer).__name__} that leaves its padding out of the mean is not covered")
    apart = all(_of(layer.stride, axis) >= _of(layer.kernel_size, axis) for axis in axes)
    return Stretch.exactly(math.prod(_of(layer.kernel_size, axis) for axis in axes) ** -0.5 if apart else 1.0)


def mean_stretch(before: Shape, after: Shape) -> Stretch:
    """The norm of a mean over equal parts of the input."""
    if before.numel() % after.numel():
        raise UsageError(f"a mean of {tuple(before)} into {tuple(after)} has parts of different size: not covered")
    return Stretch.exactly((before.numel() / after.numel()) ** -0.5)


def _axes(layer: nn.Module) -> int:
    return 1 if type(layer).__name__.endswith("1d") else 2


def _of(value: int | tuple[int, ...], axis: int) -> int:
    return value if isinstance(value, int) else value[axis % len(value)]
