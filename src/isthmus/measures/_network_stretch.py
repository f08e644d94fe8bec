"""Lipschitz constants: how much a network can stretch the difference of two inputs.

    product         ‖f(x) - f(x')‖ ≤ Π_l ‖W_l‖₂ ‖x - x'‖             layers in a row, activations of slope at most 1
    local           ‖∂f/∂x‖₂ at single points                        never above the product
    density         |p(t|x) - p(t|x')| ≤ L ‖x - x'‖ of p(t|x) = N(μ(x), diag σ(x)²) in K dimensions:
      sound         L = K (2π)^(-K/2) s^-(K+1) (L_σ + e^(-½) L_μ)     s the smallest σ there is
      printed       L = K (2π)^(-(K-1)/2) s^-2 (2 L_σ e^(-3/2) + L_μ e^(-½))      loses s^-(K-1): no bound for s < 1

A network is followed through its graph (torch.fx): branches that are added add their constants. What is not known to
have a constant, attention and layer normalisation among it, is refused and never guessed.

References:
    Szegedy et al. (2014), Intriguing Properties of Neural Networks, https://arxiv.org/abs/1312.6199; Sedghi, Gupta and
    Long (2019), The Singular Values of Convolutional Layers, https://arxiv.org/abs/1805.10408; Improving Adversarial
    Robustness: An Information-Theoretic Perspective (2019), Theorem 3.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus.core.errors import UsageError
from isthmus.measures._layer_stretch import (
    Shape,
    Stretch,
    average_pool_stretch,
    batch_norm_stretch,
    convolution_stretch,
    linear_stretch,
    max_pool_stretch,
    mean_stretch,
    spectral_norm,
)

if TYPE_CHECKING:
    from isthmus.models.bottleneck import GaussianBottleneck

_SLOPE_ONE = (
    nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Softplus, nn.Softsign,
    nn.LogSigmoid, nn.Softmax,
)  # fmt: skip
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
_PASSED_ON = {
    torch.relu, functional.relu, functional.relu6, torch.tanh, functional.tanh, functional.softplus, torch.flatten,
    operator.getitem, torch.chunk, torch.split, torch.squeeze, torch.unsqueeze, torch.neg, operator.neg,
    torch.reshape, functional.softmax, torch.softmax,
}  # fmt: skip
_PASSED_ON_METHODS = {
    "relu", "tanh", "flatten", "view", "reshape", "chunk", "split", "squeeze", "unsqueeze", "contiguous", "float",
    "double", "to", "softmax", "permute", "transpose",
}  # fmt: skip


@dataclass(frozen=True)
class LayerStretch:
    """The constant of one layer of a network."""

    name: str
    kind: str
    estimate: float
    bound: float


@dataclass(frozen=True)
class LipschitzConstant:
    """The constant of a network, and those of its layers."""

    estimate: float
    """With the norms of convolutions by power iteration."""
    bound: float
    """With bounds on these norms: never below the truth."""
    layers: tuple[LayerStretch, ...] = ()


def lipschitz_constant(module: nn.Module, example: Tensor) -> LipschitzConstant:
    """The product bound of a network for inputs of the shape of `example`, a batch of one or more."""
    from torch import fx

    class Shapes(fx.Interpreter):
        """Records the shape of every output."""

        extra_traceback = False

        def run_node(self, node: fx.Node) -> Any:
            found = super().run_node(node)
            node.meta["shape"] = found.shape if isinstance(found, Tensor) else None
            return found

    try:
        graph = fx.symbolic_trace(nn.Sequential(module))  # Wrapped, so that a single layer is still seen as one.
        with torch.no_grad():
            Shapes(graph).run(example)
    except Exception as error:  # Whatever a module of somebody else raises when it is traced.
        raise UsageError(
            f"{type(module).__name__} cannot be followed layer by layer ({type(error).__name__}: {error}): give a "
            "network of linear, convolutional and 1-Lipschitz layers"
        ) from error
    return _Walk(graph).through()


class _Walk:
    """Follows the constants of a graph from its input to its output."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.known: dict[Any, Stretch] = {}
        self.layers: list[LayerStretch] = []

    def through(self) -> LipschitzConstant:
        for node in self.graph.graph.nodes:
            if node.op == "output":
                (result,) = node.args
                found = self.known[result] if not isinstance(result, tuple | list) else _root_sum(self._of(result))
                return LipschitzConstant(found.estimate, found.bound, tuple(self.layers))
            self.known[node] = self._of_node(node)
        raise UsageError("the network returns nothing")

    def _of_node(self, node: Any) -> Stretch:
        if node.op == "placeholder":
            return Stretch.exactly(1.0)
        if node.op == "get_attr":
            return Stretch.exactly(0.0)  # A weight or a buffer does not move with the input.
        inputs = [each for each in node.all_input_nodes if self.known[each].bound > 0]
        if not inputs:
            return Stretch.exactly(0.0)
        if node.op == "call_module":
            layer = self.graph.get_submodule(node.target)
            own = module_stretch(layer, _shape(inputs[0]), _shape(node))
            if own != Stretch.exactly(1.0):
                self.layers.append(LayerStretch(_name(node.target), type(layer).__name__, *own))
            return _times(self.known[inputs[0]], own)
        return self._of_call(node, inputs)

    def _of_call(self, node: Any, inputs: list[Any]) -> Stretch:
        target = node.target
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        first = self.known[inputs[0]]
        if (target in _PASSED_ON or (node.op == "call_method" and target in _PASSED_ON_METHODS)) and len(inputs) == 1:
            return first
        if name in ("add", "sub", "iadd", "isub") and not node.kwargs:
            return _sum([self.known[each] for each in inputs for _ in range(node.args.count(each))])
        number = next((each for each in node.args if isinstance(each, int | float)), None)
        if name in ("mul", "truediv", "div") and len(inputs) == 1 and number:
            if name == "mul":
                return _times(first, Stretch.exactly(abs(number)))
            if node.args[0] is inputs[0]:  # Not a number divided by what goes in.
                return _times(first, Stretch.exactly(1 / abs(number)))
        if name == "cat":
            return _root_sum([self.known[each] for each in inputs])
        if name in ("mean", "adaptive_avg_pool1d", "adaptive_avg_pool2d") and len(inputs) == 1:
            before, after = _shape(inputs[0]), _shape(node)
            if before[0] != after[0]:
                raise UsageError("a mean over the batch mixes inputs: not covered")
            return _times(first, mean_stretch(before, after))
        if name == "sigmoid" and len(inputs) == 1:
            return _times(first, Stretch.exactly(0.25))
        raise UsageError(f"{name} (at {node.name}) is not known to have a Lipschitz constant; {COVERED}")

    def _of(self, nodes: Any) -> list[Stretch]:
        return [self.known[each] for each in nodes]


COVERED = (
    "covered are linear and convolutional layers, batch normalisation in eval mode, pooling, sums, and activations of "
    "bounded slope"
)


def module_stretch(layer: nn.Module, before: Shape, after: Shape) -> Stretch:
    """The constant of a single layer; an error if none is known."""
    if isinstance(layer, _DROPOUT) and layer.training:
        raise UsageError(f"{type(layer).__name__} in training draws at random: put the network in eval mode")
    if isinstance(layer, (*_SLOPE_ONE, *_DROPOUT)):
        return Stretch.exactly(1.0)
    if isinstance(layer, nn.LeakyReLU):
        return Stretch.exactly(max(1.0, abs(layer.negative_slope)))
    if isinstance(layer, nn.ELU):
        return Stretch.exactly(max(1.0, abs(layer.alpha)))
    if isinstance(layer, nn.Sigmoid):
        return Stretch.exactly(0.25)
    if isinstance(layer, nn.Linear):
        return linear_stretch(layer)
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return convolution_stretch(layer, before)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        return batch_norm_stretch(layer)
    if isinstance(layer, nn.MaxPool1d | nn.MaxPool2d):
        return max_pool_stretch(layer)
    if isinstance(layer, nn.AvgPool1d | nn.AvgPool2d):
        return average_pool_stretch(layer)
    if isinstance(layer, nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d):
        return mean_stretch(before, after)
    raise UsageError(f"{type(layer).__name__} is not known to have a Lipschitz constant; {COVERED}")


def jacobian_norms(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Spectral norm of the Jacobian at every input [N]; the function must treat each row independently."""
    inputs = inputs.detach().requires_grad_()
    with torch.enable_grad():
        outputs = function(inputs).flatten(1)
    rows = [
        torch.autograd.grad(outputs[:, number].sum(), inputs, retain_graph=True)[0].flatten(1).double()
        for number in range(outputs.shape[1])
    ]
    jacobian = torch.stack(rows, dim=1)  # [N, outputs, inputs]
    wide = jacobian.shape[1] <= jacobian.shape[2]
    square = jacobian @ jacobian.mT if wide else jacobian.mT @ jacobian
    largest: Tensor = torch.linalg.eigvalsh(square)[:, -1]
    return largest.clamp(min=0).sqrt()


def log_density_constant(latent: int, least: float, mean: float, deviation: float) -> float:
    """ln of the sound constant of p(t | x), from the smallest deviation and the constants of mean and deviation."""
    _check_least(least)
    slope = deviation + math.exp(-0.5) * mean
    return _log(latent * slope) - latent / 2 * math.log(2 * math.pi) - (latent + 1) * math.log(least)


def log_printed_density_constant(latent: int, least: float, mean: float, deviation: float) -> float:
    """ln of the constant printed in Theorem 3: no bound if `least` is below 1 in more than one dimension."""
    _check_least(least)
    slope = 2 * deviation * math.exp(-1.5) + math.exp(-0.5) * mean
    return _log(latent * slope) - (latent - 1) / 2 * math.log(2 * math.pi) - 2 * math.log(least)


@dataclass(frozen=True)
class EncoderConstants:
    """Constants of the means and deviations of a Gaussian encoder, and its smallest possible deviation."""

    mean: float
    deviation: float
    whole: float
    """Of the network that gives both."""
    latent: int
    least: float | None
    """None where the deviation has no bound from below."""


def bottleneck_constants(bottleneck: GaussianBottleneck) -> EncoderConstants:
    """Constants of a Gaussian bottleneck as a function of its input vector."""
    # One that reads images has a single layer.
    before = 1.0 if bottleneck.first is None else linear_stretch(bottleneck.first).bound
    norms = [before, linear_stretch(bottleneck.second).bound]
    halves = torch.split(bottleneck.second.weight.detach().double(), bottleneck.latent_size)
    mean, deviation = (norms[0] * spectral_norm(half) for half in halves)
    # With the last relu a deviation is softplus of a number that is not below the shift.
    least = math.log1p(math.exp(bottleneck.shift)) if bottleneck.last_relu else None
    return EncoderConstants(mean, deviation, norms[0] * norms[1], bottleneck.latent_size, least)


def _check_least(least: float) -> None:
    if not least > 0:
        raise UsageError(f"the smallest deviation is {least}: a density has a Lipschitz constant only above 0")


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _name(target: str) -> str:
    """The name of a layer inside a module."""
    return target.removeprefix("0").lstrip(".")


def _shape(node: Any) -> Shape:
    shape: Shape = node.meta["shape"]
    return shape


def _times(first: Stretch, second: Stretch) -> Stretch:
    return Stretch(first.estimate * second.estimate, first.bound * second.bound)


def _sum(parts: list[Stretch]) -> Stretch:
    return Stretch(sum(part.estimate for part in parts), sum(part.bound for part in parts))


def _root_sum(parts: list[Stretch]) -> Stretch:
    return Stretch(math.hypot(*(part.estimate for part in parts)), math.hypot(*(part.bound for part in parts)))
